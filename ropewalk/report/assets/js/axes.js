// Step 8: likeness of the middle of a grid with every other place, for shared and own frequencies.

walk.figures.axes = ({ shared, axial, collision, per_axis: errors }, step) => {
  const size = shared.length;
  const middle = (size - 1) / 2;
  let [px, py] = [Math.round(size * 0.27), Math.round(size * 0.7)];
  const said = walk.readout();
  const [low, high] = walk.span([...shared.flat(), ...axial.flat()]);
  // Two hues only where a good part of the values is negative.
  const scheme = low < -0.35 * high ? "diverging" : "sequential";
  const top = Math.max(Math.abs(low), high);
  const domain = scheme === "diverging" ? [-top, top] : [Math.min(0, low), high];
  const redraw = () => maps.redraw();
  const a = collision?.a;
  const b = collision?.b;
  const at = (matrix, [x, y]) => walk.signed(matrix[y][x], 3);
  const elsewhere = (matrix) => walk.span(matrix.flatMap((row, y) => row.filter((_, x) => x !== middle || y !== middle)))[1];
  const maps = walk.figure({
    title: "What the middle of an image looks like from everywhere",
    caption: [
      `Likeness of the place in the middle with every other place of a ${size} × ${size} grid around it. With one frequency for both axes only x + y counts: whole diagonals look alike. With frequencies for each axis only the middle itself is fully alike`,
      ` (elsewhere likeness reaches ${walk.signed(elsewhere(shared), 3)} when shared, ${walk.signed(elsewhere(axial), 3)} with axes of their own). `,
      a && b
        ? `A and B are the places (${a.join(", ")}) and (${b.join(", ")}): ${at(shared, a)} and ${at(shared, b)} when shared, ${at(axial, a)} and ${at(axial, b)} with axes of their own.`
        : "",
    ],
    wide: true,
    controls: [
      walk.slider({ label: "Place x", min: 0, max: size - 1, value: px, change: (v) => { px = v; redraw(); } }),
      walk.slider({ label: "Place y", min: 0, max: size - 1, value: py, change: (v) => { py = v; redraw(); } }),
    ],
    key: walk.ramp(walk.signed(domain[0], 1), walk.signed(domain[1], 1), scheme),
    draw: (host, width) => {
      const grid = walk.panels(host, width, 2, 250, 28);
      const left = 24;
      for (const [heading, matrix] of [["One frequency for both", shared], ["Frequencies for each axis", axial]]) {
        const side = Math.min(grid.each - left - 4, 380);
        const cell = grid.cell(heading);
        const svg = walk.svg(cell, left + side + 4, side + 40, `Likeness of the middle of a grid with every place, ${heading.toLowerCase()}`);
        const map = walk.cells(svg, { matrix, x: left, y: 4, width: side, height: side, domain, scheme });
        for (const tick of [0, middle, size - 1]) {
          svg.append("text").attr("class", "tick").attr("x", left + (tick + 0.5) * map.w).attr("y", side + 19).attr("text-anchor", "middle").text(tick);
          svg.append("text").attr("class", "tick").attr("x", left - 5).attr("y", 4 + (tick + 0.5) * map.h).attr("dy", "0.35em").attr("text-anchor", "end").text(tick);
        }
        svg.append("text").attr("class", "axis-name").attr("x", left + side / 2 + map.w * 5).attr("y", side + 19).attr("text-anchor", "middle").text("x");
        svg.append("text").attr("class", "axis-name").attr("x", left - 5).attr("y", 4 + side / 2 - map.h * 4).attr("text-anchor", "end").text("y");
        const centre = map.box(middle, middle);
        svg.append("path").attr("class", "cross").attr("d", `M${centre.x + map.w / 2 - 6},${centre.y + map.h / 2}h12m-6,-6v12`);
        for (const [name, place, dx, dy] of [["A", a, -1, -1], ["B", b, 1, 1]]) {
          if (!place) continue;
          const box = map.box(place[1], place[0]);
          const [cx, cy] = [box.x + map.w / 2, box.y + map.h / 2];
          svg.append("circle").attr("class", "halo").attr("cx", cx).attr("cy", cy).attr("r", map.w * 0.78);
          svg.append("circle").attr("class", "ring").attr("cx", cx).attr("cy", cy).attr("r", map.w * 0.78);
          // Away from the other place, so that the two names stand apart.
          const other = name === "A" ? b : a;
          const away = other ? [Math.sign(place[0] - other[0]) || dx, Math.sign(place[1] - other[1]) || dy] : [dx, dy];
          svg.append("text").attr("class", "ring-name").attr("x", cx + away[0] * map.w * 1.7).attr("y", cy + away[1] * map.h * 1.7).attr("dy", "0.35em").attr("text-anchor", "middle").text(name);
        }
        walk.outline(svg, map.box(py, px), 1);
        cell.append(walk.el("p", { class: "readout" }, `(${px}, ${py}): ${walk.signed(matrix[py][px], 3)}`));
      }
      said.textContent = `Place (${px}, ${py}): likeness ${walk.signed(shared[py][px], 3)} with shared frequencies, ${walk.signed(axial[py][px], 3)} with frequencies for each axis.`;
      said.classList.add("unseen");
      host.append(said);
    },
  });
  const figures = [maps];
  // Not where the numbers of the step say the same.
  const listed = Object.values(step.figures ?? {});
  const within = (one) => listed.some((value) => Math.abs(value - one.error) <= 1e-3 * Math.abs(one.error));
  if (errors?.length && !errors.every(within)) {
    figures.push(
      walk.el(
        "div",
        { class: "small-table" },
        walk.el("p", { class: "figure-title" }, "Scores under a shift along each axis"),
        walk.el(
          "table",
          {},
          walk.el("thead", {}, walk.el("tr", {}, walk.el("th", { scope: "col" }, "Axis"), walk.el("th", { scope: "col" }, "Largest relative error"))),
          walk.el("tbody", {}, errors.map((one) => walk.el("tr", {}, walk.el("th", { scope: "row" }, one.axis), walk.el("td", {}, walk.numberNode(one.error))))),
        ),
      ),
    );
  }
  return figures;
};
