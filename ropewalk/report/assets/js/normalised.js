// Step 3: the codes of the first positions at several lengths, one under the other.

walk.figures.normalised = ({ lengths, codes }) => {
  const places = codes[0].map((one) => one.position);
  let chosen = places[Math.floor(places.length / 2)];
  const said = walk.readout();
  const figure = walk.figure({
    title: "One position, many codes",
    caption:
      "Each line is a text of another length, with its first positions as dots from 0 to 1. Follow the linked dots downwards: the same position slides towards 0 as the text grows, and neighbours run together.",
    controls: [
      walk.slider({
        label: "Position",
        min: places[0],
        max: places[places.length - 1],
        value: chosen,
        change: (value) => {
          chosen = value;
          figure.redraw();
        },
      }),
    ],
    table: {
      head: ["Length", ...places.map((p) => `p = ${p}`)],
      rows: lengths.map((length, i) => [walk.number(length), ...codes[i].map((one) => one.code)]),
    },
    draw: (host, width) => {
      const left = walk.textWidth(lengths.map((length) => `${width > 480 ? "L = " : ""}${walk.number(length)}`), 13.5) + 16;
      const step = 66;
      const top = 30;
      const svg = walk.svg(host, width, top + step * (lengths.length - 1) + 44, `Normalised codes of position ${chosen} at ${lengths.length} lengths`);
      const x = vendor.scaleLinear([0, 1], [left, width - 14]);
      const row = (i) => top + i * step;
      const link = lengths.map((_, i) => codes[i].find((one) => one.position === chosen)).map((one, i) => [x(one.code), row(i)]);
      svg.append("path").attr("class", "thread").attr("d", vendor.path()(link));
      lengths.forEach((length, i) => {
        const y = row(i);
        svg.append("text").attr("class", "row-name").attr("x", left - 14).attr("y", y).attr("dy", "0.35em").attr("text-anchor", "end").text(width > 480 ? `L = ${walk.number(length)}` : walk.number(length));
        svg.append("line").attr("class", "rule").attr("x1", x(0)).attr("x2", x(1)).attr("y1", y).attr("y2", y);
        for (const end of [0, 1]) svg.append("line").attr("class", "rule").attr("x1", x(end)).attr("x2", x(end)).attr("y1", y - 5).attr("y2", y + 5);
        for (const one of codes[i]) {
          if (one.position !== chosen) svg.append("circle").attr("class", "bead").attr("cx", x(one.code)).attr("cy", y).attr("r", 3.5);
        }
        const [cx] = link[i];
        svg.append("circle").attr("class", "bead chosen").attr("cx", cx).attr("cy", y).attr("r", 6);
        const far = cx > width - 90;
        svg
          .append("text")
          .attr("class", "value-strong")
          .attr("x", far ? Math.min(cx + 6, width - 4) : Math.max(cx - 6, left - 6))
          .attr("y", y - 12)
          .attr("text-anchor", far ? "end" : "start")
          .text(walk.number(codes[i].find((one) => one.position === chosen).code));
      });
      const base = row(lengths.length - 1);
      for (const tick of [0, 0.25, 0.5, 0.75, 1]) {
        svg.append("text").attr("class", "tick").attr("x", x(tick)).attr("y", base + 24).attr("text-anchor", "middle").text(walk.tick(tick));
      }
      svg.append("text").attr("class", "axis-name").attr("x", x(0.5)).attr("y", base + 40).attr("text-anchor", "middle").text("code");
      const values = lengths.map((length, i) => `${walk.number(codes[i].find((one) => one.position === chosen).code)} at length ${walk.number(length)}`);
      said.textContent = `Position ${chosen} is ${walk.join(values)}.`;
      host.append(said);
    },
  });
  return [figure];
};
