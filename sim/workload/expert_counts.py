"""How many tokens chose each expert, by layer and by where the tokens come from: what a router was seen to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Tokens = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class LayerCounts:
    """Tokens of one layer. `layer`: its number in the model, from 0; None: all layers that no other entry names.

    `by_source`: node ("ib/node0"), cluster ("ib") or "" (anywhere) -> tokens that chose each expert. `together`: (expert,
    expert, tokens that chose both), each pair once; pairs that are not listed were never chosen together. `where`: as of
    `ExpertCounts`."""

    layer: int | None
    by_source: Mapping[str, Tokens]
    together: tuple[tuple[int, int, float], ...] = ()
    where: str = field(default="counts", compare=False)

    def shares(self, cluster: str, node: int) -> Tokens | None:
        """Shares of the experts among the choices of tokens of a node; they add up to 1. None where nothing is known of it."""
        for source in (f"{cluster}/node{node}", cluster, ""):
            if source in self.by_source:
                tokens = self.by_source[source]
                whole = sum(tokens)
                return tuple(one / whole for one in tokens)
        return None

    @property
    def whole(self) -> float:
        """Choices of all tokens from everywhere."""
        return sum(map(sum, self.by_source.values()))


@dataclass(frozen=True, slots=True)
class ExpertCounts:
    """Counts of layers that all have equally many experts; `origin`: where they come from, in words; `where`: file, line and
    key, for error messages."""

    origin: str
    layers: tuple[LayerCounts, ...]
    where: str = field(default="counts", compare=False)

    @property
    def experts(self) -> int:
        """Number of experts of a layer."""
        return len(next(iter(self.layers[0].by_source.values())))

    def of(self, layer: int) -> LayerCounts | None:
        """Counts of a layer of the model: its own entry, or the one for all layers; None where there is neither."""
        own = {one.layer: one for one in self.layers}
        return own.get(layer, own.get(None))
