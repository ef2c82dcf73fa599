// Step 7: one pair that turns, computed here; then attention before and after, and the error of
// scores when everything is shifted.

const FREQUENCIES = Array.from({ length: 32 }, (_, c) => 10000 ** (-c / 32));

walk.turningPair = (frequencies = FREQUENCIES) => {
  // A query and a key in one plane, before any turn: lengths and angles chosen to be seen well.
  const q = { size: 1, angle: 0.35 };
  const k = { size: 0.82, angle: 1.15 };
  let base = 6;
  let apart = 4;
  let pair = Math.min(4, frequencies.length - 1);
  const theta = () => frequencies[pair];
  const score = (m, n) => q.size * k.size * Math.cos(q.angle + m * theta() - k.angle - n * theta());
  const wave = () => (theta() > 0 ? `one turn in ${walk.number((2 * Math.PI) / theta())} positions` : "never turns");
  const said = walk.readout();
  const redraw = () => figure.redraw();
  // A stroke for the key: an arrow, or a dashed ray with a ring.
  const stroke = (kind, ghost) =>
    walk.mark(ghost ? "M0 8H19M19 8a4 4 0 1 0 8 0a4 4 0 1 0 -8 0" : "M0 8H26M20 3l6 5-6 5", { viewBox: "0 0 28 16", width: 28, class: `dial-key ${kind}${ghost ? " ghost" : ""}` });

  const dial = (host, size) => {
    const svg = walk.svg(host, size, size, `A query at position ${base + apart} and a key at position ${base}, turned as arrows on a circle`);
    const c = size / 2;
    const r = c - 38;
    const tip = (length, angle) => [c + r * length * Math.cos(angle), c - r * length * Math.sin(angle)];
    svg.append("circle").attr("class", "dial").attr("cx", c).attr("cy", c).attr("r", r);
    svg.append("line").attr("class", "grid").attr("x1", c - r).attr("x2", c + r).attr("y1", c).attr("y2", c);
    svg.append("line").attr("class", "grid").attr("y1", c - r).attr("y2", c + r).attr("x1", c).attr("x2", c);
    const qa = q.angle + (base + apart) * theta();
    const ka = k.angle + base * theta();
    // The smaller angle between the two, which alone decides the dot product.
    let between = (qa - ka) % (2 * Math.PI);
    if (between > Math.PI) between -= 2 * Math.PI;
    if (between < -Math.PI) between += 2 * Math.PI;
    const arc = Array.from({ length: 41 }, (_, i) => tip(0.34, ka + (between * i) / 40));
    svg.append("path").attr("class", "arc").attr("d", `M${c},${c}L${arc.map((p) => p.join(",")).join("L")}Z`);
    const [ax, ay] = tip(0.46, ka + between / 2);
    const arrow = (kind, length, angle, name) => {
      const [x, y] = tip(length, angle);
      svg.append("line").attr("class", `arrow ${kind}`).attr("x1", c).attr("y1", c).attr("x2", x).attr("y2", y);
      const wing = (side) => [x - 12 * Math.cos(angle + side), y + 12 * Math.sin(angle + side)];
      svg.append("path").attr("class", `head ${kind}`).attr("d", `M${wing(0.42).join(",")}L${x},${y}L${wing(-0.42).join(",")}`);
      const out = r * length + (length === 1 ? 25 : 15);
      const [nx, ny] = [c + out * Math.cos(angle), c - out * Math.sin(angle)];
      if (name) svg.append("text").attr("class", `arrow-name ${kind}`).attr("x", nx).attr("y", ny).attr("dy", "0.35em").attr("text-anchor", "middle").text(name);
    };
    // Where both began: a ray to beyond the rim that ends in a ring, seen even under the arrow.
    const start = (kind, angle) => {
      const [x, y] = [c + (r + 8) * Math.cos(angle), c - (r + 8) * Math.sin(angle)];
      svg.append("line").attr("class", `arrow ghost ${kind}`).attr("x1", c).attr("y1", c).attr("x2", x).attr("y2", y);
      svg.append("circle").attr("class", `start ${kind}`).attr("cx", x).attr("cy", y).attr("r", 4.5);
    };
    start("q", q.angle);
    start("k", k.angle);
    arrow("k", k.size, ka, "k");
    arrow("q", q.size, qa, "q");
    svg.append("text").attr("class", "angle-name").attr("x", ax).attr("y", ay).attr("dy", "0.35em").attr("text-anchor", "middle").text(`${walk.number(Math.round((Math.abs(between) * 180) / Math.PI))}°`);
  };

  const strip = (host, { width, label, name, from, to, value, now, kind, axis }) => {
    const height = 124;
    const svg = walk.svg(host, width, height, label);
    const left = 30;
    const x = vendor.scaleLinear([from, to], [left, width - 12]);
    const y = vendor.scaleLinear([-1, 1], [height - 36, 28]);
    svg.append("line").attr("class", "grid").attr("x1", left).attr("x2", width - 12).attr("y1", y(0)).attr("y2", y(0));
    for (const tick of [-1, 0, 1]) svg.append("text").attr("class", "tick").attr("x", left - 6).attr("y", y(tick)).attr("dy", "0.35em").attr("text-anchor", "end").text(walk.tick(tick));
    for (const tick of x.ticks(5)) svg.append("text").attr("class", "tick").attr("x", x(tick)).attr("y", height - 17).attr("text-anchor", "middle").text(walk.number(tick));
    const count = Math.max(120, width);
    const points = Array.from({ length: count + 1 }, (_, i) => from + ((to - from) * i) / count).map((t) => [x(t), y(value(t))]);
    svg.append("path").attr("class", `curve ${kind}`).attr("d", vendor.path()(points));
    svg.append("line").attr("class", "plumb").attr("x1", x(now)).attr("x2", x(now)).attr("y1", y(value(now))).attr("y2", y(-1));
    svg.append("circle").attr("class", `bead chosen ${kind}`).attr("cx", x(now)).attr("cy", y(value(now))).attr("r", 5.5);
    svg.append("text").attr("class", "panel-name").attr("x", 0).attr("y", 10).text(name);
    svg.append("text").attr("class", "axis-name").attr("x", (left + width - 12) / 2).attr("y", height - 3).attr("text-anchor", "middle").text(axis);
  };

  const figure = walk.figure({
    title: "One pair of components, turning",
    caption:
      "The query q is turned by its position m times θ, the key k by its position n times θ; the dashed rays that end in a ring show where the two pointed before the turn, at position 0. Move both: the arrows turn together, the angle between them stays, and so does the dot product. Change the distance, and it follows a cosine. Pairs further down the list turn more slowly.",
    wide: true,
    key: walk.el(
      "ul",
      { class: "key" },
      ["q", "k"].map((kind) => walk.el("li", {}, stroke(kind, false), walk.el("span", {}, `${kind}, turned`))),
      walk.el("li", {}, stroke("q", true), stroke("k", true), walk.el("span", {}, "where they began, at position 0")),
    ),
    controls: [
      walk.slider({ label: "Position n (moves both)", min: 0, max: 64, value: base, change: (v) => { base = v; redraw(); } }),
      walk.slider({ label: "Distance m − n", min: -32, max: 32, value: apart, show: walk.number, change: (v) => { apart = v; redraw(); } }),
      walk.slider({ label: "Frequency (pair)", min: 0, max: frequencies.length - 1, value: pair, change: (v) => { pair = v; redraw(); } }),
    ],
    draw: (host, width) => {
      const beside = width >= 620;
      const size = Math.min(beside ? width * 0.46 : width, 330);
      const grid = walk.el("div", { class: "panels turning", style: beside ? `grid-template-columns: ${size}px 1fr; column-gap: 36px` : "grid-template-columns: 1fr" });
      const left = walk.el("div", { class: "panel" });
      const right = walk.el("div", { class: "panel" });
      grid.append(left, right);
      host.append(grid);
      dial(left, size);
      const now = score(base + apart, base);
      right.append(
        walk.el(
          "p",
          { class: "score" },
          walk.el("span", { class: "score-name" }, "q", walk.el("sub", {}, base + apart), " · k", walk.el("sub", {}, base)),
          walk.el("span", { class: "score-value", "data-score": "" }, walk.signed(now)),
          walk.el("span", { class: "score-note" }, `θ = ${walk.number(theta())}: ${wave()}`),
        ),
      );
      const each = beside ? width - size - 36 : width;
      strip(right, { width: each, label: "Dot product when both positions move", name: "Move both: the score stays", from: 0, to: 64, value: (t) => score(t + apart, t), now: base, kind: "level", axis: "position n" });
      strip(right, { width: each, label: "Dot product by distance", name: "Change the distance: it turns", from: -32, to: 32, value: (t) => score(t, 0), now: apart, kind: "swing", axis: "distance m − n" });
      said.textContent = `q at position ${walk.number(base + apart)}, k at position ${base}, pair ${pair}: dot product ${walk.signed(now)}.`;
      said.classList.add("unseen");
      host.append(said);
    },
  });
  return figure;
};

