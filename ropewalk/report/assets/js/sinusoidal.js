// Step 5: bits and sinusoids side by side, then what the code says about distance.

// Bits stretched over many lanes, one copy each: position 1 has one bit, as often as it is copied.
walk.distinctBits = (bits) => {
  const copies = Math.max(1, bits[1].filter((bit) => bit > 0).length);
  return bits.map((row) => row.filter((_, i) => i % copies === 0));
};

const sideBySideFigure = (drawing) => {
  const bits = walk.distinctBits(walk.lowFirst(drawing.bits));
  const { codes } = drawing;
  const count = Math.min(bits.length, codes.length);
  const apart = (rows, p) => Math.sqrt(rows[p].reduce((sum, x, i) => sum + (x - rows[p + 1][i]) ** 2, 0));
  let chosen = Math.min(31, count - 2);
  const said = walk.readout();
  const sideBySide = walk.figure({
    title: "The same ladder of speeds, with and without corners",
    caption:
      "Each row is a position, each column one component of the code. In both, columns change at speeds that fall by a fixed factor; the bits switch, the sinusoids glide. The fastest are at the left.",
    wide: true,
    controls: [
      walk.slider({
        label: "Position",
        min: 0,
        max: count - 2,
        value: chosen,
        change: (value) => {
          chosen = value;
          sideBySide.redraw();
        },
      }),
    ],
    key: walk.ramp("0, or −1", "1"),
    draw: (host, width) => {
      const left = 34;
      const gap = 26;
      const across = Math.min(width - left - 4, 760);
      const small = Math.min(150, across * 0.27);
      const large = across - small - gap;
      const tall = Math.min(384, Math.max(250, large * 0.8));
      const top = 22;
      const svg = walk.svg(host, left + across + 4, top + tall + 26, `Codes of the first ${count} positions as bits and as sinusoids`);
      const one = walk.cells(svg, { matrix: bits, x: left, y: top, width: small, height: tall });
      const two = walk.cells(svg, { matrix: codes, x: left + small + gap, y: top, width: large, height: tall, domain: [-1, 1] });
      svg.append("text").attr("class", "panel-name").attr("x", left).attr("y", 12).text("Bits");
      svg.append("text").attr("class", "panel-name").attr("x", left + small + gap).attr("y", 12).text("Sinusoids");
      for (let p = 0; p < count; p += 16) if (Math.abs(p - chosen) > 3) svg.append("text").attr("class", "tick").attr("x", left - 7).attr("y", top + (p + 0.5) * one.h).attr("dy", "0.35em").attr("text-anchor", "end").text(p);
      svg.append("text").attr("class", "axis-name").attr("x", left + across / 2).attr("y", top + tall + 19).attr("text-anchor", "middle").text("components of the code");
      for (const [map, x, w] of [[one, left, small], [two, left + small + gap, large]]) {
        walk.outline(svg, { x, y: top + chosen * map.h, width: w, height: map.h }, 2);
      }
      svg.append("text").attr("class", "tick equal").attr("x", left - 7).attr("y", top + (chosen + 0.5) * one.h).attr("dy", "0.35em").attr("text-anchor", "end").text(chosen);
      said.textContent = `From ${chosen} to ${chosen + 1} the ${bits[0].length} bits move by ${walk.number(apart(bits, chosen))}, the ${codes[0].length} components of the sinusoids by ${walk.number(apart(codes, chosen))}.`;
      host.append(said);
    },
  });

  return sideBySide;
};

walk.figures.sinusoidal = (drawing) => {
  const { similarity, nearest, wavelengths } = drawing;
  const figures = drawing.bits && drawing.codes ? [sideBySideFigure(drawing)] : [];
  if (similarity?.length) {
    const rises = similarity.filter((one, i) => i > 0 && one.dot > similarity[i - 1].dot).length;
    figures.push(
      walk.figure({
        title: "Likeness by distance",
        caption: `Dot product of two codes against the distance between their positions, the same wherever the two stand. ${
          rises ? `It falls at first, but at ${rises} of the ${similarity.length - 1} steps shown it rises: more alike does not always mean nearer.` : "It falls at every step shown."
        }`,
        draw: (host, width) =>
          walk.lines(host, {
            width,
            height: 230,
            label: "Dot product of two sinusoidal codes by offset",
            series: [{ name: "dot product", points: similarity.map((d) => ({ x: d.offset, y: d.dot })), look: walk.looks[0], dots: false }],
            x: { label: "distance between positions", name: "distance" },
            y: { label: "dot product" },
            rules: walk.span(similarity.map((d) => d.dot))[0] < 0 ? [{ y: 0 }] : [],
          }),
      }),
    );
  }
  if (nearest?.length) {
    const [worst, best] = [nearest[0], nearest[nearest.length - 1]];
    figures.push(
      walk.figure({
        title: "How close any two codes come",
        caption: `Distance from a code to its nearest neighbour among all positions tried. At D = ${worst.dim} two positions come within ${walk.number(worst.distance)} of each other; at D = ${best.dim} none comes closer than ${walk.number(best.distance)}.`,
        table: { head: ["D", "nearest distance"], rows: nearest.map((d) => [String(d.dim), d.distance]) },
        draw: (host, width) =>
          walk.lines(host, {
            width,
            height: 230,
            label: "Distance to the nearest other code by dimension",
            series: [{ name: "nearest", points: nearest.map((d) => ({ x: d.dim, y: d.distance })), look: walk.looks[0] }],
            x: { label: "dimension D", type: "point", name: "D", format: String },
            y: { label: "nearest distance", log: true, margin: 54 },
          }),
      }),
    );
  }
  if (wavelengths?.length) {
    const longest = walk.span(wavelengths)[1];
    figures.push(
      walk.figure({
        title: "Wavelengths, from one turn to the next",
        caption: `Positions for one full turn of each pair, on a log scale: a geometric ladder whose longest rung is ${walk.number(longest, 5)}. This is not a limit on the context: two positions share a code only when all pairs come round together.`,
        draw: (host, width) => {
          const svg = walk.svg(host, width, 78, `Wavelengths of ${wavelengths.length} pairs on a log scale`);
          const [low] = walk.span(wavelengths);
          const log = (v) => Math.log10(v);
          const x = vendor.scaleLinear([Math.floor(log(low)), log(longest) + 0.12], [8, width - 10]);
          svg.append("line").attr("class", "rule").attr("x1", x(x.domain()[0])).attr("x2", width - 6).attr("y1", 40).attr("y2", 40);
          for (let n = Math.floor(log(low)); n <= log(longest); n += 1) {
            svg.append("line").attr("class", "rule").attr("x1", x(n)).attr("x2", x(n)).attr("y1", 40).attr("y2", 46);
            svg.append("text").attr("class", "tick").attr("x", x(n)).attr("y", 59).attr("text-anchor", n === Math.floor(log(low)) ? "start" : "middle").text(walk.tick(10 ** n));
          }
          wavelengths.forEach((w) => svg.append("line").attr("class", "wave").attr("x1", x(log(w))).attr("x2", x(log(w))).attr("y1", 18).attr("y2", 40));
          svg.append("text").attr("class", "value-strong").attr("x", x(log(longest)) + 4).attr("y", 12).attr("text-anchor", "end").text(walk.number(longest, 5));
          svg.append("text").attr("class", "axis-name").attr("x", width / 2).attr("y", 75).attr("text-anchor", "middle").text("positions");
        },
      }),
    );
  }
  return figures;
};
