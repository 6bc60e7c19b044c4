"""The steady state of a pipeline is periodic: what happens in one period is told again and again, without playing it.

Replicas meet in gradient collectives only, so between the opening of a step and its closing each goes its own way: `components`
are the classes of ranks that messages, other collectives or a shared link join. The future of a component follows from its
state: where every rank is in its program, since when and until when it does what it does, which messages and collectives are
under way, how far they are, and who has come to them. Where two states are the same but for the microbatches' numbers (equal
things happened equally long ago), and all programs go on to repeat what they did between them, so does the component. Then
the spans between both moments are copied as often as the programs repeat, and all that is under way is put off until behind the
last copy, while other components play on. This is exact but for the rounding of times (`ROUNDING`); where no state comes again
nothing is left out.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from sim.engine.symmetry import Folding
from sim.engine.timeline import Span
from sim.plan.plan import ParallelConfig
from sim.units import Seconds

ROUNDING = 1e-13
"""Times that differ by less than this part of the time gone by are equal: some hundred roundings of a double."""

GRADIENTS = ("dp", "edp")
"""Kinds of groups that gradients are reduced over, and weights gathered."""


def components(folding: Folding, config: ParallelConfig) -> tuple[tuple[int, ...], ...]:
    """The classes of ranks, those together that carriers or links join; carriers of gradients and their links do not join.

    All are together where gradients are reduced in every microbatch, or where some gradient collective goes on without one of
    the components: it could run, and take the network from others, while that one is put off."""
    together = (tuple(range(len(folding.representatives))),)
    if config.reduces_each_microbatch:
        return together
    towards: dict[int, int] = {}  # union-find; links have numbers below 0

    def root(node: int) -> int:
        while (above := towards.setdefault(node, node)) != node:
            towards[node] = node = towards[above]
        return node

    gradients = {index for key, index in folding.of.items() if key[0] in GRADIENTS}
    for index, carrier in enumerate(folding.carriers):
        if index not in gradients:
            links = [~link for route in carrier.routes for leg in route.legs for link, _ in leg.use]
            for node in (*carrier.members, *links):
                towards[root(node)] = root(carrier.members[0])
    found: dict[int, list[int]] = {}
    for member in together[0]:
        found.setdefault(root(member), []).append(member)
    if any(len({root(member) for member in folding.carriers[index].members}) < len(found) for index in gradients):
        return together
    return tuple(tuple(part) for part in found.values())


@dataclass(frozen=True, slots=True)
class Moment:
    """The state of a component at a time. `shape` and `times` (seconds from now) count microbatches from `microbatch` and its
    spans from `spans`, the number there are; `pieces` are the places of its ranks in their programs."""

    now: Seconds
    microbatch: int
    spans: int
    pieces: tuple[int, ...]
    shape: tuple[Hashable, ...]
    times: tuple[Seconds, ...]

    def repeats(self, earlier: Moment) -> bool:
        """Whether the component is where it was, `microbatch` and `pieces` aside."""
        dust = ROUNDING * self.now
        return self.shape == earlier.shape and all(abs(a - b) <= dust for a, b in zip(self.times, earlier.times, strict=True))


@dataclass(frozen=True, slots=True)
class Jump:
    """What a component did since its span `first` happens `times` more, each time `seconds` and `microbatches` later."""

    first: int
    times: int
    seconds: Seconds
    microbatches: int


Name: TypeAlias = tuple[str, int, str | None]
"""The name of a span: what stands before and behind the number of its microbatch; None where the name has no number."""


def tell(spans: list[Span], own: list[int], names: Mapping[int, Name], jump: Jump) -> None:
    """Add the spans that a jump leaves out to those of the run, and their numbers to `own`, those of the component.

    A copy stands as far behind the copy that it came after as its original does."""
    place = {number: index for index, number in enumerate(own)}
    period = [(spans[own[index]], names[own[index]], index - place.get(spans[own[index]].after, index))
              for index in range(jump.first, len(own))]  # fmt: skip
    for time in range(1, jump.times + 1):
        late, skipped = time * jump.seconds, time * jump.microbatches
        for (rank, lane, _, kind, start, end, stage, microbatch, group, after), (head, number, tail), back in period:
            after, start = (own[-back], spans[own[-back]].end) if back else (after, start + late)
            name = head if tail is None else f"{head}{number + skipped}{tail}"
            microbatch = microbatch + skipped if stage >= 0 else -1
            own.append(len(spans))
            spans.append(Span(rank, lane, name, kind, start, end + late, stage, microbatch, group, after))
