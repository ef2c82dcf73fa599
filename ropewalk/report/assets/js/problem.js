// Step 1: four heads without position, and how far apart the outputs end up.

walk.equalRows = (pairs) => walk.unique((pairs ?? []).flat()).sort((a, b) => a - b);

// Positions are counted from 0, as the encodings count them.
const tokenWithPlace = (tokens, i) => `“${walk.shortToken(tokens[i], 16)}” (${i})`;
walk.tokenWithPlace = tokenWithPlace;

// The numbers of a map between tokens, as a table.
walk.tokenTable = (tokens, matrix) => ({
  head: ["", ...tokens.map((token, i) => `${walk.shortToken(token)} (${i})`)],
  rows: matrix.map((row, i) => [`${walk.shortToken(tokens[i])} (${i})`, ...row]),
});

const attentionFigure = ({ tokens, attention }, marked) => {
  const top = walk.span(attention.flat(2))[1];
  const said = walk.readout();
  const rest = "Point at a cell to read its weight.";
  said.textContent = rest;
  return walk.figure({
    title: "Where four heads look, without position",
    caption: [
      "A row is a token that looks, a column a token that is looked at; the rows sum to one. ",
      marked.length
        ? "The marked rows belong to equal tokens: in each head they are the same row, and their columns the same column."
        : "This text repeats no token, so there is no pair of rows to compare.",
    ],
    wide: true,
    key: walk.ramp("0", `weight ${walk.number(top, 2)}`),
    draw: (host, width) => {
      walk.tokenMaps(
        host,
        width,
        attention.map((matrix, head) => ({
          heading: `Head ${head + 1}`,
          matrix,
          label: `Attention weights of head ${head + 1} between ${tokens.length} tokens`,
          say: (r, c) => {
            said.textContent =
              r === null ? rest : `Head ${head + 1}: ${tokenWithPlace(tokens, r)} gives ${tokenWithPlace(tokens, c)} the weight ${walk.number(matrix[r][c])}.`;
          },
        })),
        { tokens, domain: [0, top], mark: marked },
      );
      host.append(said);
    },
  });
};

const distanceFigure = ({ tokens, distance, causal_distance: causal, equal }, marked) => {
  const views = { none: distance, causal };
  let view = "none";
  const off = (matrix) => (equal ?? []).map(([i, j]) => matrix[i][j]);
  const words = (matrix) => {
    const [low, high] = walk.span(off(matrix));
    return low === high ? walk.number(low) : `${walk.number(low)} to ${walk.number(high)}`;
  };
  const high = walk.span([distance, causal].filter(Boolean).flat(2))[1];
  const result = walk.readout();
  const options = [["none", "No mask"]];
  if (causal) options.push(["causal", "Causal mask"]);
  const maps = walk.figure({
    title: "How far apart the outputs are",
    caption: [
      "Relative distance between the layer’s output vectors, each token against each. ",
      marked.length
        ? `Marked: the equal tokens. Without a mask they are ${words(distance)} apart${walk.span(off(distance))[1] < 1e-12 ? ", which is to say one and the same vector" : ""}${
            causal ? `; under the causal mask alone, still with no position, ${words(causal)}: each token sees a different past, which tells something of the order.` : "."
          }`
        : "",
    ],
    controls: options.length > 1 ? [walk.choice({ label: "Mask", options, value: view, change: (key) => { view = key; maps.redraw(); } })] : [],
    key: walk.ramp("0", walk.number(high, 2)),
    table: tokens.length <= 16 ? walk.tokenTable(tokens, distance) : null,
    draw: (host, width) => {
      const matrix = views[view];
      const one = {
        matrix,
        label: `Distances between the output vectors of ${tokens.length} tokens, ${view === "none" ? "without a mask" : "with the causal mask"}`,
        say: (r, c) => {
          result.textContent = r === null ? "" : `${tokenWithPlace(tokens, r)} to ${tokenWithPlace(tokens, c)}: ${walk.number(matrix[r][c])}.`;
        },
      };
      walk.tokenMaps(host, Math.min(width, 480), [one], {
        tokens,
        domain: [0, high],
        bold: marked,
        pairs: (equal ?? []).flatMap(([i, j]) => [[i, j], [j, i]]),
        values: true,
      });
      host.append(result);
    },
  });
  return maps;
};

walk.figures.problem = (found, step, payload) => {
  const drawing = { ...found, tokens: found.tokens ?? payload.tokens };
  const marked = walk.equalRows(drawing.equal);
  return [drawing.attention ? attentionFigure(drawing, marked) : null, drawing.distance ? distanceFigure(drawing, marked) : null];
};
