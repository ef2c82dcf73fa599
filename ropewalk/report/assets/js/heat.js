// Heat maps. Colours are mixed by CSS from the theme's own, so light and dark need no redrawing.
// One path a shade keeps the document small: a 64 × 64 map is some forty elements.

const SHADES = 40;

const edge = (value) => value.toFixed(2);

const mixed = (from, to, share) => `color-mix(in oklab, var(${to}) ${(100 * share).toFixed(1)}%, var(${from}))`;

// Share 0…1 along a ramp of three colours (sequential), or −1…1 around the middle (diverging).
walk.shade = (share, scheme) => {
  if (scheme === "diverging") return share < 0 ? mixed("--map-zero", "--map-less", -share) : mixed("--map-zero", "--map-more", share);
  return share < 0.5 ? mixed("--map-0", "--map-1", 2 * share) : mixed("--map-1", "--map-2", 2 * share - 1);
};

// cells(svg, {matrix, x, y, width, height, domain, scheme, gap}) draws matrix[row][column] into a
// box and gives back the places: box(row, column) and at(event) → [row, column] or null.
walk.cells = (svg, { matrix, x = 0, y = 0, width, height, domain = [0, 1], scheme = "sequential", gap = 0 }) => {
  const rows = matrix.length;
  const columns = matrix[0].length;
  const w = width / columns;
  const h = height / rows;
  const [low, high] = domain;
  const shapes = new Map();
  const empty = [];
  for (let r = 0; r < rows; r += 1) {
    for (let c = 0; c < columns; c += 1) {
      const value = matrix[r][c];
      // Neighbours share the very same edges, so no seam shows between them.
      const [left, top] = [edge(x + c * w), edge(y + r * h)];
      const d = `M${left},${top}H${edge(x + (c + 1) * w - gap)}V${edge(y + (r + 1) * h - gap)}H${left}z`;
      if (value === null) {
        empty.push(d);
        continue;
      }
      const share = Math.max(0, Math.min(1, (value - low) / (high - low || 1)));
      const level = Math.round(share * SHADES);
      shapes.set(level, (shapes.get(level) ?? "") + d);
    }
  }
  const group = svg.append("g").attr("shape-rendering", gap > 0 ? "auto" : "crispEdges");
  for (const [level, d] of shapes) {
    const share = level / SHADES;
    const fill = walk.shade(scheme === "diverging" ? 2 * share - 1 : share, scheme);
    group.append("path").attr("d", d).style("fill", fill);
  }
  if (empty.length) group.append("path").attr("d", empty.join("")).attr("class", "map-empty");
  return {
    w,
    h,
    box: (r, c) => ({ x: x + c * w, y: y + r * h, width: w - gap, height: h - gap }),
    at: (event) => {
      const [px, py] = vendor.pointerAt(event, svg.node());
      const r = Math.floor((py - y) / h);
      const c = Math.floor((px - x) / w);
      return r >= 0 && c >= 0 && r < rows && c < columns ? [r, c] : null;
    },
  };
};

// The outline of a block of cells.
walk.outline = (svg, { x, y, width, height }, grow = 1) => {
  for (const kind of ["halo", "outline"]) {
    svg
      .append("rect")
      .attr("class", kind)
      .attr("x", x - grow)
      .attr("y", y - grow)
      .attr("width", width + 2 * grow)
      .attr("height", height + 2 * grow)
      .attr("rx", 2);
  }
};

// Which of many labels to write: the wanted ones first, none nearer to another than `apart`.
const sparse = (count, step, apart, wanted) => {
  const taken = [];
  const fits = (i) => taken.every((j) => Math.abs(i - j) * step >= apart);
  for (const i of [...wanted, ...Array.from({ length: count }, (_, i) => i)]) if (fits(i)) taken.push(i);
  return new Set(taken);
};

// The room that the names of tokens take beside a map.
const tokenRoom = (tokens) => {
  const names = tokens.map((token) => walk.shortToken(token, tokens.length > 14 ? 8 : 9));
  const longest = walk.textWidth(names, 12, 700) + 6;
  return { names, left: Math.min(86, longest + 4), top: Math.min(76, longest * 0.77 + 14), right: Math.min(46, longest * 0.5) };
};

