// Step 9: which pairs turn, which are used, what survives few bits.

const wavelengthFigure = ({ wavelengths, context }) => {
  const still = wavelengths.filter((one) => !one.turns);
  return walk.figure({
    title: "Pairs that never come round",
    caption: `Wavelength of each pair against a context of ${walk.number(context)} positions. ${
      still.length ? `The ${still.length} open marks above the line never complete a turn within it.` : "Every pair completes a turn within it."
    }`,
    draw: (host, width) => {
      const decades = walk.decades(walk.span(wavelengths.map((one) => one.wavelength).filter((w) => w > 0)));
      const chart = vendor.plot({
        width,
        height: 250,
        marginLeft: 62,
        marginRight: 16,
        marginTop: 28,
        marginBottom: 42,
        style: walk.chartStyle,
        ariaLabel: "Wavelength of every pair against the length of the context",
        x: { domain: [-0.5, wavelengths.length - 0.5] },
        y: { type: "log" },
        marks: [
          ...walk.axisY(decades),
          walk.axisX("pair, fast to slow", { ticks: 6 }),
          vendor.ruleY([context], { stroke: "var(--ink)", strokeDasharray: "5 3" }),
          vendor.text([context], { y: (v) => v, x: -0.3, textAnchor: "start", dy: -9, text: (v) => `context, ${walk.number(v)}`, fill: "var(--ink)", stroke: "var(--paper)", strokeWidth: 4 }),
          vendor.dot(wavelengths.filter((one) => one.wavelength > 0), {
            x: "pair",
            y: "wavelength",
            r: 3.6,
            symbol: (one) => (one.turns ? "circle" : "diamond"),
            fill: (one) => (one.turns ? "var(--blue)" : "none"),
            stroke: (one) => (one.turns ? "var(--blue)" : "var(--orange)"),
            strokeWidth: 1.6,
          }),
          vendor.tip(wavelengths.filter((one) => one.wavelength > 0), vendor.pointer({ x: "pair", y: "wavelength", title: (one) => `pair ${one.pair}\n${walk.number(one.wavelength, 4)} positions\n${one.turns ? "turns within the context" : "never comes round"}`, fill: "var(--paper)", stroke: "var(--quiet)" })),
        ],
      });
      chart.setAttribute("role", "img");
      walk.axisName(chart, "wavelength, positions");
      host.append(chart);
    },
  });
};

const usageFigure = ({ usage }) => {
  const half = usage.length / 2;
  const sum = usage.reduce((total, one) => total + one.share, 0);
  const slow = usage.filter((_, i) => i >= half).reduce((total, one) => total + one.share, 0) / (sum || 1);
  return walk.figure({
    title: "Where the norm lies",
    caption: `Share of ‖q‖‖k‖ in each pair of a real model, fast pairs at the left. The slower half carries ${walk.number(100 * slow, 2)}\u00a0%. Norm is not use: the table below takes pairs away and looks at the loss.`,
    draw: (host, width) => {
      const chart = vendor.plot({
        width,
        height: 220,
        marginLeft: 48,
        marginRight: 16,
        marginTop: 28,
        marginBottom: 42,
        style: walk.chartStyle,
        ariaLabel: "Share of the norm by pair",
        x: { domain: [-0.5, usage.length - 0.5] },
        y: { zero: true },
        marks: [
          ...walk.axisY(4, (v) => `${walk.tick(100 * v)} %`),
          walk.axisX("pair, fast to slow", { ticks: 6 }),
          vendor.ruleX(usage, { x: "pair", y1: 0, y2: "share", stroke: (one, i) => (i >= half ? "var(--orange)" : "var(--blue)"), strokeWidth: Math.max(2, ((width - 64) / usage.length) * 0.62) }),
          vendor.ruleY([0], { stroke: "var(--quiet)" }),
          vendor.tip(usage, vendor.pointerX({ x: "pair", y: "share", title: (one) => `pair ${one.pair}\n${walk.number(100 * one.share)} %`, fill: "var(--paper)", stroke: "var(--quiet)" })),
        ],
      });
      chart.setAttribute("role", "img");
      walk.axisName(chart, "share of ‖q‖‖k‖");
      host.append(chart);
    },
  });
};

