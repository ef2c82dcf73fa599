// Line charts on Observable Plot, with one look: a colour, a dash and a shape each, so that no
// series is told by its colour alone; names at the line's end where there is room, else in a key.

walk.looks = [
  { color: "var(--blue)", dash: null, symbol: "circle" },
  { color: "var(--orange)", dash: "7 3", symbol: "square" },
  { color: "var(--green)", dash: "2 3", symbol: "triangle" },
  { color: "var(--purple)", dash: "9 3 2 3", symbol: "diamond" },
  { color: "var(--quiet)", dash: "4 4", symbol: "cross" },
  { color: "var(--ink)", dash: "1 3", symbol: "star" },
];

const SHAPES = {
  circle: "M8 3.5a4.5 4.5 0 1 0 .01 0z",
  square: "M4 4h8v8H4z",
  triangle: "M8 3l5 9H3z",
  diamond: "M8 2.5l5 5.5-5 5.5L3 8z",
  cross: "M8 3v10M3 8h10",
  star: "M8 3v10M3.7 5.5l8.6 5M12.3 5.5l-8.6 5",
};

walk.chartStyle = { background: "transparent", color: "var(--ink)", fontSize: "12px", overflow: "visible" };

// A key: a short stroke with its shape, then the name.
walk.lineKey = (series) =>
  walk.el(
    "ul",
    { class: "key line-key" },
    series.map(({ name, look, dots = true }) => {
      const mark = walk.mark("M0 8H34", { viewBox: "0 0 34 16", width: 34 });
      mark.firstChild.setAttribute("class", "key-line");
      mark.style.color = look.color;
      if (look.dash) mark.firstChild.setAttribute("stroke-dasharray", look.dash);
      if (dots) {
        const shape = walk.mark(SHAPES[look.symbol], { x: 9 });
        shape.firstChild.setAttribute("class", look.symbol === "cross" || look.symbol === "star" ? "key-shape open" : "key-shape");
        mark.append(shape);
      }
      return walk.el("li", {}, mark, walk.el("span", {}, name));
    }),
  );

// Names beside the ends of lines, moved apart where they would touch.
const endNames = (chart, series, width, right) => {
  const sx = chart.scale("x");
  const sy = chart.scale("y");
  const placed = series
    .map((one) => {
      const last = one.points[one.points.length - 1];
      return { one, x: sx.apply(last.x), y: sy.apply(last.y), to: sy.apply(last.y) };
    })
    .sort((a, b) => a.y - b.y);
  for (let pass = 0; pass < 24; pass += 1) {
    for (let i = 1; i < placed.length; i += 1) {
      const short = 15 - (placed[i].to - placed[i - 1].to);
      if (short > 0) {
        placed[i].to += short / 2;
        placed[i - 1].to -= short / 2;
      }
    }
  }
  const layer = vendor.select(chart).append("g").attr("class", "end-names");
  for (const { one, x, y, to } of placed) {
    const edge = width - right + 14;
    layer
      .append("path")
      .attr("class", "end-lead")
      .attr("d", `M${x + 6},${y}L${edge},${to}`);
    layer.append("text").attr("text-anchor", "start").attr("x", edge + 3).attr("y", to).attr("dy", "0.35em").style("fill", one.look.color).text(walk.cut(one.name, right - 20, 13, 600));
  }
};

// Decades between the ends of a log axis, thinned to a handful.
const decades = ([low, high], most = 6) => {
  const first = Math.ceil(Math.log10(low) - 1e-9);
  const last = Math.floor(Math.log10(high) + 1e-9);
  const step = Math.max(1, Math.ceil((last - first + 1) / most));
  const out = [];
  for (let n = last; n >= first; n -= step) out.unshift(10 ** n);
  return out;
};

const logText = (value) => {
  const n = Math.round(Math.log10(value));
  return n >= -2 && n <= 4 ? walk.tick(10 ** n) : walk.power(n);
};
walk.decades = decades;
walk.logText = logText;

// The name of the vertical axis, above it, from the left edge of the figure.
walk.axisName = (chart, text) =>
  vendor.select(chart).append("text").attr("class", "axis-name").attr("x", 0).attr("y", 10).attr("text-anchor", "start").text(walk.cut(text, Number(chart.getAttribute("width")) - 8, 12.5));

// The horizontal axis every Plot chart here has.
walk.axisX = (label, options = {}) =>
  vendor.axisX({ label, labelAnchor: "center", labelArrow: "none", labelOffset: 38, tickSize: 4, fill: "var(--quiet)", stroke: "var(--line)", ...options, tickFormat: (value) => (options.tickFormat ?? walk.tick)(value) });

// The vertical one: numbers on the left, lines across.
walk.axisY = (ticks, format = walk.tick) => [
  vendor.gridY({ ticks, stroke: "var(--hair)", strokeOpacity: 1 }),
  vendor.axisY({ label: null, ticks, tickSize: 0, fill: "var(--quiet)", tickFormat: (value) => format(value) }),
];

// Places of a point axis whose names have no room: every second, third, … is kept, and the last.
const crowded = (x, series, format, room) => {
  if (x.type !== "point") return new Set();
  const places = walk.unique(series.flatMap((one) => one.points.map((p) => p.x))).sort((a, b) => a - b);
  const widest = walk.textWidth(places.map(format), 12) + 8;
  const every = Math.max(1, Math.ceil((widest * places.length) / room));
  return new Set(places.filter((_, i) => (places.length - 1 - i) % every !== 0));
};

