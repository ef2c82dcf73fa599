#!/usr/bin/env bash
# Rebuilds ropewalk/report/assets/vendor from npm packages pinned by version.
#
#   scripts/vendor_assets.sh            needs node >= 18 and npm
#
# charts.js  the parts of d3 and Observable Plot that the page uses, as one global `vendor`
# katex.js   KaTeX, as the global `katex`
# katex.css  its style sheet with the few fonts the page needs, inlined
# text.css   the text face, inlined
# Each file starts with the notices of what it holds; LICENSES.txt has the full texts.
set -euo pipefail

vendor="$(cd "$(dirname "$0")/.." && pwd)/ropewalk/report/assets/vendor"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
mkdir -p "$vendor"
cd "$work"

# Every package that ends up in a file is pinned, transitive ones too.
cat > package.json <<'JSON'
{
  "private": true,
  "dependencies": {
    "@fontsource-variable/source-serif-4": "5.3.1",
    "@observablehq/plot": "0.6.17",
    "d3": "7.9.0",
    "d3-array": "3.2.5",
    "d3-axis": "3.0.1",
    "d3-brush": "3.0.1",
    "d3-color": "3.1.1",
    "d3-dispatch": "3.0.2",
    "d3-ease": "3.0.2",
    "d3-format": "3.1.3",
    "d3-geo": "3.1.2",
    "d3-interpolate": "3.0.2",
    "d3-path": "3.1.1",
    "d3-scale": "4.0.3",
    "d3-scale-chromatic": "3.1.1",
    "d3-selection": "3.0.1",
    "d3-shape": "3.2.1",
    "d3-time": "3.1.1",
    "d3-time-format": "4.1.1",
    "d3-timer": "3.0.2",
    "d3-transition": "3.0.2",
    "d3-zoom": "3.0.1",
    "esbuild": "0.28.2",
    "isoformat": "0.2.1",
    "katex": "0.19.1"
  }
}
JSON
npm install --ignore-scripts --no-audit --no-fund --loglevel=error

cat > entry.mjs <<'JS'
export {
  areaY, axisX, axisY, dot, gridY, line, plot, pointer, pointerX, ruleX, ruleY, text, tip,
} from "@observablehq/plot";
export { line as path, pointer as pointerAt, scaleLinear, select } from "d3";
JS
node_modules/.bin/esbuild entry.mjs --bundle --minify --format=iife --global-name=vendor \
  --target=es2020 --legal-comments=none --charset=ascii --metafile=meta.json \
  --outfile=charts.bundle.js --log-level=warning

cat > assemble.mjs <<'JS'
import { readFileSync as read, readdirSync, writeFileSync as write } from "node:fs";

const out = process.argv[2];
const folder = (name) => `node_modules/${name}`;
const about = (name) => JSON.parse(read(`${folder(name)}/package.json`, "utf8"));
const licence = (name) => {
  const file = readdirSync(folder(name)).find((f) => /^licen[cs]e/i.test(f));
  return read(`${folder(name)}/${file}`, "utf8").trim();
};

// What the bundler kept, not what npm installed.
const meta = JSON.parse(read("meta.json", "utf8"));
const kept = Object.values(meta.outputs)[0].inputs;
const bundled = new Map();
for (const [input, { bytesInOutput }] of Object.entries(kept)) {
  const name = input.match(/.*node_modules\/((?:@[^/]+\/)?[^/]+)/)?.[1];
  if (name && bytesInOutput > 0) bundled.set(name, (bundled.get(name) ?? 0) + bytesInOutput);
}
bundled.set("d3", 0);

// One text per distinct licence, with the copyright lines that lead it.
const grouped = (names) => {
  const byBody = new Map();
  for (const name of names) {
    const text = licence(name).replace(/\r/g, "");
    const [, head, body] = text.match(/^((?:Copyright[^\n]*\n|All rights reserved\.\n)*)([^]*)$/);
    const group = byBody.get(body.trim()) ?? [];
    group.push(`${name} ${about(name).version}: ${head.trim().split("\n").join("; ")}`.trim());
    byBody.set(body.trim(), group);
  }
  return [...byBody].map(([body, heads]) => `${heads.join("\n")}\n\n${body}`).join("\n\n\n");
};
const rule = (title) => `${"=".repeat(78)}\n${title}\n${"=".repeat(78)}\n\n`;
const names = [...bundled.keys()].sort();
const notices = grouped(names);
write(`${out}/charts.js`, `/*!\n${notices.replaceAll("*/", "* /")}\n*/\n${read("charts.bundle.js", "utf8")}`);

