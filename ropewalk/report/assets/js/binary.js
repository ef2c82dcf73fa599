// Step 4: the bits of the first positions, and the jump from each position to the next.

// Bits as they are read: highest first, whichever end the rows begin with.
walk.highFirst = (bits) => (bits.length > 1 && bits[1][0] === 1 && bits[1][bits[1].length - 1] === 0 ? bits.map((row) => [...row].reverse()) : bits);

walk.lowFirst = (bits) => walk.highFirst(bits).map((row) => [...row].reverse());

const bitsFigure = (drawing) => {
  const bits = walk.highFirst(drawing.bits);
  const wide = bits[0].length;
  let chosen = Math.min(15, bits.length - 2);
  const said = walk.el("p", { class: "readout bits-readout", "aria-live": "polite" });
  const speak = () => {
    const a = bits[chosen];
    const b = bits[chosen + 1];
    const flips = a.filter((bit, k) => bit !== b[k]).length;
    const digits = (row, other) =>
      walk.el("span", { class: "digits" }, row.map((bit, k) => (bit === other[k] ? bit : walk.el("b", {}, bit))));
    said.replaceChildren(
      `${chosen} `, digits(a, b), ` → ${chosen + 1} `, digits(b, a), ` · ${flips} ${flips === 1 ? "bit flips" : "bits flip"}`,
    );
  };
  const table = walk.figure({
    title: "Positions in bits",
    caption: `Each column is a position, from 0 to ${bits.length - 1}; the top row is the highest bit. Each row is a square wave with twice the period of the row below. Moving one step to the right changes one cell, or many.`,
    wide: true,
    controls: [
      walk.slider({
        label: "Step from position",
        min: 0,
        max: bits.length - 2,
        value: chosen,
        change: (value) => {
          chosen = value;
          table.redraw();
        },
      }),
    ],
    key: walk.el("ul", { class: "key" }, walk.el("li", {}, walk.el("i", { class: "swatch zero" }), "0"), walk.el("li", {}, walk.el("i", { class: "swatch one" }), "1")),
    draw: (host, width) => {
      const left = 40;
      const side = Math.min(26, (width - left - 4) / bits.length);
      const tall = Math.max(side, 15);
      const svg = walk.svg(host, left + side * bits.length + 4, tall * wide + 44, `Bits of the positions 0 to ${bits.length - 1}`);
      const matrix = Array.from({ length: wide }, (_, k) => bits.map((row) => row[k]));
      const map = walk.cells(svg, { matrix, x: left, y: 6, width: side * bits.length, height: tall * wide, gap: side > 9 ? 1.5 : 0.6 });
      for (let k = 0; k < wide; k += 1) {
        svg.append("text").attr("class", "tick").attr("x", left - 8).attr("y", 6 + (k + 0.5) * map.h).attr("dy", "0.35em").attr("text-anchor", "end").text(walk.number(2 ** (wide - 1 - k)));
      }
      for (let p = 0; p < bits.length; p += bits.length > 16 && side < 20 ? 8 : 4) {
        svg.append("text").attr("class", "tick").attr("x", left + (p + 0.5) * map.w).attr("y", tall * wide + 22).attr("text-anchor", "middle").text(p);
      }
      svg.append("text").attr("class", "axis-name").attr("x", left + (side * bits.length) / 2).attr("y", tall * wide + 39).attr("text-anchor", "middle").text("position");
      const first = map.box(0, chosen);
      walk.outline(svg, { ...first, width: map.w * 2 - 1, height: map.h * wide - 1 }, 1.5);
      speak();
      host.append(said);
    },
  });

  return table;
};

// More bars than these run together.
const BARS = 64;

const jumpFigure = ({ jump, smooth_jump: smooth, bits }) => {
  const shown = jump.slice(0, BARS);
  const wide = bits ? ` of ${bits[0].length} lanes` : "";
  const [least, most] = walk.span(jump);
  const [slow, fast] = walk.span(smooth);
  return walk.figure({
    title: "How far one step moves the code",
    caption: `Distance between the code of p and the code of p + 1, both${wide}${jump.length > BARS ? `; drawn are the first ${BARS} of ${jump.length} steps` : ""}. Over all of them the bits jump by ${walk.number(least)} to ${walk.number(most)}, with a spike wherever a carry runs through; the sinusoid moves by ${
      fast - slow < 1e-3 * fast ? `${walk.number(fast)} at every step` : `${walk.number(slow)} to ${walk.number(fast)}`
    }.`,
    wide: true,
    key: walk.el("ul", { class: "key" }, walk.el("li", {}, walk.el("i", { class: "swatch jumpy" }), "bits"), walk.el("li", {}, walk.el("i", { class: "swatch smooth" }), "sinusoid")),
    draw: (host, width) => {
      const chart = vendor.plot({
        width,
        height: 210,
        marginLeft: 36,
        marginRight: 12,
        marginTop: 24,
        marginBottom: 42,
        style: walk.chartStyle,
        ariaLabel: "Size of the jump between neighbouring codes, for bits and for sinusoids",
        x: { domain: [-0.5, shown.length - 0.5] },
        y: { zero: true, nice: true },
        marks: [
          ...walk.axisY(4),
          walk.axisX("position p", { ticks: width > 500 ? 8 : 5 }),
          vendor.ruleX(shown, { x: (_, i) => i, y1: 0, y2: (d) => d, stroke: "var(--orange)", strokeWidth: Math.max(1, (width / shown.length) * 0.55) }),
          vendor.line(smooth.slice(0, BARS), { x: (_, i) => i, y: (d) => d, stroke: "var(--blue)", strokeWidth: 2.5 }),
        ],
      });
      chart.setAttribute("role", "img");
      walk.axisName(chart, "distance between neighbours");
      host.append(chart);
    },
  });
};

walk.figures.binary = (drawing) => [
  drawing.bits ? bitsFigure(drawing) : null,
  drawing.jump && drawing.smooth_jump ? jumpFigure(drawing) : null,
  drawing.path && drawing.smooth_path ? walk.cube(drawing) : null,
];
