"""The docs page of the claims that training decides, and its figures: all from stored records."""

from __future__ import annotations

from typing import Any

from ropewalk import records
from ropewalk.lab import statistics
from ropewalk.report.figures.forest import Row, forest
from ropewalk.report.figures.scale import number

HEAD = """# Claims that training decides

What the literature says of positional encodings, tried on small models. Each claim is a script in
`runs/` and a stored record; this page is written from the records. Every number is taken for each
of several seeds, mostly as a difference between two encodings with the same seed, the same examples
and the same other weights. An interval is the {interval}.

A statement is **reproduced** if its whole interval lies on the claimed side of its margin,
**refuted** if it lies on the other side, and **undecided** at this scale if the margin is inside or
if no model learned the task at all. A claim is reproduced if all its statements are, and in part if
some are. With five seeds, a number that is as likely on one side as on the other is called
reproduced once in 32 times, and refuted as often; of many statements, some are so by chance. A
small model that refutes a claim about large ones says that the claim does not hold at every scale,
and no more.

| Claim | Verdict | Statements |
|---|---|---|
"""
COUNTED = ("reproduced", "refuted", "undecided")


def pages(claims: list[dict[str, Any]]) -> dict[str, str]:
    """File name → content: the page."""
    return {"index.md": page(sorted(claims, key=lambda record: record["number"]))}


def figures(claims: list[dict[str, Any]]) -> dict[str, str]:
    """File name → content: a figure for each claim."""
    return {f"claim_{record['number']:02}.svg": image(record) for record in claims}


def page(claims: list[dict[str, Any]]) -> str:
    """The page of all claims."""
    lines = [HEAD.format(interval=statistics.INTERVAL)]
    for record in claims:
        lines.append(
            f"| [{record['title']}](#claim-{record['number']}) | {record['verdict']} | "
            f"{counts(record)} |\n"
        )
    return "".join(lines) + "\n" + "\n".join(map(section, claims))


def counts(record: dict[str, Any]) -> str:
    """How many statements have which verdict, in words."""
    found = [each["verdict"] for each in record["statements"]]
    return ", ".join(f"{found.count(v)} {v}" for v in COUNTED if v in found)


def section(record: dict[str, Any]) -> str:
    """One claim: what was said, what was done, what came out."""
    rows = "".join(
        f"| {s['words']} | {number(s['median'])} [{number(s['low'])}, {number(s['high'])}] | "
        f"{s['unit']} | {s['side']} {number(s['margin'])} | {s['verdict']} |\n"
        for s in record["statements"]
    )
    parts = [
        f'<a id="claim-{record["number"]}"></a>\n\n## {record["number"]}. {record["title"]}\n',
        f"**Verdict: {record['verdict']}** ({counts(record)}, {record['seeds']} seeds).\n",
        f"*Said*: {record['said']}. Source: {record['source']}.\n",
        f"*Here*: {record['setting']}. Script: `{record['script']}`.\n",
        f"![Each statement with its interval](claim_{record['number']:02}.svg)\n",
        "| Statement | Median and interval | Unit | Said | Verdict |\n|---|---|---|---|---|\n"
        + rows,
        *(table(race) for race in record.get("races", [])),
    ]
    idle = sorted({each["idle"] for each in record["statements"] if each["idle"]})
    parts += [f"Undecided: {reason}.\n" for reason in idle]
    return "\n".join(parts)


def table(race: dict[str, Any]) -> str:
    """The medians of a race by length."""
    head = " | ".join(map(str, race["lengths"]))
    rows = "".join(
        f"| `{curve['encoding']}` | "
        + " | ".join(
            f"{number(m)} [{number(low)}, {number(high)}]"
            for m, low, high in zip(curve["median"], curve["low"], curve["high"], strict=True)
        )
        + " |\n"
        for curve in race["curves"]
    )
    return (
        f"{race['task']}, {race['unit']}, {race['better']} is better, trained at "
        f"{race['train_length']}:\n\n| Encoding | {head} |\n|---|{'---|' * len(race['lengths'])}\n"
        f"{rows}"
    )


def image(record: dict[str, Any]) -> str:
    """The intervals of a claim's statements as SVG."""
    keys = ("words", "low", "median", "high", "margin", "side", "verdict")
    rows = [Row(**{key: each[key] for key in keys}) for each in record["statements"]]
    caption = " ".join(f"{row.words}: {row.verdict}." for row in rows)
    return forest(record["title"], caption, rows)


def stored() -> list[dict[str, Any]]:
    """The records of claims in the package."""
    found = (records.load(name) for name in records.named("claim_"))
    return [record for record in found if record is not None]