const bandTable = ({ bands }) => {
  const lengths = walk.unique(bands.map((one) => one.length)).sort((a, b) => a - b);
  const names = walk.unique(bands.map((one) => one.band));
  const find = (band, length) => bands.find((one) => one.band === band && one.length === length);
  const cell = (one) => {
    if (!one || typeof one.after !== "number") return walk.el("td", {}, "–");
    const change = one.after / one.before - 1;
    const share = Math.abs(100 * change);
    const compared = change > 2 ? `× ${walk.number(change + 1, 3)}` : `${change >= 0 ? "+" : "−"}${share < 10 ? share.toFixed(1) : Math.round(share)} %`;
    return walk.el(
      "td",
      { class: share >= 10 ? "hurt" : null },
      walk.el("b", {}, walk.number(one.after, 4)),
      walk.el("small", {}, compared),
    );
  };
  return walk.el(
    "div",
    { class: "small-table bands" },
    walk.el("p", { class: "figure-title" }, "Perplexity when a band of pairs is changed"),
    walk.el(
      "div",
      { class: "scroll", tabindex: 0, role: "region", "aria-label": "Perplexity when a band of pairs is changed" },
      walk.el(
        "table",
        {},
        walk.el("thead", {}, walk.el("tr", {}, walk.el("th", { scope: "col" }, "Band"), lengths.map((n) => walk.el("th", { scope: "col" }, `at ${walk.number(n)} tokens`)))),
        walk.el(
          "tbody",
          {},
          walk.el(
            "tr",
            { class: "whole" },
            walk.el("th", { scope: "row" }, "untouched"),
            lengths.map((n) => walk.el("td", {}, walk.el("b", {}, walk.number(bands.find((one) => one.length === n)?.before, 4)))),
          ),
          names.map((band) => walk.el("tr", {}, walk.el("th", { scope: "row" }, band), lengths.map((n) => cell(find(band, n))))),
        ),
      ),
    ),
    walk.el("p", { class: "caption" }, "Lower is better; small print compares with the untouched model. Read across: what a band is worth can depend on the length at which one asks."),
  );
};

const precisionFigure = ({ precision }) => {
  const kinds = walk.unique(precision.map((one) => `${one.dtype}|${one.angles}`)).map((key) => key.split("|"));
  const dtypes = walk.unique(precision.map((one) => one.dtype));
  const series = kinds.map(([dtype, angles]) => {
    const look = walk.looks[dtypes.indexOf(dtype) % walk.looks.length];
    const exact = angles === "exact";
    return {
      name: exact ? dtype : `${dtype}, angles too`,
      look: { ...look, dash: exact ? null : "6 4", symbol: exact ? look.symbol : "cross" },
      points: precision.filter((one) => one.dtype === dtype && one.angles === angles).map((one) => ({ x: one.position, y: one.error })).sort((a, b) => a.x - b.x),
    };
  });
  return walk.figure({
    title: "What a small number type costs",
    caption: "Error of a score, relative to ‖q‖‖k‖, by position. Solid: angles exact, only q and k rounded to the type; level lines mean that the error does not grow with the position. Dashed: the angles themselves computed in the type.",
    wide: true,
    table: {
      head: ["type", "angles", "position", "error"],
      rows: precision.map((one) => [one.dtype, one.angles, walk.number(one.position), one.error]),
    },
    draw: (host, width) =>
      walk.lines(host, {
        width,
        height: 310,
        label: "Error of scores by position for several number types",
        series,
        x: { label: "position", type: "point", tell: walk.number },
        y: { label: "relative error", log: true },
      }),
  });
};

