// Elements, text and numbers. Text reaches the document as text nodes only, never as markup.
"use strict";

const walk = { figures: {} };

walk.payload = JSON.parse(document.getElementById("payload").textContent);

const SVG = "http://www.w3.org/2000/svg";

// el("p", {class: "note"}, "text", node, …); a function under on… becomes a listener.
walk.el = (tag, attributes = {}, ...children) => {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined) continue;
    node.append(child instanceof Node ? child : String(child));
  }
  return node;
};

// An SVG of a given size in a host, described for those who do not see it.
walk.svg = (host, width, height, label) =>
  vendor
    .select(host)
    .append("svg")
    .attr("viewBox", `0 0 ${width} ${height}`)
    .attr("width", width)
    .attr("height", height)
    .attr("class", "own")
    .attr("role", "img")
    .attr("aria-label", label);

// A mark of a few strokes, for badges and table cells.
walk.mark = (d, attributes = {}) => {
  const node = document.createElementNS(SVG, "svg");
  const all = { viewBox: "0 0 16 16", width: 16, height: 16, "aria-hidden": "true", ...attributes };
  for (const [key, value] of Object.entries(all)) node.setAttribute(key, value);
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", d);
  node.append(path);
  return node;
};

// ---- numbers ---------------------------------------------------------------------------------

const SUPERSCRIPT = { "-": "⁻", 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹" };
const grouped = (text) => text.replace(/\B(?=(\d{3})+(?!\d))/g, ",");

// Sign, mantissa and power of ten, or plain digits where these are short.
const parts = (x, digits) => {
  if (x === 0) return { plain: "0" };
  const size = Math.abs(x);
  const sign = x < 0 ? "−" : "";
  if (Number.isInteger(x) && size < 1e12) {
    const text = String(size);
    // A row of bits, such as 11111100, is read digit by digit.
    return { plain: sign + (/^1(?=.*1)[01]{6,}$/.test(text) ? text : grouped(text)) };
  }
  if (size >= 1e-3 && size < 1e6) {
    const places = Math.max(0, digits - 1 - Math.floor(Math.log10(size)));
    const [whole, fraction] = size.toFixed(Math.min(places, 6)).split(".");
    const rest = fraction ? `.${fraction}` : "";
    return { plain: sign + grouped(whole) + rest };
  }
  const [mantissa, power] = size.toExponential(digits - 2).split("e");
  return { sign, mantissa, power: Number(power) };
};

walk.power = (n) => `10${[...String(n)].map((c) => SUPERSCRIPT[c]).join("")}`;

// A number as one string: 47,117 · 0.657 · −21.5 · 3.1 × 10⁻¹⁵.
walk.number = (x, digits = 3) => {
  if (typeof x !== "number" || !Number.isFinite(x)) return "–";
  const { plain, sign, mantissa, power } = parts(x, digits);
  return plain ?? `${sign}${mantissa} × ${walk.power(power)}`;
};

// The same with a raised exponent, for running text.
walk.numberNode = (x, digits = 3) => {
  const node = walk.el("span", { class: "number" });
  if (typeof x !== "number" || !Number.isFinite(x)) node.append("–");
  else {
    const { plain, sign, mantissa, power } = parts(x, digits);
    if (plain) node.append(plain);
    else {
      node.append(`${sign}${mantissa} × 10`);
      node.append(walk.el("sup", {}, String(power).replace("-", "−")));
    }
  }
  return node;
};

// A value on an axis: no more digits than it needs. Positions and lengths in full: 1,024.
walk.tick = (x) => {
  if (Number.isInteger(x) && Math.abs(x) < 1e10) return walk.number(x);
  const short = Number(x.toPrecision(5));
  if (short !== 0 && (Math.abs(short) >= 1e7 || Math.abs(short) < 1e-4)) return walk.number(short, 2);
  const [whole, fraction] = String(Math.abs(short)).split(".");
  return (short < 0 ? "−" : "") + grouped(whole) + (fraction ? `.${fraction}` : "");
};

walk.signed = (x, places = 3) => {
  const text = Math.abs(x).toFixed(places);
  return (x < 0 && Number(text) !== 0 ? "−" : "") + text;
};

walk.span = (values) => {
  let low = Infinity;
  let high = -Infinity;
  for (const value of values) {
    if (typeof value !== "number" || !Number.isFinite(value)) continue;
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  return low <= high ? [low, high] : [0, 1];
};

// ---- words -----------------------------------------------------------------------------------

const segmenter = typeof Intl.Segmenter === "function" ? new Intl.Segmenter() : null;
const graphemes = (text) => (segmenter ? [...segmenter.segment(text)].map((s) => s.segment) : [...text]);

// A token for a tight place: without outer blanks, cut after a few characters.
walk.shortToken = (token, most = 10) => {
  const bare = token.trim();
  if (bare === "") return "␣";
  const letters = graphemes(bare.slice(0, 200));
  return letters.length > most || bare.length > 200 ? `${letters.slice(0, most - 1).join("")}…` : bare;
};

walk.join = (words) =>
  words.length < 2 ? words.join("") : `${words.slice(0, -1).join(", ")} and ${words[words.length - 1]}`;

// The width of the widest of some texts in the sans face, in pixels.
const ruler = document.createElement("canvas").getContext("2d");
walk.textWidth = (texts, size = 12, weight = 400) => {
  ruler.font = `${weight} ${size}px ${getComputedStyle(document.documentElement).getPropertyValue("--sans")}`;
  return Math.ceil(Math.max(0, ...texts.map((text) => ruler.measureText(text).width)));
};

// Running text with raised and lowered parts where they are plainly meant: 2e-16, M_k, b^(1/2).
// What stands in “quotes” is somebody's own words and is left as it is.
const RAISED = /“[^”]*”|(?<![\w.])(\d+(?:\.\d+)?)e([+-]\d+)(?![\w.]*\w)|(?<!\w)([A-Z])_(−?[a-z0-9])(?!\w)|\^\(((?:[^()]|\([^()]*\))+)\)/gu;
walk.prose = (text) => {
  const nodes = [];
  let done = 0;
  for (const found of text.matchAll(RAISED)) {
    const [whole, mantissa, power, base, index, exponent] = found;
    nodes.push(text.slice(done, found.index));
    done = found.index + whole.length;
    if (mantissa) nodes.push(walk.el("span", { class: "number" }, `${mantissa} × 10`, walk.el("sup", {}, String(Number(power)).replace("-", "−"))));
    else if (base) nodes.push(base, walk.el("sub", {}, index));
    else if (exponent) nodes.push(walk.el("sup", {}, exponent));
    else nodes.push(whole);
  }
  return [...nodes, text.slice(done)];
};

// A text cut to a width, for labels that must not run out of their figure.
walk.cut = (text, width, size = 12, weight = 400) => {
  if (walk.textWidth([text], size, weight) <= width) return text;
  const letters = graphemes(text.slice(0, 400));
  while (letters.length > 1 && walk.textWidth([`${letters.join("")}…`], size, weight) > width) letters.pop();
  return `${letters.join("")}…`;
};

// Blanks around signs do not break over a line.
walk.bound = (text) => text.replace(/ ([=+−·×∶≤≥]) /g, "\u00a0$1\u00a0");

walk.unique = (values) => [...new Set(values)];
