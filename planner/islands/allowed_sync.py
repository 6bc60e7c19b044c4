"""Which sync strategies a person allows between islands: the text of `--sync`, and the settings that follow from it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from sim import aggregation, compression, sync
from sim.errors import HolmesError, OptionError
from sim.sync import Sync
from sim.workload.model import Model

EXACT, ANY, FAMILY, MEAN = "exact", "any", "local-steps", "mean"
STEPS = (2, 4, 8, 16, 30, 64, 100, 200, 500, 1000)
"""Inner steps that are tried, with the largest allowed number; 30 and 100 are those of the published losses."""
USUAL_STEPS = 100
"""Most inner steps where none are given: the largest number with published losses (`sim.islands.token_worth`)."""
COMPRESSIONS = ("none", "bf16", "int8")
"""Compressions that are tried where none is named."""
MESSAGES = ("int8", "top-k=10%")
"""Compressions of messages between clusters that are tried where none is named: one that rounds every value, and one that drops
most of them."""
LAYERS_PER_FRAGMENT = 3
"""Layers of a fragment of streaming DiLoCo (arXiv 2501.18512, table 4)."""
OVERLAP_STEPS = 1
"""Inner steps beside an exchange of streaming DiLoCo, the number with a published loss (same paper, section 2.2)."""
_TEXT = re.compile(r"([a-z0-9_-]+)(?:(<=|=)([0-9]+))?((?:,[a-z0-9_-]+(?:=[^,]+)?){0,2})")


@dataclass(frozen=True, slots=True)
class AllowedSync:
    """Allowed sync strategies: their names, the inner steps, and the compressions that are tried. `exact`: plans without
    islands are allowed, too. `messages`: compressions of messages between clusters that are tried for these. `aggregation`: how
    the islands' values become one. `text` is what the person wrote."""

    text: str
    names: tuple[str, ...]
    steps: tuple[int, ...]
    compressions: tuple[str, ...]
    exact: bool
    messages: tuple[str, ...] = ()
    aggregation: str = MEAN

    def settings(self, model: Model) -> Iterator[Sync]:
        """All settings that are tried for a model."""
        for name in self.names:
            strategy = sync.get(name)
            for steps in self.steps if "inner_steps" in strategy.TAKES else (1,):
                fragments = overlap = 0
                if "fragments" in strategy.TAKES:
                    fragments, overlap = max(1, min(steps, round(model.layers / LAYERS_PER_FRAGMENT))), OVERLAP_STEPS
                for compressed in self.compressions if strategy.SENDS else ("none",):
                    how = self.aggregation if strategy.SENDS else MEAN
                    yield Sync(name, steps, overlap, fragments or 1, compressed, how)


def parse(text: str) -> AllowedSync:
    """What `exact`, `any`, `NAME`, `NAME<=STEPS` or `NAME=STEPS`, each of them also with `,COMPRESSION` and `,AGGREGATION`,
    allow. The compression of `exact` is that of messages between clusters.

    NAME is a sync strategy, or `local-steps`: all strategies with inner steps. `any` allows all that keep one model. With `<=`,
    `any` and `local-steps`, a plan without islands is allowed, too, but not with an aggregation, which such a plan has not.
    Raises OptionError."""
    match = _TEXT.fullmatch(text.strip())
    if match is None:
        raise _wrong(text, "it is not understood")
    name, sign, number, more = match.groups()
    if name == EXACT:
        if sign or more.count(",") > 1:
            raise _wrong(text, "exact takes no number and one compression, that of messages between clusters")
        messages = _of_messages(more.removeprefix(","), text)
        return AllowedSync(text, (), (), (), not messages, messages)
    compressed, how = _compression_and_aggregation(more.split(",")[1:], text)
    chosen = _names(name, text)
    has_steps = any("inner_steps" in sync.get(one).TAKES for one in chosen)
    if sign and (not has_steps or int(number) < 1):
        raise _wrong(text, f"{name} takes no number of steps" if not has_steps else "at least 1 inner step is needed")
    most = int(number) if sign else USUAL_STEPS
    steps = (most,) if sign == "=" else tuple(sorted({most, *(one for one in STEPS if one < most)}))
    exact = (name in (ANY, FAMILY) or sign == "<=") and sign != "=" and how == MEAN
    tried = (compressed,) if compressed else COMPRESSIONS
    messages = MESSAGES if name == ANY and how == MEAN else ()
    return AllowedSync(text, chosen, steps, tried, exact, messages, how)


def _of_messages(word: str, text: str) -> tuple[str, ...]:
    """The compression of messages that a word names, none without a word. Raises OptionError."""
    if word in ("", "none"):
        return ()
    try:
        compression.code(word, 2)
    except HolmesError as error:
        raise _wrong(text, str(error)) from None
    return (word,)


def _compression_and_aggregation(words: list[str], text: str) -> tuple[str, str]:
    """(compression, empty if none is named; aggregation) from the words behind a strategy. Raises OptionError."""
    hows = [word for word in words if word in aggregation.names()]
    compressed = [word for word in words if word not in hows]
    for word in compressed:
        if word.partition("=")[0] not in compression.REGISTRY.names:
            known = f"{', '.join(compression.names())}; {', '.join(aggregation.names())}"
            raise _wrong(text, f"{word} is neither a compression nor an aggregation; known: {known}")
    if len(hows) > 1 or len(compressed) > 1:
        raise _wrong(text, "one compression and one aggregation at most")
    for word in compressed:
        compression.get(word)
    return "".join(compressed), hows[0] if hows else MEAN


def _names(name: str, text: str) -> tuple[str, ...]:
    """The sync strategies of a word."""
    every = sync.names()
    if name == ANY:
        return tuple(one for one in every if sync.get(one).PRICE != "changed")
    if name == FAMILY:
        return tuple(one for one in every if "inner_steps" in sync.get(one).TAKES)
    if name not in every:
        raise _wrong(text, f"{name} is unknown; known: {EXACT}, {ANY}, {FAMILY}, {', '.join(every)}")
    return (name,)


def _wrong(text: str, why: str) -> OptionError:
    return OptionError(f"--sync {text!r}: {why}; write for example exact, any, local-steps<=64 or diloco=100,int8")
