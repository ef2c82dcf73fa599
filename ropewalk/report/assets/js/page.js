// The page: a head, the contents, nine steps, the scorecard, the race.

(() => {
  const { payload, el } = walk;
  document.title = payload.title;

  const EVIDENCE = {
    proved: { name: "Proved", mark: "M3 8.5l3.2 3.3L13 4.5", about: "follows from the equations" },
    measured: { name: "Measured", mark: "M2 11V5h12v6zM5 5v3M8 5v4M11 5v3", about: "computed by the library, on this text or in a stored run" },
    literature: { name: "Literature", mark: "M8 4.2C6.4 3.2 4.4 3 2.5 3.3v9C4.4 12 6.4 12.2 8 13.2c1.6-1 3.6-1.2 5.5-.9v-9C11.6 3 9.6 3.2 8 4.2zm0 0v9", about: "reported in papers, on more than one side where they differ" },
  };
  const badge = (kind) => el("span", { class: `badge ${kind}` }, walk.mark(EVIDENCE[kind].mark), el("span", {}, EVIDENCE[kind].name));

  // ---- head -----------------------------------------------------------------------------------

  // Two strands, a sine and a cosine, laid into a rope; the one in front changes at each crossing.
  const rope = (host, width) => {
    const height = 56;
    const svg = walk.svg(host, width, height, "").attr("role", null).attr("aria-label", null).attr("aria-hidden", "true");
    const wave = 132;
    const at = (x, phase) => height / 2 + 15 * Math.sin((2 * Math.PI * x) / wave + phase);
    const piece = (from, to, phase) => {
      const points = [];
      for (let x = from; x < to; x += 3) points.push([x, at(x, phase)]);
      points.push([to, at(to, phase)]);
      return vendor.path()(points);
    };
    // Strands cross twice a wave; between two crossings one of them lies above.
    const strands = [["strand-a", 0], ["strand-b", Math.PI]];
    for (let n = 0, x = -wave / 4; x < width + wave; n += 1, x += wave / 2) {
      const order = n % 2 ? strands : [...strands].reverse();
      for (const [kind, phase] of order) {
        svg.append("path").attr("class", "strand-gap").attr("d", piece(x, x + wave / 2, phase));
        svg.append("path").attr("class", `strand ${kind}`).attr("d", piece(x - 1, x + wave / 2 + 1, phase));
      }
    }
  };

  const MOST = 80;
  const repeated = (token, i) => payload.tokens.some((other, j) => j !== i && other === token);
  const sentence = el(
    "p",
    { class: "sentence", "aria-label": "The text of this walk, token by token" },
    payload.tokens.slice(0, MOST).map((token, i) =>
      el("span", { class: repeated(token, i) ? "token equal" : "token" }, el("bdi", {}, walk.shortToken(token, 60)), el("sub", { "aria-hidden": "true" }, i)),
    ),
    payload.tokens.length > MOST ? el("span", { class: "more" }, `… and ${walk.number(payload.tokens.length - MOST)} more`) : null,
  );
  const band = el("div", { class: "rope", "aria-hidden": "true" });
  let ropeWidth = 0;
  new ResizeObserver(([entry]) => {
    const width = Math.ceil(entry.contentRect.width);
    if (width === ropeWidth) return;
    ropeWidth = width;
    band.replaceChildren();
    rope(band, width);
  }).observe(band);
  document.getElementById("top").append(
    el("p", { class: "wordmark" }, payload.title, payload.version ? el("span", {}, ` ${payload.version}`) : null),
    el("h1", {}, "Why rotary position looks the way it does"),
    el(
      "p",
      { class: "deck" },
      "Attention cannot tell two equal words apart. Nine small steps lead from that flaw to the rotation of queries and keys that most language models use today. At each step something is gained and something is still wrong, and the page says how it is known.",
    ),
    sentence,
    band,
    el(
      "dl",
      { class: "evidence" },
      Object.keys(EVIDENCE).map((kind) => el("div", {}, el("dt", {}, badge(kind)), el("dd", {}, EVIDENCE[kind].about))),
    ),
    payload.source ? el("p", { class: "source" }, `Computed on: ${payload.source}.`) : null,
  );

  // ---- steps ----------------------------------------------------------------------------------

  const equation = (source) => {
    const host = el("div", { class: "equation", tabindex: 0, role: "group", "aria-label": "Equation" });
    try {
      katex.render(source, host, { displayMode: true, throwOnError: true, strict: "ignore", trust: false, maxSize: 20, maxExpand: 200 });
    } catch {
      host.classList.add("plain");
      host.textContent = source;
    }
    return host;
  };

  const drawings = (step) => {
    const make = walk.figures[step.name];
    const drawing = step.drawing;
    const empty = !drawing || Object.keys(drawing).every((key) => key === "reason" || drawing[key] === null);
    if (empty) {
      const reason = walk.note(drawing?.reason ?? "There is no figure for this text.");
      return step.name === "rotary" ? [reason, walk.turningPair()] : [reason];
    }
    try {
      return make(drawing, step, payload);
    } catch (error) {
      return [walk.note(drawing.reason ?? `This figure could not be drawn (${error.message}).`)];
    }
  };

  const numbers = (step) => {
    const names = Object.keys(step.figures ?? {});
    if (!names.length) return null;
    return el(
      "dl",
      { class: names.length > 6 ? "numbers many" : "numbers" },
      names.map((name) =>
        el("div", {}, el("dt", {}, walk.prose(walk.bound(step.labels?.[name] ?? name.replaceAll("_", " ")))), el("dd", {}, walk.numberNode(step.figures[name]))),
      ),
    );
  };

  const main = document.getElementById("walk");
  const contents = [];
  const section = (id, number, title, ...children) => {
    contents.push({ id, number, title });
    const node = el(
      "section",
      { id, "aria-labelledby": `${id}-title`, "data-step": id },
      el("h2", { id: `${id}-title` }, number ? el("span", { class: "step-number" }, number) : null, title),
      ...children,
    );
    main.append(node);
    return node;
  };

  payload.steps.forEach((step, i) => {
    section(
      step.name,
      String(i + 1),
      step.title,
      el("p", { class: "question" }, step.question),
      (step.paragraphs ?? []).map((text) => el("p", {}, walk.prose(text))),
      (step.equations ?? []).map(equation),
      el("div", { class: "figures" }, drawings(step)),
      numbers(step),
      el("div", { class: "verdict" }, badge(step.evidence), el("p", {}, walk.prose(step.verdict))),
    );
  });
  if (Object.keys(payload.scorecard).length) section("scorecard", null, "Scorecard", walk.scorecard(payload.scorecard));
  if (payload.race) {
    let run;
    try {
      run = walk.race(payload.race);
    } catch (error) {
      run = [walk.note(`The race could not be drawn (${error.message}).`)];
    }
    section("race", null, "The race", run);
  }

  // A wide equation keeps its size and scrolls in its box; one that fits needs no tab stop.
  const settle = () => {
    for (const node of document.querySelectorAll(".equation")) {
      walk.fadeEdge(node);
      if (node.scrollWidth > node.clientWidth + 1) node.tabIndex = 0;
      else node.removeAttribute("tabindex");
    }
  };
  document.fonts.ready.then(settle);
  new ResizeObserver(settle).observe(main);

  // ---- contents -------------------------------------------------------------------------------

  const list = el(
    "ol",
    { id: "contents-list" },
    contents.map(({ id, number, title }) =>
      el("li", {}, el("a", { href: `#${id}` }, el("span", { class: "entry-number" }, number ?? ""), el("span", {}, title))),
    ),
  );
  const here = el("span", { class: "here" });
  const opener = el(
    "button",
    { type: "button", class: "opener", "aria-expanded": "false", "aria-controls": "contents-list" },
    here,
    walk.mark("M4 6l4 4 4-4"),
  );
  const nav = document.getElementById("contents");
  const open = (now) => {
    nav.classList.toggle("open", now);
    opener.setAttribute("aria-expanded", String(now));
  };
  opener.addEventListener("click", () => open(!nav.classList.contains("open")));
  list.addEventListener("click", () => open(false));
  nav.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !nav.classList.contains("open")) return;
    open(false);
    opener.focus();
  });
  nav.append(opener, list);

  const links = [...list.querySelectorAll("a")];
  const follow = () => {
    const line = window.innerHeight * 0.3;
    let current = -1;
    contents.forEach(({ id }, i) => {
      if (document.getElementById(id).getBoundingClientRect().top <= line) current = i;
    });
    links.forEach((link, i) => {
      if (i === current) link.setAttribute("aria-current", "location");
      else link.removeAttribute("aria-current");
      link.classList.toggle("passed", i < current);
    });
    const at = contents[current];
    here.replaceChildren(
      at ? (at.number ? el("b", {}, `${at.number} / ${payload.steps.length}`) : "") : "",
      at ? at.title : "Contents",
    );
  };
  let waiting = false;
  window.addEventListener(
    "scroll",
    () => {
      if (waiting) return;
      waiting = true;
      requestAnimationFrame(() => {
        waiting = false;
        follow();
      });
    },
    { passive: true },
  );
  follow();

  document.getElementById("footer").append(
    el(
      "p",
      {},
      `Written by ropewalk${payload.version ? ` ${payload.version}` : ""} into one file that asks nothing of any network.`,
    ),
    el("p", {}, "The same results as data: ", el("code", {}, "ropewalk walk --json"), "."),
    el("p", {}, "Drawn with d3 and Observable Plot (ISC) and KaTeX (MIT), set in Source Serif 4 (OFL); their notices are in the source of this page."),
  );
  document.documentElement.classList.add("ready");
})();
