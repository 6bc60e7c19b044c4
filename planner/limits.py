"""Limits that a person sets to the plan: values of its dimensions, devices, rent, and the clusters of its stages."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from planner.kept_ranks import KeptRanks
from planner.training_time import TrainingTime
from sim.hardware.cluster import Cluster, Fleet
from sim.plan.allowed import Allowed
from sim.plan.offloading import choice_of
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import Plan
from sim.results.cost_energy import occupied
from sim.units import MEGA, UsdPerSecond, UsdPerToken

HOUR = 3600.0
"""Seconds of an hour."""


class Layout(Protocol):
    """What limits need of a shape (`planner.space.shape`), beside its dimensions."""

    @property
    def tp(self) -> int:
        """Tensor-parallel degree."""

    @property
    def least_tp(self) -> int:
        """The least tensor-parallel degree of any cluster."""

    @property
    def slots(self) -> int:
        """Number of slots (tensor-parallel groups) of one stage."""

    def tp_on(self, cluster: str) -> int:
        """Tensor-parallel degree of the stages on a cluster."""


Dimensions = tuple[tuple[str, Allowed], ...]
"""The allowed values of each dimension that is limited."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a plan must keep to.

    dimensions: allowed values, by the names of `planner.request.Wishes`; on_clusters: more of them, for plans that use a
    cluster, and only of tp, dp, cp, ep, etp, microbatch_size and recompute (bounds of families of shapes have no others, and
    `planner.bounds.total_work` no dp). devices: most devices with a rank. rent: most rent of the nodes with a rank
    (`sim.results.cost_energy`). cost: most rent of a step for each of its tokens, which only a simulated plan has
    (`planner.pareto_front.within_cost`). first, last: the cluster of the first and of the last pipeline stage; empty for any.
    stages: (number, cluster) of further pipeline ranks, from 0 on, or from the end with -1 for the last one; a pipeline must
    have each of them. applied: what the topology already keeps to, in words. training: most days of a training run, which a
    simulated plan is compared with. nodes: allowed numbers of nodes with a rank, of a cluster; a cluster of which 0 is not
    allowed must be used. ranks: weights that stay on their devices; plans that keep them have a search of their own
    (`planner.search.kept_ranks`)."""

    dimensions: Dimensions = ()
    on_clusters: tuple[tuple[str, Dimensions], ...] = ()
    devices: int | None = None
    rent: UsdPerSecond | None = None
    cost: UsdPerToken | None = None
    first: str = ""
    last: str = ""
    stages: tuple[tuple[int, str], ...] = ()
    applied: tuple[str, ...] = ()
    training: TrainingTime | None = None
    nodes: tuple[tuple[str, Allowed], ...] = ()
    ranks: KeptRanks | None = None

    def allows(self, name: str, value: int | str | None) -> bool:
        """Whether a value of a dimension is allowed on every cluster."""
        return all(allowed.holds(value) for dimension, allowed in self.dimensions if dimension == name)

    def listed(self, name: str) -> tuple[int | str, ...]:
        """The listed values of a dimension; empty where it is free or has a range."""
        return next((allowed.values for dimension, allowed in self.dimensions if dimension == name), ())

    def allows_shape(self, shape: Layout, but: tuple[str, ...] = ()) -> bool:
        """Whether all values of a shape are allowed, `but` those of some dimensions, and one stage of it has no more devices
        than allowed."""
        if self.devices is not None and shape.least_tp * shape.slots > self.devices:
            return False
        return all(_holds(shape, name, allowed) for name, allowed in self.dimensions if name != "pp" and name not in but)

    def allows_on(self, cluster: str, shape: Layout, but: tuple[str, ...] = ()) -> bool:
        """Whether a plan of a shape may use a cluster, `but` for some dimensions."""
        dimensions = next((found for name, found in self.on_clusters if name == cluster), ())
        return all(_holds(shape, name, allowed) for name, allowed in dimensions if name not in but)

    def most_stages(self, shape: Layout) -> int | None:
        """The longest pipeline of a shape that pp and the devices allow; None where they do not limit it."""
        most = [max(map(int, allowed.values), default=allowed.most) for name, allowed in self.dimensions if name == "pp"]
        if self.devices is not None:
            most.append(self.devices // (shape.least_tp * shape.slots))
        return min((one for one in most if one is not None), default=None)

    @property
    def least_stages(self) -> int:
        """The shortest pipeline that is allowed."""
        least = [min(map(int, allowed.values), default=allowed.least) for name, allowed in self.dimensions if name == "pp"]
        return max((one for one in (*least, self._least_kept) if one is not None), default=1)

    @property
    def _least_kept(self) -> int:
        """The shortest pipeline that has all stages that are kept on a cluster."""
        return max((number + 1 if number >= 0 else -number for number, _ in self.stages), default=1)

    def _can_keep(self, pp: int) -> bool:
        """Whether some pipeline of pp stages has all kept stages: those of a cluster follow one another, so that it does not
        come again behind another one, and no stage is on two clusters."""
        ends = ((0, self.first), (pp - 1, self.last))
        kept = {(number % pp, name) for number, name in (*ends, *self.stages) if name}
        names = [name for _, name in sorted(kept)]
        runs = [name for name, _ in itertools.groupby(names)]
        return len(runs) == len(set(names)) and len({number for number, _ in kept}) == len(kept)

    def allows_number(self, pp: int) -> bool:
        """Whether a pipeline of some shape may have pp stages."""
        return self.allows("pp", pp) and pp >= self._least_kept and self._can_keep(pp)

    def allows_length(self, shape: Layout, pp: int) -> bool:
        """Whether a pipeline of a shape may have pp stages."""
        return self.allows_number(pp) and (self.devices is None or pp * shape.least_tp * shape.slots <= self.devices)

    def stages_on(self, cluster: Cluster, shape: Layout) -> int | None:
        """Most stages of a shape on a cluster that the rent allows; None where it does not limit them."""
        if self.rent is None:
            return None
        return (
            int(self.rent * (1 + 1e-12) / node_rent(cluster)) * (cluster.node.count // shape.tp_on(cluster.name)) // shape.slots
        )

    def most_nodes(self, cluster: Cluster) -> int:
        """Most nodes of a cluster that may have a rank."""
        most = [max(map(int, allowed.values), default=allowed.most) for name, allowed in self.nodes if name == cluster.name]
        return min([cluster.nodes, *(one for one in most if one is not None)])

    def allows_nodes(self, fleet: Fleet, shape: Layout, stages: Mapping[str, int]) -> bool:
        """Whether the nodes of a pipeline are allowed and within the rent; `stages`: number of its stages on each cluster."""
        if self.rent is None and not self.nodes:
            return True
        used = dict[str, int]()
        for name, count in stages.items():
            used[name] = -(-count * shape.slots // (fleet.cluster(name).node.count // shape.tp_on(name)))
        if not all(allowed.holds(used.get(name, 0)) for name, allowed in self.nodes):
            return False
        rents = (count * node_rent(fleet.cluster(name)) for name, count in used.items())
        return self.rent is None or sum(rents) <= self.rent * (1 + 1e-12)

    def uses_enough(self, clusters: Iterable[str]) -> bool:
        """Whether a plan on these clusters has a rank on each cluster that must be used."""
        used = set(clusters)
        return all(name in used or allowed.holds(0) for name, allowed in self.nodes)

    def allows_ends(self, first: str, last: str) -> bool:
        """Whether a pipeline may begin and end on these clusters."""
        return self.first in ("", first) and self.last in ("", last)

    def allows_stages(self, clusters: Sequence[str]) -> bool:
        """Whether a pipeline with its ranks on these clusters has each stage on the cluster where it is kept."""
        ends, pp = self.allows_ends(clusters[0], clusters[-1]), len(clusters)
        return ends and all(-pp <= number < pp and clusters[number] == name for number, name in self.stages)

    def words(self) -> Iterator[str]:
        """Each limit as text: `tp at most 4`, `devices at most 64`."""
        yield from self.applied
        yield from (f"{name} {allowed}" for name, allowed in self.dimensions)
        yield from (f"{name} {allowed} on cluster {cluster}" for cluster, of in self.on_clusters for name, allowed in of)
        yield from (f"nodes {allowed} on cluster {cluster}" for cluster, allowed in self.nodes)
        if self.devices is not None:
            yield f"devices at most {self.devices}"
        if self.rent is not None:
            yield f"rent at most {self.rent * HOUR:.6g} USD/h"
        if self.cost is not None:
            yield f"cost at most {self.cost * MEGA:.6g} USD/Mtoken"
        if self.training is not None:
            yield str(self.training)
        if self.first:
            yield f"first stage on cluster {self.first}"
        if self.last:
            yield f"last stage on cluster {self.last}"
        yield from (f"stage {number} on cluster {name}" for number, name in self.stages)
        if self.ranks is not None:
            yield str(self.ranks)

    def faults(self, plan: Plan) -> Iterator[str]:
        """What a plan does not keep to, each as text."""
        config = plan.config
        for name, allowed in self.dimensions:
            for value in _values(config, name, range(config.pp)):
                if not allowed.holds(value):
                    yield f"{name} {value}, which should be {allowed}"
        used = {cluster.name: devices // cluster.node.count for cluster, devices in occupied(plan)}
        for cluster, dimensions in self.on_clusters:
            for name, allowed in dimensions if cluster in used else ():
                for value in _values(config, name, _stages_on(plan, cluster)):
                    if not allowed.holds(value):
                        yield f"{name} {value} on cluster {cluster}, where it should be {allowed}"
        for cluster, allowed in self.nodes:
            if not allowed.holds(used.get(cluster, 0)):
                yield f"{used.get(cluster, 0)} nodes on cluster {cluster}, where there should be {allowed}"
        if self.devices is not None and len(plan.placement) > self.devices:
            yield f"{len(plan.placement)} devices, more than {self.devices}"
        if self.rent is not None:
            rent = sum(devices // cluster.node.count * node_rent(cluster) for cluster, devices in occupied(plan))
            if rent > self.rent * (1 + 1e-12):
                yield f"rent of {rent * HOUR:.4g} USD/h, more than {self.rent * HOUR:.4g}"
        cost = plan.prediction.usd_per_token if plan.prediction is not None else None
        if self.cost is not None and cost is not None and cost > self.cost * (1 + 1e-12):
            yield f"a cost of {cost * MEGA:.4g} USD/Mtoken, more than {self.cost * MEGA:.4g}"
        late = self.training.fault(plan) if self.training is not None else ""
        if late:
            yield late
        kept = [("the first stage", 0, self.first), ("the last stage", config.pp - 1, self.last)]
        for name, number, wished in (*kept, *((f"stage {number}", number, wished) for number, wished in self.stages)):
            stage = number if number >= 0 else config.pp + number
            if wished and not 0 <= stage < config.pp:
                yield f"{config.pp} stages, without {name}, which should be on {wished}"
                continue
            on = {device.cluster for device in plan.placement[config.first_rank(stage) : config.first_rank(stage + 1)]}
            if wished and on != {wished}:
                yield f"{name} on {' and '.join(sorted(on))}, not on {wished}"
        moved = self.ranks.fault(plan) if self.ranks is not None else ""
        if moved:
            yield moved


NO_LIMITS = Limits()


def node_rent(cluster: Cluster) -> UsdPerSecond:
    """Rent of the devices of one node, whose price must be known."""
    assert cluster.node.device.price is not None
    return cluster.node.count * cluster.node.device.price


def _stages_on(plan: Plan, cluster: str) -> list[int]:
    """The pipeline ranks with a rank on a cluster."""
    ends = itertools.pairwise(plan.config.first_rank(pp_rank) for pp_rank in range(plan.config.pp + 1))
    held = (plan.placement[first:past] for first, past in ends)
    return [pp_rank for pp_rank, devices in enumerate(held) if any(device.cluster == cluster for device in devices)]


def _values(config: ParallelConfig, name: str, pp_ranks: Iterable[int]) -> list[int | str | None]:
    """The values of a dimension on some pipeline ranks, each once; the degrees that may differ in rising order."""
    if name not in ("tp", "dp"):
        return [_of(config, name)]
    return [*sorted(set(map(config.tp_of if name == "tp" else config.dp_of, pp_ranks)))]


def _holds(shape: Layout, name: str, allowed: Allowed) -> bool:
    return name == "pp" or allowed.holds(_of(shape, name))


def _of(layout: object, name: str) -> int | str | None:
    """The value of a dimension of a shape or of a configuration; a schedule without its list, recomputation as of a shape, an
    etp that is left out as tp, and none where nothing is offloaded."""
    value: int | str | None = getattr(layout, name)
    if name == "etp":
        return value or getattr(layout, "tp", None)
    if name == "offload":
        return choice_of(getattr(layout, name))
    if name == "recompute":
        return getattr(layout, "recomputation", value)
    return value.partition("=")[0] if isinstance(value, str) else value
