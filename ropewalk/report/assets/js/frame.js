// The frame of a figure: title, controls, drawing, caption, numbers; drawn anew when its width
// changes. Controls are plain form elements, so the keyboard works as everywhere.

let serial = 0;

// figure({title, caption, draw(host, width), controls, table, wide}); draw may be called often.
// The returned node has .redraw().
walk.figure = ({ title, caption, draw, controls = [], table = null, wide = false, key = null }) => {
  serial += 1;
  const id = `figure-${serial}`;
  const host = walk.el("div", { class: "drawing" });
  const node = walk.el(
    "figure",
    { id, class: wide ? "figure wide" : "figure", "aria-labelledby": `${id}-title`, "data-figure": title },
    walk.el("p", { class: "figure-title", id: `${id}-title` }, title),
    controls.length ? walk.el("div", { class: "controls" }, controls) : null,
    key,
    host,
    walk.el("figcaption", {}, caption),
    table ? walk.numbersTable(table) : null,
  );
  let width = 0;
  node.redraw = () => {
    if (width <= 0) return;
    host.replaceChildren();
    try {
      draw(host, width);
    } catch (error) {
      host.replaceChildren(walk.note(`This figure could not be drawn (${error.message}).`));
    }
  };
  new ResizeObserver((entries) => {
    const now = Math.floor(entries[entries.length - 1].contentRect.width);
    if (now === width) return;
    width = now;
    node.redraw();
  }).observe(host);
  return node;
};

// Marks a box that scrolls sideways while there is more to see at its right end.
walk.fadeEdge = (box) => {
  const more = () => box.classList.toggle("more-right", box.scrollLeft + box.clientWidth < box.scrollWidth - 1);
  if (!box.dataset.watched) {
    box.dataset.watched = "yes";
    box.addEventListener("scroll", more, { passive: true });
  }
  more();
};

walk.note = (text) => walk.el("p", { class: "note" }, text);

// slider({label, min, max, value, step, show(value), change(value)}) with its value beside it.
walk.slider = ({ label, min, max, value, step = 1, show = String, change }) => {
  const output = walk.el("output", {}, show(value));
  const input = walk.el("input", { type: "range", min, max, step, "aria-valuetext": show(value) });
  input.value = value;
  input.addEventListener("input", () => {
    const now = Number(input.value);
    output.textContent = show(now);
    input.setAttribute("aria-valuetext", show(now));
    change(now);
  });
  const node = walk.el(
    "label",
    { class: "slider" },
    walk.el("span", { class: "slider-label" }, label),
    input,
    output,
  );
  node.set = (now) => {
    input.value = now;
    output.textContent = show(Number(input.value));
    input.setAttribute("aria-valuetext", output.textContent);
  };
  return node;
};

// choice({label, options: [[value, text], …], value, change(value)}): a row of radio buttons.
walk.choice = ({ label, options, value, change }) => {
  serial += 1;
  const name = `choice-${serial}`;
  return walk.el(
    "fieldset",
    { class: "choice" },
    walk.el("legend", {}, label),
    options.map(([key, text]) =>
      walk.el(
        "label",
        {},
        walk.el("input", { type: "radio", name, value: key, checked: key === value, onchange: () => change(key) }),
        walk.el("span", {}, text),
      ),
    ),
  );
};

// A line that says in words what a control or a pointer has picked out.
walk.readout = (live = true) => walk.el("p", { class: "readout", "aria-live": live ? "polite" : null });

// {head: [text], rows: [[text or number]]} under a fold, for readers of numbers and of screens.
walk.numbersTable = ({ head, rows }) =>
  walk.el(
    "details",
    { class: "numbers-table" },
    walk.el("summary", {}, "The numbers"),
    walk.el(
      "div",
      { class: "scroll", tabindex: 0, role: "region", "aria-label": "Table of numbers" },
      walk.el(
        "table",
        {},
        walk.el("thead", {}, walk.el("tr", {}, head.map((text) => walk.el("th", { scope: "col" }, text)))),
        walk.el(
          "tbody",
          {},
          rows.map((row) =>
            walk.el(
              "tr",
              {},
              row.map((cell, i) =>
                i === 0
                  ? walk.el("th", { scope: "row" }, typeof cell === "number" ? walk.number(cell) : cell)
                  : walk.el("td", {}, typeof cell === "number" || cell === null ? walk.numberNode(cell) : cell),
              ),
            ),
          ),
        ),
      ),
    ),
  );

// Side by side where there is room, one below the other where not: widths and a row of cells.
walk.panels = (host, width, count, narrowest, gap = 28) => {
  const columns = Math.max(1, Math.min(count, Math.floor((width + gap) / (narrowest + gap))));
  const even = columns === 3 && count === 4 ? 2 : columns;
  const each = Math.floor((width - gap * (even - 1)) / even);
  const row = walk.el("div", { class: "panels", style: `grid-template-columns: repeat(${even}, ${each}px); column-gap: ${gap}px` });
  host.append(row);
  return {
    each,
    columns: even,
    cell: (heading) => {
      const cell = walk.el("div", { class: "panel" }, heading ? walk.el("p", { class: "panel-title" }, heading) : null);
      row.append(cell);
      return cell;
    },
  };
};