walk.figures.rotary = ({ frequencies, tokens: named, before, after, shift }, step, payload) => {
  const tokens = named ?? payload.tokens;
  const figures = [walk.turningPair(frequencies?.length ? frequencies : undefined)];
  if (before && after) {
    const first = payload.steps.find((one) => one.name === "problem")?.drawing;
    const same = tokens.map((token, i) => tokens.some((other, j) => j !== i && other === token));
    const marked = first?.equal ? walk.equalRows(first.equal) : tokens.map((_, i) => i).filter((i) => same[i]);
    const top = walk.span([...before.flat(), ...after.flat()])[1];
    const moved = walk.span(before.flatMap((row, r) => row.map((value, c) => Math.abs(value - after[r][c]))))[1];
    const said = walk.readout();
    const rest = "Point at a cell to compare its weight before and after.";
    said.textContent = rest;
    figures.push(
      walk.figure({
        title: "Attention before and after",
        caption: `The same queries and keys of one head, left as they are and turned by their positions. The largest change of a weight is ${walk.number(moved, 2)}.${marked.length ? " Marked: the rows of the equal tokens, one and the same in the first map; compare them in the second." : ""}`,
        wide: true,
        key: walk.ramp("0", `weight ${walk.number(top, 2)}`),
        table: tokens.length <= 16 ? walk.tokenTable(tokens, after) : null,
        draw: (host, width) => {
          const say = (r, c) => {
            said.textContent = r === null ? rest : `${walk.tokenWithPlace(tokens, r)} gives ${walk.tokenWithPlace(tokens, c)} ${walk.number(before[r][c])} before and ${walk.number(after[r][c])} after.`;
          };
          walk.tokenMaps(
            host,
            width,
            [["Without position", before], ["With q and k turned", after]].map(([heading, matrix]) => ({
              heading,
              matrix,
              say,
              label: `Attention weights, ${heading.toLowerCase()}`,
            })),
            { tokens, domain: [0, top], mark: marked, values: true, smallest: 200 },
          );
          host.append(said);
        },
      }),
    );
  }
  if (shift?.length) {
    const worst = (key) => walk.number(walk.span(shift.map((d) => d[key]))[1], 2);
    figures.push(
      walk.figure({
        title: "Moving the whole text",
        caption: `How much a score changes when both of its positions move by t, which in theory is nothing. With exact phases the largest error is ${worst("exact")}, however far the shift; with positions rounded to bfloat16 it reaches ${worst("bf16")}.`,
        table: { head: ["shift t", "exact phases", "bfloat16 positions"], rows: shift.map((d) => [walk.number(d.shift), d.exact, d.bf16]) },
        wide: true,
        draw: (host, width) =>
          walk.lines(host, {
            width,
            height: 270,
            label: "Change of scores under a shift of all positions, exact phases against bfloat16 positions",
            series: [
              { name: "bfloat16 positions", points: shift.map((d) => ({ x: d.shift, y: d.bf16 })), look: walk.looks[1] },
              { name: "exact phases", points: shift.map((d) => ({ x: d.shift, y: d.exact })), look: walk.looks[0] },
            ],
            x: { label: "shift t, positions", type: "point", name: "shift", tell: walk.number },
            y: { label: "error of the score", log: true },
          }),
      }),
    );
  }
  return figures;
};
