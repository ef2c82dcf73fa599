// The race: one curve an encoding, trained at one length and read at longer ones.

walk.race = ({ task, train_length: trained, lengths, unit, curves, seeds }) => {
  const series = curves.map((curve, i) => ({
    name: curve.encoding,
    look: walk.looks[i % walk.looks.length],
    points: lengths.map((length, j) => ({ x: length, y: curve.median[j], low: curve.low?.[j], high: curve.high?.[j] })),
  }));
  const best = (j) => {
    const sorted = curves.filter((one) => typeof one.median[j] === "number").sort((a, b) => a.median[j] - b.median[j]);
    return sorted[0]?.encoding ?? "none";
  };
  const last = lengths.length - 1;
  return [
    walk.el(
      "p",
      {},
      `The properties above say what a code can do; a race says what a model makes of it. Task: ${task}. Trained at length ${walk.number(trained)}, read at ${walk.join(lengths.map((n) => walk.number(n)))}, with ${seeds} seeds each.`,
    ),
    walk.figure({
      title: `Trained at ${walk.number(trained)}, read further`,
      caption: `Median over seeds, with the band from lowest to highest; lower is better. Lowest at length ${walk.number(lengths[0])}: ${best(0)}; at ${walk.number(lengths[last])}: ${best(last)}. A small model on one task: a hint, not a ranking.`,
      wide: true,
      table: {
        head: ["encoding", ...lengths.map((n) => `at ${walk.number(n)}`)],
        rows: curves.map((curve) => [
          curve.encoding,
          ...lengths.map((_, j) => `${walk.number(curve.median[j])} (${walk.number(curve.low?.[j])} to ${walk.number(curve.high?.[j])})`),
        ]),
      },
      draw: (host, width) =>
        walk.lines(host, {
          width,
          height: 330,
          label: `Loss by length for ${curves.length} encodings, with intervals`,
          series,
          x: { label: "length of the text read", type: "point", name: "length", format: walk.number },
          y: { label: unit },
        }),
    }),
  ];
};
