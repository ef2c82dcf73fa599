// Step 4, in space: three bits walk the corners of a cube, three sinusoids a smooth curve in it.

walk.cube = ({ path, smooth_path: smooth }) => {
  // Corners are 0 or 1; the curve may run from −1 to 1. Both are drawn about the cube's middle.
  const centred = path.map((point) => point.map((v) => 2 * v - 1));
  const low = walk.span(smooth.flat())[0];
  const curve = low < -0.01 ? smooth : smooth.map((point) => point.map((v) => 2 * v - 1));
  let turn = 32;
  let tilt = 20;
  const said = walk.readout();

  const project = (scale, cx, cy) => ([x, y, z]) => {
    const a = (turn * Math.PI) / 180;
    const b = (tilt * Math.PI) / 180;
    const u = x * Math.cos(a) - y * Math.sin(a);
    const v = x * Math.sin(a) + y * Math.cos(a);
    const depth = v * Math.cos(b) - z * Math.sin(b);
    const near = 1 + 0.1 * -depth;
    return [cx + u * scale * near, cy - (z * Math.cos(b) + v * Math.sin(b)) * scale * near, depth];
  };

  const scene = (svg, size, cx, which) => {
    const at = project(size * 0.26, cx, size / 2);
    const corners = [0, 1, 2, 3, 4, 5, 6, 7].map((n) => [n & 1, (n >> 1) & 1, (n >> 2) & 1].map((v) => 2 * v - 1));
    corners.forEach((from, n) =>
      [1, 2, 4].forEach((bit) => {
        if (n & bit) return;
        const [x1, y1, d1] = at(from);
        const [x2, y2, d2] = at(corners[n | bit]);
        svg.append("line").attr("class", "edge").attr("x1", x1).attr("y1", y1).attr("x2", x2).attr("y2", y2).attr("opacity", d1 + d2 > 0.8 ? 0.5 : 1);
      }),
    );
    if (which === "bits") {
      for (let i = 0; i + 1 < centred.length; i += 1) {
        const [x1, y1] = at(centred[i]);
        const [x2, y2] = at(centred[i + 1]);
        const flips = centred[i].filter((v, k) => v !== centred[i + 1][k]).length;
        svg.append("line").attr("class", `hop hop-${flips}`).attr("x1", x1).attr("y1", y1).attr("x2", x2).attr("y2", y2);
      }
      centred.slice(0, 8).forEach((point, i) => {
        const [x, y] = at(point);
        const away = Math.hypot(x - cx, y - size / 2) || 1;
        svg.append("circle").attr("class", "corner").attr("cx", x).attr("cy", y).attr("r", 4.5);
        svg
          .append("text")
          .attr("class", "corner-name")
          .attr("x", x + (14 * (x - cx)) / away)
          .attr("y", y + (14 * (y - size / 2)) / away)
          .attr("dy", "0.35em")
          .attr("text-anchor", x < cx - 8 ? "end" : x > cx + 8 ? "start" : "middle")
          .call((text) => {
            text.append("tspan").text(i);
            text.append("tspan").attr("class", "bits-name").attr("dx", 4).text(i.toString(2).padStart(3, "0"));
          });
      });
    } else {
      const points = curve.map(at);
      svg.append("path").attr("class", "glide").attr("d", vendor.path().x((p) => p[0]).y((p) => p[1])(points));
      for (let i = 0; i <= 8; i += 1) {
        const [x, y] = points[Math.round((i * (points.length - 1)) / 8)];
        svg.append("circle").attr("class", "corner smooth").attr("cx", x).attr("cy", y).attr("r", 4.5);
      }
    }
  };

  const turner = walk.slider({
    label: "Turn the cube",
    min: -180,
    max: 180,
    value: turn,
    show: (v) => `${walk.number(v)}°`,
    change: (value) => {
      turn = value;
      figure.redraw();
    },
  });
  const figure = walk.figure({
    title: "The path through the cube",
    caption:
      "The lowest three bits as a place in space. Counting from 0 to 7 and back to 0 hops along an edge when one bit flips (thin), across a face when two do, through the middle when all three do (thick). Three slow sinusoids over the same positions visit the cube without a corner. Drag to turn it.",
    controls: [turner],
    draw: (host, width) => {
      const beside = width >= 560;
      const size = Math.min(beside ? width / 2 : width, beside ? 340 : 280);
      const grid = walk.el("div", { class: "panels", style: beside ? "grid-template-columns: 1fr 1fr" : "grid-template-columns: 1fr" });
      host.append(grid);
      for (const [which, heading, label] of [
        ["bits", "Three bits", "The path of three bits over the corners of a cube"],
        ["smooth", "Three sinusoids", "The path of three slow sinusoids, a smooth curve in the same cube"],
      ]) {
        const cell = walk.el("div", { class: "panel" }, walk.el("p", { class: "panel-title" }, heading));
        grid.append(cell);
        const svg = walk.svg(cell, size, size, label).attr("class", "own cube");
        scene(svg, size, size / 2, which);
      }
      host.append(said);
    },
  });

  let from = null;
  const drawing = figure.querySelector(".drawing");
  drawing.addEventListener("pointerdown", (event) => {
    if (!event.target.closest(".cube")) return;
    from = { x: event.clientX, y: event.clientY, turn, tilt };
    drawing.setPointerCapture(event.pointerId);
  });
  drawing.addEventListener("pointermove", (event) => {
    if (!from) return;
    turn = ((((from.turn + (event.clientX - from.x) * 0.6 + 180) % 360) + 360) % 360) - 180;
    tilt = Math.max(-60, Math.min(75, from.tilt + (event.clientY - from.y) * 0.4));
    turner.set(Math.round(turn));
    figure.redraw();
  });
  for (const end of ["pointerup", "pointercancel"]) {
    drawing.addEventListener(end, () => {
      from = null;
    });
  }
  return figure;
};
