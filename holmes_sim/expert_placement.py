"""Place the experts of a plan on its ranks: rules and the mixed-integer programme, each with the step of the plan under it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from holmes_sim import commands
from planner.experts import rules
from planner.experts.layer_problems import LayerProblem, layer_problems
from planner.experts.problem import ExpertPlacement, ExpertProblem, PlacementCost, Ranks, cost
from planner.experts.search import PROVED, find
from planner.placement.simulation import fits
from planner.time_limit import TimeLimit
from sim.formats import expert_counts
from sim.plan.groups import group_ranks, with_transport
from sim.plan.plan import Plan
from sim.units import Bytes, Seconds, time_text
from sim.workload.expert_counts import ExpertCounts

RULES: dict[str, Callable[[ExpertProblem], ExpertPlacement]] = {
    "round-robin": rules.round_robin,
    "contiguous": rules.contiguous,
    "balanced": rules.balanced,
    "per node": rules.per_node,
}
"""Name -> rule; `contiguous` is what frameworks do without a placement."""
FORMAT = "holmes-sim/expert-placements/1"
PROGRAMME = "programme"
"""Name of the placement that the mixed-integer programme finds."""


@dataclass(frozen=True, slots=True)
class PlacedLayer:
    """The placement of one layer: for each of its blocks one with the same ranks and its own shares, and its cost. `bound`: no
    placement takes fewer seconds of the slowest block (0: unknown)."""

    problem: LayerProblem
    placements: tuple[ExpertPlacement, ...]
    costs: tuple[PlacementCost, ...]
    bound: Seconds = 0.0

    @property
    def slowest(self) -> int:
        """Index of the block that takes longest."""
        return max(range(len(self.costs)), key=lambda index: self.costs[index].total)

    @property
    def cost(self) -> PlacementCost:
        """Cost of the block that takes longest."""
        return self.costs[self.slowest]

    @property
    def even(self) -> Seconds:
        """Seconds of the exchanges of that block with equal shares among all ranks."""
        return self.problem.blocks[self.slowest].even

    @property
    def ranks(self) -> Ranks:
        """Experts of each rank of every ep group."""
        return self.placements[0].ranks


@dataclass(frozen=True, slots=True)
class PlacementRow:
    """A way of placing experts: its layers, and the plan with the imbalance and exchange that follow, simulated.

    Seconds and bytes are means over the layers; those of a layer are of its slowest block of ep groups."""

    name: str
    replicas: int
    layers: tuple[PlacedLayer, ...]
    plan: Plan

    def _mean(self, of: Callable[[PlacementCost], float]) -> float:
        return fmean(of(one.cost) for one in self.layers)

    @property
    def busiest(self) -> float:
        """Tokens of the busiest rank over the mean."""
        return self._mean(lambda found: found.busiest)

    @property
    def between_clusters(self) -> Bytes:
        """Bytes of one exchange from one cluster to another, the most of any."""
        return self._mean(lambda found: found.between_clusters)

    @property
    def out_of_node(self) -> Bytes:
        """Bytes of one exchange in or out of a node, the most of any."""
        return self._mean(lambda found: found.out_of_node)

    @property
    def exchange(self) -> Seconds:
        """Seconds of the exchanges of a layer and microbatch, forward and backward, on idle links."""
        return self._mean(lambda found: found.exchange)

    @property
    def experts(self) -> Seconds:
        """Seconds of the experts on the rank that takes longest, of a layer and microbatch."""
        return self._mean(lambda found: found.experts)

    @property
    def total(self) -> Seconds:
        """The objective: exchange and experts."""
        return self.exchange + self.experts

    @property
    def gap(self) -> float | None:
        """1 - bound / seconds, over all layers; None without a bound."""
        bound, seconds = sum(one.bound for one in self.layers), sum(one.cost.total for one in self.layers)
        return max(0.0, 1.0 - bound / seconds) if bound and seconds else None

    @property
    def is_optimal(self) -> bool:
        """Whether no placement with as many replicas takes less, by proof."""
        return self.gap is not None and self.gap <= PROVED

    @property
    def step(self) -> Seconds:
        """Simulated seconds of a step."""
        assert self.plan.prediction is not None
        return self.plan.prediction.step_s

    def facts(self) -> dict[str, Any]:
        """The row as plain data, without the placement."""
        return {
            "placement": self.name,
            "ep": self.plan.config.ep,
            "replicas": self.replicas,
            "busiest_rank_over_mean": self.busiest,
            "bytes_between_clusters": self.between_clusters,
            "bytes_out_of_node": self.out_of_node,
            "exchange_s": self.exchange,
            "experts_s": self.experts,
            "gap": self.gap,
            "step_s": self.step,
        }


@dataclass(frozen=True, slots=True)
class ExpertsPlaced:
    """All placements that were compared. `replica_bytes`: weights of the replicas on each rank."""

    plan: Plan
    counts: ExpertCounts
    rows: tuple[PlacementRow, ...]
    replica_bytes: Bytes
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        best, kinds = self.chosen, len(self.rows)
        return f"{self.plan.topology.name}: {kinds} placements of experts; chosen {best.name}, a step of {time_text(best.step)}"

    @property
    def chosen(self) -> PlacementRow:
        """The placement that is written: of those of the plan's own ep with all replicas that were allowed, the one with least
        seconds."""
        own = [row for row in self.rows if row.plan.config.ep == self.plan.config.ep]
        most = max(row.replicas for row in own)
        return min((row for row in own if row.replicas == most), key=lambda row: (row.total, row.name != PROGRAMME))

    def facts(self) -> dict[str, Any]:
        """The comparison as plain data (format holmes-sim/expert-placements/1)."""
        chosen = self.chosen
        return {
            "format": FORMAT,
            "origin": self.counts.origin,
            "rows": [row.facts() for row in self.rows],
            "chosen": {"placement": chosen.name, "ep": chosen.plan.config.ep, "replicas": chosen.replicas},
            "replica_bytes_per_rank": self.replica_bytes,
            "notes": list(self.notes),
        }


def place_experts(
    given: Plan,
    counts: ExpertCounts | str | Path,
    replicas: int = 0,
    time_limit: Seconds = 30.0,
    progress: Callable[[str], None] = lambda text: None,
) -> ExpertsPlaced:
    """Compare placements of the experts of a plan, without and with replicas, and ep groups inside nodes where they fit.

    `counts`: how many tokens chose each expert, or a file of that. `time_limit`: seconds of all mixed-integer programmes. The
    result has a row for each placement, `chosen` among them. Raises OptionError where plan, counts and replicas do not fit."""
    if not isinstance(counts, ExpertCounts):
        counts = expert_counts.load(counts)
    limit, notes = TimeLimit(time_limit), list[str]()
    inner = _fitting(inside_nodes(given), notes)
    sets = [(given, 0), *([(given, replicas)] if replicas else ()), *([(inner, 0)] if inner is not None else ())]
    problems = [layer_problems(plan, counts, number) for plan, number in sets]
    rows = list[PlacementRow]()
    for turn, ((plan, number), layers) in enumerate(zip(sets, problems, strict=True)):
        for name in RULES if turn == 0 else ("balanced",) if number else ("contiguous",):
            progress(_words(name, plan, number))
            rows.append(_row(plan, name, number, tuple(_by_rule(one, RULES[name]) for one in layers)))
        progress(_words(PROGRAMME, plan, number))
        left = TimeLimit(limit.seconds_left / (len(sets) - turn))
        rows.append(_row(plan, PROGRAMME, number, _by_programme(layers, left)))
    return ExpertsPlaced(given, counts, tuple(rows), _replica_bytes(given, replicas), tuple(notes))


def _fitting(inner: Plan | None, notes: list[str]) -> Plan | None:
    """The plan, with full recomputation where it needs that to fit the memory; None where it does not fit. Adds a note on
    it."""
    if inner is None or fits(inner):
        return inner
    of = f"With ep {inner.config.ep}, whose groups are inside nodes, the plan"
    full = replace(inner, config=inner.config.recomputing("full"))
    if fits(full):
        notes.append(f"{of} needs full recomputation to fit the memory; it is simulated with that.")
        return full
    notes.append(f"{of} does not fit the memory, with full recomputation neither.")
    return None


def _words(name: str, plan: Plan, replicas: int) -> str:
    return f"{name}, ep {plan.config.ep}" + (f", {replicas} replicas" if replicas else "")


def inside_nodes(given: Plan) -> Plan | None:
    """The plan with the largest smaller ep whose groups are each inside a node; None where its own are, or where none is."""
    for ep in range(given.config.ep, 1, -1):
        if given.config.ep % ep:
            continue
        config = replace(given.config, ep=ep)
        groups = tuple((kind, ranks, "all_to_all") for kind, ranks in group_ranks(config) if kind == "ep")
        if all(len(given.hosts(ranks)) == 1 for _, ranks, _ in groups):
            if ep == given.config.ep:
                return None
            others = tuple(group for group in given.groups if group.kind != "ep")
            own = tuple(with_transport(given.fleet, given.placement, groups))
            return replace(given, config=config, groups=(*own, *others), prediction=None, certificate=None)
    return None


def _replica_bytes(plan: Plan, replicas: int) -> Bytes:
    """Bytes of the weights of the replicas that one rank holds, on the pipeline rank with most layers with experts."""
    model = plan.workload.model
    of_layer = model.expert_parameters / max(model.experts, 1) / plan.config.expert_tp * replicas / plan.config.ep
    layers = max(
        sum(bool(kind.experts) for layer in own for _, kind in model.kinds(layer, layer + 1))
        for own in (
            [layer for stage in plan.stages_of(pp) for layer in range(plan.stages[stage].first, plan.stages[stage].past_last)]
            for pp in range(plan.config.pp)
        )
    )
    return of_layer * layers * plan.workload.bytes_per_value


def _by_rule(layer: LayerProblem, rule: Callable[[ExpertProblem], ExpertPlacement]) -> PlacedLayer:
    placement = rule(layer.blocks[0].problem)
    costs = tuple(cost(block.problem, placement) for block in layer.blocks)
    return PlacedLayer(layer, (placement,) * len(costs), costs)


def _by_programme(problems: tuple[LayerProblem, ...], limit: TimeLimit) -> tuple[PlacedLayer, ...]:
    """Placements of the programme, one for each different problem, in equal shares of the time that is left."""
    known: dict[object, PlacedLayer] = {}
    keys = [tuple(block.key for block in one.blocks) for one in problems]
    waiting = len(set(keys))
    for key, one in zip(keys, problems, strict=True):
        if key in known:
            continue
        blocks = tuple(block.problem for block in one.blocks)
        own = TimeLimit(max(limit.seconds_left, 0.0) / waiting)
        found = find(blocks, tuple(block.links for block in one.blocks), own)
        known[key] = PlacedLayer(one, found.placements, found.costs, found.bound)
        waiting -= 1
    return tuple(replace(known[key], problem=one) for key, one in zip(keys, problems, strict=True))


def _row(given: Plan, name: str, replicas: int, layers: tuple[PlacedLayer, ...]) -> PlacementRow:
    """The row, with the plan simulated under the mean imbalance and the mean exchange of its layers."""
    longest = max(1.0, fmean(one.cost.longest for one in layers))
    factors = [one.cost.exchange / one.even for one in layers if one.even]
    config = replace(given.config, imbalance=longest, exchange=fmean(factors) if factors else None)
    plan = replace(given, config=config, prediction=None, certificate=None)
    return PlacementRow(name, replicas, layers, plan.annotated(prediction=commands.simulate(plan).prediction))
