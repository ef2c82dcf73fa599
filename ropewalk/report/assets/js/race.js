// The race: one curve an encoding, trained at one length and read at longer ones.

const TASKS = { characters: "the next character of Shakespeare’s plays, for a small character model" };

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
  const found = curves.find((one) => one.encoding === "rope");
  // Said only of a run in which it is so.
  const falls = found && best(0) === "rope" && best(last) !== "rope" && found.median[last] > found.median[0];
  const rope = falls
    ? `RoPE is best at the trained length and loses beyond it (${walk.number(found.median[0])} at ${walk.number(lengths[0])}, ${walk.number(found.median[last])} at ${walk.number(lengths[last])} ${unit}): to be read further it needs scaling, or training at the longer length.`
    : null;
  return [
    walk.el(
      "p",
      {},
      `The properties above say what a code can do; a race says what a model makes of it. The task: ${TASKS[task] ?? task}. Trained at length ${walk.number(trained)}, read at ${walk.join(lengths.map((n) => walk.number(n)))}, with ${seeds} seeds each.`,
    ),
    rope ? walk.el("p", {}, rope) : null,
    walk.figure({
      title: `Trained at ${walk.number(trained)}, read further`,
      caption: `Lines: the median of the seeds. Bands: from the lowest to the highest of the ${seeds} seeds. Lower is better. Lowest at length ${walk.number(lengths[0])}: ${best(0)}; at ${walk.number(lengths[last])}: ${best(last)}. A small model on one task: a hint, not a ranking.`,
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
