"""HTML fragments: escaped text, numbers with a reference to their source, tables that scroll in their own box.

A number of the page is `<data value="7.3002" data-of="plan/prediction/step_s">7.3 s</data>`: the shown text, the exact value,
and its path in a document. `plan` is the plan file, `explanation` the output of `simulate --explain --json`, `comparison` the
output of `compare --json`, `pipeline_ranks` the times of each pipeline rank. On the page of a plan of islands, `plan` is
islands.json, `simulation` the output of `simulate --json`, and paths that begin with `islands/0/` are those of island 0. A test
compares every number with its document.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape

LONG = ("what", "layout")
"""Columns with sentences, which may wrap."""


def number(of: str, value: float, text: str) -> str:
    """A number as shown, with its exact value and its path in a document."""
    return f'<data value="{value!r}" data-of="{escape(of)}">{escape(text)}</data>'


def chip(pp_rank: int) -> str:
    """A square with the number and colour of a stage."""
    return f'<span class="chip" style="background:var(--p{pp_rank});color:var(--p{pp_rank}-ink)">{pp_rank}</span>'


def island_chip(index: int) -> str:
    """A square with the number and colour of an island."""
    return f'<span class="chip" style="background:var(--i{index});color:var(--i{index}-ink)">{index}</span>'


def bar(kind: str, share: float, text: str) -> str:
    """A part of a stacked bar in the colour of a kind of seconds; its text is hidden if it does not fit."""
    words = escape(text)
    return f'<span class="part k-{escape(kind)}" style="width:{100 * share:.3f}%" title="{words}"><span>{words}</span></span>'


def table(
    headers: Sequence[str], rows: Iterable[Sequence[str]], caption: str, words: Iterable[str] = (), last: str = ""
) -> str:
    """A table whose cells are HTML; columns in `words` are left-aligned. `last` is the class of the last row."""
    left = set(words)
    looks = ["words long" if header in LONG else "words" if header in left else "" for header in headers]
    classes = [f' class="{look}"' if look else "" for look in looks]
    head = "".join(f'<th scope="col"{kind}>{escape(header)}</th>' for header, kind in zip(headers, classes, strict=True))
    lines = list(rows)
    body = []
    for index, row in enumerate(lines):
        cells = "".join(f"<td{kind}>{cell}</td>" for cell, kind in zip(row, classes, strict=True))
        body.append(f'<tr class="{last}">{cells}</tr>' if last and index == len(lines) - 1 else f"<tr>{cells}</tr>")
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}"><table><caption>{escape(caption)}'
        f"</caption><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table></div>"
    )


def details(summary: str, inside: str) -> str:
    """Content that is shown on demand."""
    return f"<details><summary>{escape(summary)}</summary>{inside}</details>"


def listing(items: Iterable[str]) -> str:
    """A list of sentences."""
    return "<ul>" + "".join(f"<li>{prose(item)}</li>" for item in items) + "</ul>"


def prose(text: str) -> str:
    """A sentence with `code` in backquotes."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text, quote=False))


def code(text: str) -> str:
    """Lines to copy."""
    return f'<pre tabindex="0"><code>{escape(text, quote=False)}</code></pre>'


def markdown(text: str) -> str:
    """HTML of the Markdown that launches use: paragraphs, fenced code, lists of one level, `code` in a line."""
    found = []
    for index, block in enumerate(re.split(r"^```[a-z]*\n?", text.strip(), flags=re.MULTILINE)):
        if index % 2:
            found.append(code(block.strip("\n")))
            continue
        for paragraph in re.split(r"\n\s*\n", block.strip()):
            if re.match(r"(-|\d+\.) ", paragraph):
                kind = "ul" if paragraph.startswith("-") else "ol"
                items = re.split(r"^(?:-|\d+\.) ", paragraph, flags=re.MULTILINE)[1:]
                found.append(
                    f"<{kind}>" + "".join(f"<li>{prose(' '.join(item.split()))}</li>" for item in items) + f"</{kind}>"
                )
            elif paragraph:
                found.append(f"<p>{prose(paragraph)}</p>")
    return "".join(found)
