// Step 2: how loud each additive code is beside the word, and what normalisation leaves of it.

walk.figures.integer = ({ bars }) => {
  // On a narrow screen the names stand above their bars, in full, and not beside them.
  const layout = (nameRoom) => (nameRoom ? { left: nameRoom, band: 38, middle: 19 } : { left: 6, band: 54, middle: 36 });
  const rowName = (svg, text, y, width, nameRoom) => {
    const name = svg.append("text").attr("class", "row-name").attr("dy", "0.35em");
    if (nameRoom) name.attr("x", nameRoom - 10).attr("y", y).attr("text-anchor", "end").text(walk.cut(text, nameRoom - 12, 13.5));
    else name.attr("x", 0).attr("y", y - 22).text(walk.cut(text, width - 4, 13.5));
  };
  const loudness = (host, width, nameRoom) => {
    const { left, band, middle } = layout(nameRoom);
    const [low, high] = walk.span([0, ...bars.flatMap((bar) => [bar.raw, bar.scaled])]);
    const pad = (high - low) * 0.08 + 4;
    const height = bars.length * band + 58;
    const svg = walk.svg(host, width, height, "Word against code in decibels, for every additive code");
    const x = vendor.scaleLinear([low - pad, high + pad], [left, width - 12]);
    const top = 26;
    const base = top + bars.length * band;
    for (const tick of x.ticks(width > 460 ? 7 : 4)) {
      svg.append("line").attr("class", tick === 0 ? "rule" : "grid").attr("x1", x(tick)).attr("x2", x(tick)).attr("y1", top).attr("y2", base);
      svg.append("text").attr("class", "tick").attr("x", x(tick)).attr("y", base + 16).attr("text-anchor", "middle").text(walk.tick(tick));
    }
    svg.append("text").attr("class", "axis-name").attr("x", (x(low - pad) + x(high + pad)) / 2).attr("y", base + 32).attr("text-anchor", "middle").text("decibels");
    // About the zero line where both fit there, else at the two ends.
    const [louder, quieter] = ["← the code is louder", "the word is louder →"];
    const fit = x(0) - 8 > walk.textWidth([louder], 12.5) && width - x(0) - 8 > walk.textWidth([quieter], 12.5);
    svg.append("text").attr("class", "hint").attr("x", fit ? x(0) - 8 : 0).attr("y", 14).attr("text-anchor", fit ? "end" : "start").text(louder);
    svg.append("text").attr("class", "hint").attr("x", fit ? x(0) + 8 : width).attr("y", 14).attr("text-anchor", fit ? "start" : "end").text(quieter);
    bars.forEach((bar, i) => {
      const y = top + i * band + middle;
      rowName(svg, bar.code, y, width, nameRoom);
      if (typeof bar.raw === "number") {
        svg.append("rect").attr("class", "bar").attr("x", Math.min(x(0), x(bar.raw))).attr("y", y - 8).attr("width", Math.abs(x(bar.raw) - x(0))).attr("height", 16);
      }
      if (typeof bar.scaled === "number") {
        if (typeof bar.raw === "number") svg.append("line").attr("class", "lead").attr("x1", x(bar.raw)).attr("x2", x(bar.scaled)).attr("y1", y).attr("y2", y);
        svg.append("path").attr("class", "diamond").attr("d", `M${x(bar.scaled)},${y - 6.5}l6.5,6.5l-6.5,6.5l-6.5,-6.5z`);
      }
    });
  };
  const survival = (host, width, nameRoom, named) => {
    const { left, band, middle } = layout(nameRoom);
    const height = bars.length * band + 58;
    const svg = walk.svg(host, width, height, "How much of the difference between two positions survives normalisation");
    const x = vendor.scaleLinear([0, 1], [left, width - 44]);
    const top = 26;
    const base = top + bars.length * band;
    for (const tick of [0, 0.5, 1]) {
      svg.append("line").attr("class", tick === 0 ? "rule" : "grid").attr("x1", x(tick)).attr("x2", x(tick)).attr("y1", top).attr("y2", base);
      svg.append("text").attr("class", "tick").attr("x", x(tick)).attr("y", base + 16).attr("text-anchor", tick === 0 ? "start" : "middle").text(`${100 * tick} %`);
    }
    svg.append("text").attr("class", "axis-name").attr("x", x(0.5)).attr("y", base + 32).attr("text-anchor", "middle").text("of the difference survives");
    bars.forEach((bar, i) => {
      const y = top + i * band + middle;
      if (named) rowName(svg, bar.code, y, width, nameRoom);
      for (const [key, kind, shift] of [["layernorm", "bar layer", -12], ["rmsnorm", "bar rms", 2]]) {
        const value = bar[key];
        if (typeof value !== "number") continue;
        svg.append("rect").attr("class", kind).attr("x", x(0)).attr("y", y + shift).attr("width", Math.max(0, x(Math.min(1, value)) - x(0))).attr("height", 10);
        svg.append("text").attr("class", "value-small").attr("x", x(Math.min(1, Math.max(0, value))) + 5).attr("y", y + shift + 5).attr("dy", "0.35em").text(`${walk.tick(Math.round(1000 * value) / 10)} %`);
      }
    });
  };
  const widest = walk.textWidth(bars.map((bar) => bar.code), 13.5) + 14;
  const figure = walk.figure({
    title: "Is the word still heard?",
    caption:
      "First chart: the length of the word’s embedding against the length of the code. Bars to the left of 0 mean that the code drowns the word; diamonds show the same after embeddings are multiplied by √D, as the first transformer did. " +
      "Second chart: the share of the difference between two positions that LayerNorm and RMSNorm leave. A code that is the same number in every component is just what LayerNorm takes away.",
    wide: true,
    table: {
      head: ["Code", "word ∶ code, dB", "with √D, dB", "LayerNorm keeps", "RMSNorm keeps"],
      rows: bars.map((bar) => [bar.code, bar.raw, bar.scaled, bar.layernorm, bar.rmsnorm]),
    },
    key: walk.el(
      "ul",
      { class: "key" },
      walk.el("li", {}, walk.el("i", { class: "swatch ink" }), "as they are"),
      walk.el("li", {}, walk.el("i", { class: "swatch lozenge" }), "embeddings × √D"),
      walk.el("li", {}, walk.el("i", { class: "swatch layer" }), "after LayerNorm"),
      walk.el("li", {}, walk.el("i", { class: "swatch rms" }), "after RMSNorm"),
    ),
    draw: (host, width) => {
      const names = width < 560 ? 0 : Math.min(widest, Math.floor(width * 0.42));
      const beside = width >= 720;
      const row = walk.el("div", { class: "panels", style: beside ? "grid-template-columns: 1.55fr 1fr; column-gap: 24px" : "grid-template-columns: 1fr" });
      const left = walk.el("div", { class: "panel" });
      const right = walk.el("div", { class: "panel" });
      row.append(left, right);
      host.append(row);
      const each = beside ? [Math.floor((width - 24) * 0.608), Math.floor((width - 24) * 0.392)] : [width, width];
      loudness(left, each[0], names);
      survival(right, each[1], beside ? 8 : names, !beside);
    },
  });
  return [figure];
};