const mit = licence("katex");
write(`${out}/katex.js`,
  `/*!\nKaTeX ${about("katex").version}\n${mit}\n*/\n${read("node_modules/katex/dist/katex.min.js", "utf8").trim()}\n`);

const inline = (path) => `url(data:font/woff2;base64,${read(path).toString("base64")})format("woff2")`;
const wanted = new Set([
  "Main-Regular", "Main-Bold", "Math-Italic", "AMS-Regular", "Caligraphic-Regular",
  "Size1-Regular", "Size2-Regular", "Size3-Regular", "Size4-Regular",
]);
let fonts = 0;
const css = read("node_modules/katex/dist/katex.min.css", "utf8").replace(/@font-face\{[^}]*\}/g, (face) => {
  const file = face.match(/fonts\/KaTeX_([A-Za-z0-9-]+)\.woff2/)[1];
  if (!wanted.has(file)) return "";
  fonts += 1;
  return face.replace(/src:[^;}]*/, `src:${inline(`node_modules/katex/dist/fonts/KaTeX_${file}.woff2`)}`);
});
if (fonts !== wanted.size || /url\((?!data:)/.test(css)) throw new Error("KaTeX's style sheet has changed shape");
const ofl = "SIL Open Font License 1.1; the full text is in LICENSES.txt and at openfontlicense.org";
const mathNotice = "KaTeX fonts: Copyright (c) 2009-2010 Design Science, Inc., (c) 2014-2018 Khan Academy,\n"
  + "with Reserved Font Names KaTeX_*. " + ofl;
write(`${out}/katex.css`, `/*!\nKaTeX ${about("katex").version}\n${mit}\n\n${mathNotice}\n*/\n${css.trim()}\n`);

const serif = "@fontsource-variable/source-serif-4";
const textNotice = "Source Serif 4: Copyright 2014-2021 Adobe Systems Incorporated, with Reserved Font Name 'Source'.\n" + ofl;
write(`${out}/text.css`, `/*!\n${textNotice}\n*/\n@font-face{font-family:"Source Serif 4";font-style:normal;`
  + `font-weight:200 900;font-display:block;src:${inline(`${folder(serif)}/files/source-serif-4-latin-wght-normal.woff2`)}}\n`);

write(`${out}/LICENSES.txt`, rule("charts.js") + notices + "\n\n\n" + rule("katex.js, katex.css: the style sheet")
  + mit + "\n\n\n" + rule("katex.css: the fonts\n" + mathNotice) + "The licence text is the one below.\n\n\n"
  + rule("text.css: the font\n" + textNotice) + licence(serif) + "\n");

const spdx = (name) => about(name).license ?? "see LICENSES.txt";
const row = (file, name) => `| ${file} | ${name} | ${about(name).version} | ${spdx(name)} |`;
write(`${out}/README.md`, `# Vendored libraries

Written by \`scripts/vendor_assets.sh\`; do not edit by hand. Nothing here is loaded from a network:
the page carries all of it. Full licence texts: [LICENSES.txt](LICENSES.txt).

| File | Package | Version | Licence |
|---|---|---|---|
${names.map((name) => row("charts.js", name)).join("\n")}
${row("katex.js, katex.css", "katex")}
| katex.css | KaTeX fonts, in the katex package | ${about("katex").version} | OFL-1.1 |
${row("text.css", serif)}

\`charts.js\` holds only the parts the page uses (d3-scale-chromatic carries the ColorBrewer schemes,
Apache-2.0; d3-geo a part of GeographicLib, MIT). Built with esbuild ${about("esbuild").version}.
`);
JS
node assemble.mjs "$vendor"
ls -l "$vendor"