const quantisedFigure = ({ quantised }) => {
  const bits = walk.unique(quantised.map((one) => one.bits)).sort((a, b) => b - a);
  const whens = walk.unique(quantised.map((one) => one.when));
  const errorOf = (bit, when) => quantised.find((one) => one.bits === bit && one.when === when)?.error;
  const [earlier, later] = ["before", "after"].map((word) => whens.find((when) => String(when).startsWith(word)));
  const times = (bit) => (errorOf(bit, earlier) > 0 ? errorOf(bit, later) / errorOf(bit, earlier) : 0) || null;
  const ratios = bits.filter(times).map((bit) => `${walk.number(times(bit))} at ${bit} bits`);
  return walk.figure({
    title: "Keys in few bits, before or after the turn",
    caption: `Relative squared error of keys that are stored in few bits, when they are quantised before they are turned and after. The further left, the better.${ratios.length ? ` The error after ÷ before is ${walk.join(ratios)} (bold, × …).` : ""}`,
    table: { head: ["bits", "when", "error"], rows: quantised.map((one) => [String(one.bits), one.when, one.error]) },
    key: walk.el("ul", { class: "key" }, whens.map((when, i) => walk.el("li", {}, walk.el("i", { class: `swatch ${i === 0 ? "dot-blue" : "dot-orange"}` }), when))),
    draw: (host, width) => {
      const band = 54;
      const left = 78;
      const [low, high] = walk.span(quantised.map((one) => one.error).filter((v) => v > 0));
      // Room for the numbers beside the marks.
      const texts = walk.textWidth(quantised.map((one) => walk.number(one.error)), 12) + 18;
      const x = vendor.scaleLinear([Math.log10(low), Math.log10(high)], [left + 14, width - texts]);
      const from = Math.ceil(x.invert(left));
      const to = Math.floor(x.invert(width - 14));
      const base = 10 + bits.length * band;
      const svg = walk.svg(host, width, base + 40, "Error of quantised keys by number of bits, before and after rotation");
      for (let n = from; n <= to; n += Math.max(1, Math.ceil((to - from) / (width > 480 ? 7 : 4)))) {
        svg.append("line").attr("class", "grid").attr("x1", x(n)).attr("x2", x(n)).attr("y1", 8).attr("y2", base);
        svg.append("text").attr("class", "tick").attr("x", x(n)).attr("y", base + 16).attr("text-anchor", "middle").text(walk.logText(10 ** n));
      }
      svg.append("text").attr("class", "axis-name").attr("x", (left + width) / 2).attr("y", base + 34).attr("text-anchor", "middle").text("relative squared error");
      bits.forEach((bit, i) => {
        const y = 10 + (i + 0.5) * band;
        const ratio = times(bit);
        svg.append("text").attr("class", "row-name").attr("x", left - 12).attr("y", y - (ratio ? 8 : 0)).attr("dy", "0.35em").attr("text-anchor", "end").text(`${bit} bits`);
        if (ratio) svg.append("text").attr("class", "value-strong").attr("x", left - 12).attr("y", y + 10).attr("dy", "0.35em").attr("text-anchor", "end").text(`× ${walk.number(ratio)}`);
        // One above the other, since the two are often close.
        whens.forEach((when, j) => {
          const error = errorOf(bit, when);
          if (!(error > 0)) return;
          const cx = x(Math.log10(error));
          const cy = y + (j - (whens.length - 1) / 2) * 18;
          if (j === 0) svg.append("circle").attr("class", "end-before").attr("cx", cx).attr("cy", cy).attr("r", 5.5);
          else svg.append("rect").attr("class", "end-after").attr("x", cx - 5).attr("y", cy - 5).attr("width", 10).attr("height", 10);
          svg.append("text").attr("class", "value-small").attr("x", cx + 11).attr("y", cy).attr("dy", "0.35em").text(walk.number(error));
        });
      });
    },
  });
};

const lengthsFigure = ({ lengths, native }) => {
  const names = walk.unique(lengths.map((one) => one.method));
  return walk.figure({
    title: "Longer than it was trained",
    caption: `Loss by place in a text, for the model as it is and under other frequencies, nothing tuned. It was trained on ${walk.number(native)} tokens; what a method costs at the left is what short text pays.`,
    wide: true,
    table: {
      head: ["method", "from", "to", "nats a token"],
      rows: lengths.map((one) => [one.method, walk.number(one.from), walk.number(one.to), one.loss]),
    },
    draw: (host, width) =>
      walk.lines(host, {
        width,
        height: 310,
        label: "Loss by place in a long text for several methods",
        series: names.map((name, i) => ({
          name,
          look: walk.looks[i % walk.looks.length],
          points: lengths.filter((one) => one.method === name).map((one) => ({ x: (one.from + one.to) / 2, y: one.loss })),
        })),
        x: { label: "place in the text", tell: walk.number },
        y: { label: "nats a token" },
      }),
  });
};

walk.figures.future = (drawing) =>
  [
    [drawing.wavelengths, wavelengthFigure],
    [drawing.usage, usageFigure],
    [drawing.bands, bandTable],
    [drawing.precision, precisionFigure],
    [drawing.quantised, quantisedFigure],
    [drawing.lengths, lengthsFigure],
  ]
    .filter(([data]) => data?.length)
    .map(([, make]) => make(drawing));