// A map between tokens, words on both sides. mark: rows to outline; bold: names to stress (the
// same, where not given); pairs: cells to outline; say(row, column) is told of the pointer.
const tokenMap = (host, { matrix, tokens, side, domain, label, mark = [], bold = mark, pairs = [], values = false, say = null, named = true }) => {
  const count = tokens.length;
  const room = tokenRoom(tokens);
  const left = named ? room.left : 1;
  const { top, names } = room;
  const svg = walk.svg(host, left + side + 1, top + side + 3, label);
  const gap = side / count > 12 ? 1.5 : 0;
  const map = walk.cells(svg, { matrix, x: left, y: top, width: side, height: side, domain, gap });
  const stressed = new Set(bold);
  const kind = (i) => (stressed.has(i) ? "tick equal" : "tick");
  if (named) {
    for (const i of sparse(count, map.h, 13, bold)) {
      svg.append("text").attr("class", kind(i)).attr("x", left - 6).attr("y", top + (i + 0.5) * map.h).attr("dy", "0.35em").attr("text-anchor", "end").text(names[i]);
    }
  }
  for (const i of sparse(count, map.w, 16, bold)) {
    svg.append("text").attr("class", kind(i)).attr("transform", `translate(${left + (i + 0.5) * map.w - 1},${top - 6}) rotate(-50)`).text(names[i]);
  }
  if (values && map.w >= 30) {
    matrix.forEach((row, r) =>
      row.forEach((value, c) => {
        if (value === null) return;
        const share = (value - domain[0]) / (domain[1] - domain[0] || 1);
        const box = map.box(r, c);
        svg
          .append("text")
          .attr("class", share > 0.68 ? "value strong" : share > 0.45 ? "value mid" : "value")
          .attr("x", box.x + box.width / 2)
          .attr("y", box.y + box.height / 2)
          .attr("dy", "0.35em")
          .attr("text-anchor", "middle")
          .text(Math.abs(value) < 1e-9 ? "0" : value.toFixed(2));
      }),
    );
  }
  // Outlines where cells are large enough to bear them; else a stroke beside the row.
  for (const row of mark) {
    if (gap) walk.outline(svg, { x: left, y: top + row * map.h, width: side - gap, height: map.h - gap });
    else svg.append("rect").attr("class", "beside").attr("x", left + side + 3).attr("y", top + row * map.h).attr("width", 3).attr("height", map.h);
  }
  for (const [r, c] of pairs) {
    if (gap) walk.outline(svg, map.box(r, c));
    else svg.append("rect").attr("class", "outline fine").attr("x", left + c * map.w).attr("y", top + r * map.h).attr("width", map.w).attr("height", map.h);
  }
  if (say) {
    const hover = svg.append("rect").attr("class", "hover").attr("width", map.w - gap).attr("height", map.h - gap).attr("visibility", "hidden");
    svg
      .on("pointermove pointerdown", (event) => {
        const place = map.at(event);
        hover.attr("visibility", place ? "visible" : "hidden");
        if (!place) return;
        const box = map.box(...place);
        hover.attr("x", box.x).attr("y", box.y);
        say(...place);
      })
      .on("pointerleave", () => {
        hover.attr("visibility", "hidden");
        say(null, null);
      });
  }
};

// Maps of one set of tokens side by side; only the first of each row has names at its left.
// maps: [{heading, matrix, label, say}]; the rest as for one map.
walk.tokenMaps = (host, width, maps, { tokens, smallest = 92, largest = 330, ...rest }) => {
  const { left, right } = tokenRoom(tokens);
  const gap = Math.max(18, right);
  const need = Math.max(smallest, Math.min(230, tokens.length * 9));
  const columns = [4, 3, 2, 1].find((n) => n <= maps.length && (maps.length % n === 0) && (width - left - right - gap * (n - 1)) / n >= need) ?? 1;
  const side = Math.floor(Math.min(largest, Math.max(need, 64 * tokens.length), (width - left - right - gap * (columns - 1)) / columns));
  const row = walk.el("div", { class: "panels", style: `grid-template-columns: ${left + side + 1}px repeat(${columns - 1}, ${side + 2}px); column-gap: ${gap}px` });
  if (columns === 1) row.style.gridTemplateColumns = "1fr";
  host.append(row);
  maps.forEach(({ heading, ...one }, i) => {
    const named = i % columns === 0;
    const title = heading ? walk.el("p", { class: "panel-title" }, heading) : null;
    if (title && named) title.style.paddingLeft = `${left}px`;
    const cell = walk.el("div", { class: "panel" }, title);
    row.append(cell);
    tokenMap(cell, { tokens, side, named, ...rest, ...one });
  });
};

// The ramp with its two ends, as the key of a map.
walk.ramp = (low, high, scheme = "sequential") =>
  walk.el(
    "div",
    { class: "key ramp" },
    walk.el("span", {}, low),
    walk.el("span", { class: `ramp-bar ${scheme}`, "aria-hidden": "true" }),
    walk.el("span", {}, high),
  );
