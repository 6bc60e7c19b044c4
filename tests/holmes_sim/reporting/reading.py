"""An independent reader of the page: its elements, and its numbers as people read them."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from html.parser import HTMLParser

UNITS = {
    "": 1.0, "%": 0.01, "s": 1.0, "ms": 1e-3, "us": 1e-6, "GiB": 2.0**30, "J": 1.0,
    "USD": 1e-6,  # per million tokens
}  # fmt: skip
VOID = {"meta", "link", "br", "input", "rect"}


@dataclass
class Element:
    tag: str
    attributes: dict[str, str]
    text: str = ""


@dataclass
class Page(HTMLParser):
    html: str
    elements: list[Element] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self._open: list[Element] = []
        self.feed(self.html)
        self.close()
        assert self._open == [], f"not closed: {self._open}"

    def handle_starttag(self, tag, attrs):
        element = Element(tag, {key: value or "" for key, value in attrs})
        self.elements.append(element)
        if tag not in VOID:
            self._open.append(element)

    def handle_startendtag(self, tag, attrs):
        self.elements.append(Element(tag, {key: value or "" for key, value in attrs}))

    def handle_endtag(self, tag):
        assert self._open and self._open[-1].tag == tag, f"</{tag}> closes {self._open[-1] if self._open else 'nothing'}"
        self._open.pop()

    def handle_data(self, data):
        for element in self._open:
            element.text += data

    def all(self, tag: str, **wanted: str) -> list[Element]:
        return [e for e in self.elements if e.tag == tag and all(e.attributes.get(k) == v for k, v in wanted.items())]

    def one(self, tag: str, **wanted: str) -> Element:
        (found,) = self.all(tag, **wanted)
        return found

    @property
    def spans(self) -> dict:
        return json.loads(self.one("script", id="spans").text)

    @property
    def numbers(self) -> dict[str, list[Element]]:
        found: dict[str, list[Element]] = {}
        for element in self.all("data"):
            found.setdefault(element.attributes["data-of"], []).append(element)
        return found


def lookup(document, path: str):
    """A fact by its place: keys of dictionaries, indices of lists."""
    for step in path.split("/"):
        document = document[int(step)] if isinstance(document, list | tuple) else document[step]
    return document


def read(text: str) -> tuple[float, float]:
    """(value, half a unit of the last digit that is shown) of `7.3 s`, `50.9%`, `215,449`."""
    number, unit = re.fullmatch(r"(-?[\d,]*\.?\d+(?:e[+-]\d+)?) ?([A-Za-z%]*)", text).groups()
    mantissa, _, power = number.replace(",", "").partition("e")
    _, _, decimals = mantissa.partition(".")
    scale = UNITS[unit] * 10.0 ** int(power or 0)
    return float(mantissa) * scale, 0.5 * 10.0 ** -len(decimals) * scale


def actions(spans: dict) -> list[list[tuple]]:
    """[(words, kind, stage, microbatch, start ns, end ns)] of every row."""
    rows = []
    for row in spans["rows"]:
        flat, clock, found = row["spans"], 0, []
        for at in range(0, len(flat), 5):
            ahead, length, word, stage, microbatch = flat[at : at + 5]
            clock += ahead
            found.append((*spans["words"][word], stage, microbatch, clock, clock + length))
        rows.append(found)
    return rows
