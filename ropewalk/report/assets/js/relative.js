// Step 6: the same two words at the same distance, moved along the text.

walk.figures.relative = ({ distance, positions, adding, rotating }, step) => {
  // The drawing shows only some of the places; the step has measured the spread over all of them.
  const spread = (values, measured) => {
    const [low, high] = walk.span(values);
    return walk.number(measured ?? high - low, 2);
  };
  const { adding_spread: added, rotating_spread: turned } = step.figures ?? {};
  const mean = (values) => values.reduce((sum, x) => sum + x, 0) / values.length;
  return [
    walk.figure({
      title: `Two words ${distance} apart, moved along the text`,
      caption: `How the cosine of the two vectors departs from its own mean as the pair moves through the text. With position added the mean is ${walk.number(mean(adding))} and the cosine ranges over ${spread(adding, added)}; with the vectors turned, ${walk.number(mean(rotating))} and ${spread(rotating, turned)}. A level line means that the distance alone decides.`,
      wide: true,
      draw: (host, width) =>
        walk.lines(host, {
          width,
          height: 270,
          label: "Cosine of two words at a fixed distance, by absolute position, adding against rotating",
          series: [
            { name: "adding", points: positions.map((p, i) => ({ x: p, y: adding[i] - mean(adding) })), look: { ...walk.looks[1], dash: "5 1.5" }, dots: false, width: 1.6 },
            { name: "rotating", points: positions.map((p, i) => ({ x: p, y: rotating[i] - mean(rotating) })), look: walk.looks[0], dots: false, width: 2.5 },
          ],
          x: { label: "position of the first word", name: "position" },
          y: { label: "cosine, departure from its mean", margin: 56 },
        }),
    }),
  ];
};