// lines(host, {width, height, label, series: [{name, points: [{x, y, low?, high?}], look, dots}],
//   x: {label, type, ticks, format}, y: {label, log, domain, format}, rules: [...]})
// On a log axis a zero stands on a floor of its own, marked 0.
walk.lines = (host, { width, height = 260, label, series, x, y, rules = [], names = true, under = [] }) => {
  const drawn = series
    .map((one) => ({
      dots: true,
      ...one,
      points: one.points.filter((p) => typeof p.y === "number" && typeof p.x !== "undefined" && p.x !== null),
    }))
    .filter((one) => one.points.length);
  if (!drawn.length) throw new Error("it has no numbers");
  let domain = y.domain ?? null;
  let floor = null;
  let ticks = null;
  if (y.log) {
    const all = drawn.flatMap((one) => one.points.flatMap((p) => [p.y, p.low ?? p.y, p.high ?? p.y]));
    const positive = all.filter((v) => v > 0);
    const [low, high] = walk.span(positive.length ? positive : [1e-16, 1]);
    const zero = positive.length < all.length;
    const from = 10 ** Math.floor(Math.log10(low) - (zero ? 1 : 0) + 1e-9);
    domain = [from, Math.max(high * 1.5, from * 10)];
    ticks = decades(domain);
    if (zero) {
      floor = from;
      ticks = [from, ...ticks.filter((t) => t > from * 1.01)];
      for (const one of drawn) one.points = one.points.map((p) => (p.y > 0 ? p : { ...p, y: from, zero: true }));
    }
  }
  const wide = names && drawn.length > 1 && width >= 520;
  const format = x.format ?? walk.tick;
  const last = Math.max(...drawn.flatMap((one) => one.points.map((p) => p.x)));
  const edge = x.type === "point" ? walk.textWidth([format(last)], 12) / 2 : 0;
  const right = wide ? Math.min(200, walk.textWidth(drawn.map((one) => one.name), 13, 600) + 26) : Math.max(16, Math.ceil(edge));
  if (!wide && names && drawn.length > 1) host.append(walk.lineKey(drawn));
  const flat = drawn.flatMap((one) =>
    one.points.map((p) => ({
      ...p,
      about: `${drawn.length > 1 ? `${one.name}\n` : ""}${x.name ?? x.label}: ${(x.tell ?? x.format ?? walk.number)(p.x)}\n${y.name ?? y.label}: ${p.zero ? "0" : walk.number(p.y)}${
        typeof p.low === "number" ? `\nfrom ${walk.number(p.low)} to ${walk.number(p.high)}` : ""
      }`,
    })),
  );
  const hidden = crowded(x, drawn, format, width - (y.margin ?? 48) - right);
  const marks = [
    ...walk.axisY(ticks ?? y.ticks ?? 5, y.log ? (v) => (floor && v <= floor * 1.01 ? "0" : logText(v)) : (y.format ?? walk.tick)),
    walk.axisX(x.label, { ticks: x.ticks, tickFormat: (v) => (hidden.has(v) ? "" : format(v)) }),
    ...under,
    ...rules.map((rule) => vendor.ruleY([rule.y], { stroke: "var(--quiet)", strokeDasharray: rule.dash ?? null })),
    ...rules.filter((rule) => rule.text).map((rule) => vendor.text([rule], { x: rule.x, y: "y", text: "text", textAnchor: rule.anchor ?? "start", dy: rule.dy ?? -8, fill: "var(--quiet)", stroke: "var(--paper)", strokeWidth: 4 })),
    ...drawn
      .filter((one) => typeof one.points[0].low === "number")
      .map((one) => vendor.areaY(one.points, { x: "x", y1: "low", y2: "high", fill: one.look.color, fillOpacity: 0.16 })),
    ...drawn.map((one) => vendor.line(one.points, { x: "x", y: "y", stroke: one.look.color, strokeWidth: one.width ?? 2, strokeDasharray: one.look.dash, strokeLinejoin: "round" })),
    ...drawn
      .filter((one) => one.dots)
      .map((one) => vendor.dot(one.points, { x: "x", y: "y", r: 4, symbol: one.look.symbol, fill: (p) => (p.zero || one.look.symbol === "cross" || one.look.symbol === "star" ? "none" : one.look.color), stroke: one.look.color, strokeWidth: 1.5 })),
    vendor.tip(flat, vendor.pointer({ x: "x", y: "y", title: "about", fill: "var(--paper)", stroke: "var(--quiet)", fontSize: 12 })),
  ];
  const chart = vendor.plot({
    width,
    height,
    marginLeft: y.margin ?? 48,
    marginRight: right,
    marginTop: 28,
    marginBottom: 46,
    style: walk.chartStyle,
    x: { type: x.type ?? "linear", domain: x.domain, ...(x.type === "point" ? { padding: 0.25 } : {}) },
    y: { type: y.log ? "log" : "linear", domain: domain ?? undefined, nice: !y.log && !y.domain, zero: y.zero ?? false, clamp: Boolean(y.log) },
    ariaLabel: label,
    marks,
  });
  chart.setAttribute("role", "img");
  walk.axisName(chart, y.label);
  if (wide) endNames(chart, drawn, width, right);
  host.append(chart);
  return chart;
};
