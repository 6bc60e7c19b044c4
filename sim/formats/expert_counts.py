"""Reader of expert counts (`holmes-sim/expert-counts/1`): how many tokens chose each expert."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from sim.errors import OptionError, TopologyError
from sim.formats.documents import Document, KeyPath, check, key_text, parse, read_text
from sim.formats.fields import StrictModel, Whole
from sim.workload.expert_counts import ExpertCounts, LayerCounts

SOURCES = ("tokens", "by_cluster", "by_node")
"""Keys for tokens from anywhere, by cluster and by node; an entry has one of them."""


class LayerCountsFacts(StrictModel):
    """Tokens that chose each expert of a layer. `layer`: its number in the model, from 0; without it, the entry is for all
    layers that have none of their own. One of `tokens` (from anywhere), `by_cluster` and `by_node` (cluster, or node such as
    ib/node0 -> tokens that its ranks sent to each expert). `together`: [expert, expert, tokens that chose both]."""

    layer: Whole | None = None
    tokens: tuple[Whole, ...] | None = None
    by_cluster: dict[str, tuple[Whole, ...]] | None = None
    by_node: dict[str, tuple[Whole, ...]] | None = None
    together: tuple[tuple[Whole, Whole, Whole], ...] = ()


class ExpertCountsFacts(StrictModel):
    """How many tokens chose each expert. `origin`: where the numbers come from, in words."""

    format: Literal["holmes-sim/expert-counts/1"]
    origin: str
    layers: list[LayerCountsFacts]


def load(path: str | Path) -> ExpertCounts:
    """The counts of a file. Raises OptionError with one line per fault."""
    return from_text(str(path), read_text(path, OptionError))


def from_text(name: str, text: str) -> ExpertCounts:
    """The counts of a text; `name` is the file in error messages. Raises OptionError with one line per fault."""
    try:
        document = parse(name, text)
        facts = check(document, ExpertCountsFacts, _faults(document))
    except TopologyError as error:
        raise OptionError(str(error)) from None
    layers = (_layer(one, _where(document, ("layers", index))) for index, one in enumerate(facts.layers))
    return ExpertCounts(facts.origin, tuple(layers), _where(document, ("layers",)))


def _where(document: Document, path: KeyPath) -> str:
    return f"{document.name}:{document.line(path)}: {key_text(path)}"


def _layer(facts: LayerCountsFacts, where: str) -> LayerCounts:
    written = {"": facts.tokens} if facts.tokens else facts.by_cluster or facts.by_node or {}
    by_source = {name: tuple(map(float, tokens)) for name, tokens in written.items() if tokens}
    pairs = ((*sorted(pair[:2]), float(pair[2])) for pair in facts.together)
    return LayerCounts(facts.layer, by_source, tuple(pairs), where)  # type: ignore[arg-type]  # sorted pairs of two


def _faults(document: Document) -> Iterator[tuple[KeyPath, str]]:
    """Faults that concern several keys; values of wrong types are left to the schema."""
    layers = document.value.get("layers") if isinstance(document.value, dict) else None
    if not isinstance(layers, list):
        return
    if not layers:
        yield ("layers",), "at least one entry is needed"
    sizes: dict[int, KeyPath] = {}
    seen: dict[object, int] = {}
    for index, layer in enumerate(layers):
        if not isinstance(layer, dict):
            continue
        number = layer.get("layer")
        if seen.setdefault(number, index) != index:
            which = "all layers" if number is None else f"layer {number}"
            yield ("layers", index), f"layers[{seen[number]}] is already for {which}; one entry for each"
        given = [key for key in SOURCES if layer.get(key) is not None]
        if len(given) != 1:
            yield ("layers", index), f"give one of {', '.join(SOURCES)}, not {' and '.join(given) or 'none'}"
            continue
        yield from _token_faults(("layers", index), layer, given[0], sizes)
        yield from _pair_faults(("layers", index, "together"), layer.get("together", []), max(sizes, default=0))


def _token_faults(at: KeyPath, layer: dict[str, Any], key: str, sizes: dict[int, KeyPath]) -> Iterator[tuple[KeyPath, str]]:
    written = layer[key]
    lists = {(*at, key): written} if key == "tokens" else {}
    if key != "tokens" and isinstance(written, dict):
        lists = {(*at, key, str(name)): tokens for name, tokens in written.items()}
        if not lists:
            yield (*at, key), "at least one source is needed"
    for where, tokens in lists.items():
        if not isinstance(tokens, list) or not all(type(one) is int and one >= 0 for one in tokens):
            continue
        if not sum(tokens):
            yield where, "no expert was chosen; give a number of tokens for each expert"
            continue
        sizes.setdefault(len(tokens), where)
        if len(sizes) > 1:
            first = next(iter(sizes))
            yield where, f"{len(tokens)} experts, but the first list has {first}; a number for each expert"
            del sizes[len(tokens)]


def _pair_faults(at: KeyPath, pairs: object, experts: int) -> Iterator[tuple[KeyPath, str]]:
    seen: set[frozenset[int]] = set()
    for index, pair in enumerate(pairs if isinstance(pairs, list) else ()):
        if not isinstance(pair, list) or len(pair) != 3 or not all(type(one) is int for one in pair):
            continue
        if pair[0] == pair[1] or max(pair[:2]) >= experts:
            yield (*at, index), f"{pair}: two different experts below {experts} are expected, and the tokens that chose both"
        elif frozenset(pair[:2]) in seen:
            yield (*at, index), f"{pair}: the pair is given twice"
        seen.add(frozenset(pair[:2]))
