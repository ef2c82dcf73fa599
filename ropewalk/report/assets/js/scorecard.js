// The scorecard: encodings by properties. Arrow keys move through the table; what a cell says is
// spelled out below it, for pointer, keyboard and screen reader alike.

const ABOUT = {
  unique: "No two positions share a code.",
  linear: "A shift by k is one fixed linear map, whatever the position.",
  relative: "Scores depend on the distance alone: moving the whole text changes nothing.",
  norm: "The lengths of the vectors are kept.",
  bounded: "The code does not grow with the position.",
  decay: "The influence of a token falls with distance, whatever the content.",
  extends: "The code of a position does not depend on the length of the text.",
  deterministic: "The same code on every run, for every seed and in every process.",
  axes: "Positions along several axes work as well as along one.",
  precision: "Rounding to a small number type costs the same at every position.",
  generalises: "A model trained at one length does no worse at four times that length.",
  learnable: "A model learns to look a fixed number of tokens back.",
};

const YES = "M3 8.5l3.2 3.3L13 4.5";
const NO = "M4 4l8 8M12 4l-8 8";
const NONE = "M5.5 8h5";

walk.scorecard = (scorecard) => {
  const encodings = Object.keys(scorecard);
  const known = Object.keys(ABOUT);
  const seen = walk.unique(encodings.flatMap((name) => Object.keys(scorecard[name] ?? {})));
  const all = [...known.filter((p) => seen.includes(p)), ...seen.filter((p) => !known.includes(p))];
  // A column that says nothing of any encoding is left out.
  const told = (one) => typeof one?.holds === "boolean" || typeof one?.claimed === "boolean" || typeof one?.error === "number";
  const properties = all.filter((p) => encodings.some((name) => told(scorecard[name]?.[p])));
  const state = (one) => (one?.holds === true ? "yes" : one?.holds === false ? "no" : "none");
  const differs = (one) => typeof one?.holds === "boolean" && typeof one?.claimed === "boolean" && one.holds !== one.claimed;
  const words = { yes: "holds", no: "does not hold", none: "does not apply, or no record" };
  const sentence = (name, property) => {
    const one = scorecard[name]?.[property];
    const error = typeof one?.error === "number" ? `, error ${walk.number(one.error)}` : "";
    const claim = differs(one) ? `; claimed to ${one.claimed ? "hold" : "fail"}: measured and claimed disagree` : "";
    return `${name}, ${property}: ${words[state(one)]}${error}${claim}.`;
  };

  const said = walk.el("p", { class: "readout card-readout", "aria-live": "polite" });
  const rest = "Point at a cell, or move through the table with the arrow keys, to read its error.";
  const about = (property) => ABOUT[property] ?? "";
  const tell = (name, property) => {
    said.replaceChildren(walk.el("b", {}, sentence(name, property)), ` ${about(property)}`);
  };
  said.textContent = rest;

  const cells = [];
  const light = (r, c) => {
    for (const node of table.querySelectorAll(".lit")) node.classList.remove("lit");
    if (r === null) return;
    heads[c].classList.add("lit");
    cells[r][c].closest("tr").firstChild.classList.add("lit");
  };
  const move = (event, r, c) => {
    const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    let to = null;
    if (steps[event.key]) to = [r + steps[event.key][0], c + steps[event.key][1]];
    if (event.key === "Home") to = [r, 0];
    if (event.key === "End") to = [r, properties.length - 1];
    if (!to) return;
    event.preventDefault();
    cells[to[0]]?.[to[1]]?.focus();
  };
  const cell = (name, property, r, c) => {
    const one = scorecard[name]?.[property];
    const kind = state(one);
    const button = walk.el(
      "button",
      {
        type: "button",
        class: `cell ${kind}${differs(one) ? " differs" : ""}`,
        tabindex: r === 0 && c === 0 ? 0 : -1,
        "aria-label": sentence(name, property),
        onkeydown: (event) => move(event, r, c),
        onfocus: () => {
          for (const other of cells.flat()) other.tabIndex = -1;
          button.tabIndex = 0;
          tell(name, property);
          light(r, c);
        },
        onclick: () => tell(name, property),
        onpointerenter: () => {
          tell(name, property);
          light(r, c);
        },
      },
      walk.mark({ yes: YES, no: NO, none: NONE }[kind]),
      differs(one) ? walk.el("span", { class: "differs-mark", "aria-hidden": "true" }, "≠") : null,
      walk.el("span", { class: "cell-error", "aria-hidden": "true" }, typeof one?.error === "number" ? one.error.toExponential(0).replace("e+", "e") : ""),
    );
    cells[r] ??= [];
    cells[r][c] = button;
    return walk.el("td", {}, button);
  };
  const heads = properties.map((property) =>
    walk.el("th", { scope: "col", title: about(property) }, walk.el("span", {}, property)),
  );
  const table = walk.el(
    "table",
    { class: "card" },
    walk.el("caption", { class: "unseen" }, "Which encoding has which property, as measured"),
    walk.el("thead", {}, walk.el("tr", {}, walk.el("td", {}), heads)),
    walk.el(
      "tbody",
      {},
      encodings.map((name, r) => walk.el("tr", {}, walk.el("th", { scope: "row" }, name), properties.map((property, c) => cell(name, property, r, c)))),
    ),
  );
  table.addEventListener("pointerleave", () => light(null));
  const disagree = encodings.flatMap((name) => properties.filter((p) => differs(scorecard[name]?.[p])).map((p) => `${name}, ${p}`));
  const scroller = walk.el("div", { class: "scroll card-scroll" }, table);
  const hint = walk.el("p", { class: "scroll-hint", hidden: true }, "The table is wider than the screen: move it sideways to see the rest →");
  new ResizeObserver(() => {
    hint.hidden = scroller.scrollWidth <= scroller.clientWidth + 1;
    walk.fadeEdge(scroller);
  }).observe(scroller);
  const toggle = walk.el(
    "label",
    { class: "check" },
    walk.el("input", { type: "checkbox", onchange: (event) => table.classList.toggle("with-errors", event.target.checked) }),
    "Show the errors in the table",
  );
  return [
    walk.el(
      "p",
      {},
      "Every claim is a check: a property holds when its error, as measured by the library, is within a stated tolerance. ",
      disagree.length
        ? `Measured and claimed disagree in ${disagree.length === 1 ? "one place" : `${disagree.length} places`} (${walk.join(disagree)}), marked ≠.`
        : "Measured and claimed agree everywhere.",
    ),
    walk.el(
      "ul",
      { class: "key card-key" },
      [["yes", YES, "holds"], ["no", NO, "does not hold"], ["none", NONE, "does not apply, or no record"]].map(([kind, d, text]) =>
        walk.el("li", {}, walk.el("span", { class: `cell ${kind}` }, walk.mark(d)), text),
      ),
      walk.el("li", {}, walk.el("span", { class: "cell yes differs" }, walk.el("span", { class: "differs-mark" }, "≠")), "measured and claimed disagree"),
    ),
    toggle,
    hint,
    scroller,
    said,
    walk.el(
      "details",
      { class: "numbers-table" },
      walk.el("summary", {}, "What the properties mean"),
      walk.el("dl", { class: "glossary" }, properties.flatMap((property) => [walk.el("dt", {}, property), walk.el("dd", {}, about(property))])),
    ),
  ];
};
