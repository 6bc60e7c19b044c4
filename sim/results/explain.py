"""Explanation of a simulated step: seconds by kind on every rank, and the critical path that determines the step.

Each of the two adds up to the step. **By rank**: every second is compute (forward, backward, recomputation, optimizer), exposed
copies of activations to the host and back (offload), exposed communication by kind of group, or bubble (waiting for others).
**Critical path**: from the action that ends last, back to the start along `Span.after`, the event that each span waited for:
the previous action of the rank, the message received, or, before a collective, the arrival of its last rank. A second saved off
the path saves nothing. If several paths end together, one is reported.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeAlias

from sim import markup
from sim.analytic import stage_costs
from sim.engine.rank_plans import RankPlans
from sim.engine.timeline import Span, Timeline
from sim.kernels import compute
from sim.kernels.compute import KernelTime
from sim.plan.offloading import ACTIVATIONS
from sim.plan.pipelines import PipelinesPlan
from sim.plan.plan import Plan
from sim.results.chain import WORDS, Passage, chain
from sim.results.sums import Sums, seconds_by_rank
from sim.units import Seconds, time_text

KINDS = (
    "forward", "backward", "recompute", "offload", "optimizer", "tp", "cp", "etp", "ep", "pp", "dp", "edp", "embedding",
    "bubble",
)  # fmt: skip
"""Kinds of seconds in display order; groups of other kinds follow."""
Shares: TypeAlias = dict[str, tuple[tuple[str, float], ...]]
"""Kind of compute -> (kind, fraction) of the parts of its seconds that are of other kinds."""


@dataclass(frozen=True, slots=True)
class Account:
    """Seconds by kind: of `rank`, which represents `ranks` equal ranks, or of a pipeline rank on the critical path.

    `pipeline`: index of the plan of its pipeline where pipelines are unlike, else -1."""

    pp_rank: int
    rank: int
    ranks: int
    seconds: tuple[tuple[str, Seconds], ...]
    pipeline: int = -1

    @property
    def stage(self) -> str:
        """Its pipeline rank as text, after its pipeline where pipelines are unlike: `0`, or `pipeline 1: 0`."""
        return str(self.pp_rank) if self.pipeline < 0 else f"pipeline {self.pipeline}: {self.pp_rank}"

    def facts(self) -> dict[str, Any]:
        """Pipeline (where pipelines are unlike), stage and seconds as plain data."""
        own = {"pipeline": self.pipeline} if self.pipeline >= 0 else {}
        return own | {"stage": self.pp_rank, "seconds": dict(self.seconds)}

    def of(self, kind: str) -> Seconds:
        """Seconds of a kind; 0 if there are none."""
        return dict(self.seconds).get(kind, 0.0)

    @property
    def total(self) -> Seconds:
        """Sum of all seconds."""
        return sum(seconds for _, seconds in self.seconds)


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer and microbatch on a type of device, kernel by kernel; the engine uses its forward and backward seconds.

    They exceed the sum of the kernels if the host launches kernels more slowly than the device runs them, and are unrelated to
    it if they come from a profile (`measured`). Neither includes recomputation or communication.
    """

    device: str
    forward: Seconds
    backward: Seconds
    kernels: tuple[KernelTime, ...]
    measured: bool = False


@dataclass(frozen=True, slots=True, repr=False)
class Explanation:
    """Explanation of a step: each of `ranks` adds up to the step; so do all of `path` together and all of `chain` together."""

    step_s: Seconds
    ranks: tuple[Account, ...]
    path: tuple[Account, ...]
    chain: tuple[Passage, ...]
    layers: tuple[Layer, ...]

    def __repr__(self) -> str:
        shares = ", ".join(f"{kind} {seconds / self.step_s:.1%}" for kind, seconds in self.mean)
        return f"a step of {time_text(self.step_s)}, of a mean rank: {shares}"

    def _repr_html_(self) -> str:
        kinds = [kind for kind, _ in self.mean]
        return markup.table(
            repr(self),
            [
                {"pipeline rank": account.stage, "ranks": account.ranks}
                | {f"{kind} (s)": f"{account.of(kind):.4g}" for kind in kinds}
                for account in self.ranks
            ],
        )

    @property
    def mean(self) -> tuple[tuple[str, Seconds], ...]:
        """Seconds by kind, mean over ranks."""
        world = sum(account.ranks for account in self.ranks)
        return _ordered((kind, s * account.ranks / world) for account in self.ranks for kind, s in account.seconds)

    def facts(self) -> dict[str, Any]:
        """Plain data, as `holmes-sim simulate --explain --json` prints them."""
        return {
            "step_s": self.step_s,
            "ranks": [a.facts() | {"rank": a.rank, "ranks": a.ranks} for a in self.ranks],
            "mean": dict(self.mean),
            "critical_path": [a.facts() for a in self.path],
            "chain": [{"start_s": p.start, "seconds": p.seconds, "what": p.text} for p in self.chain],
            "layers": [asdict(layer) for layer in self.layers],
        }


def explain(plan: Plan | PipelinesPlan, timeline: Timeline) -> Explanation:
    """Explain every second of a simulated step, by rank and along the critical path."""
    ranks, plans = [], RankPlans(plan)
    sums = seconds_by_rank(timeline)
    for group in timeline.alike:
        seconds = _rank_seconds(sums[group[0]], shares(*plans.of(group[0])))
        pipeline, pp_rank = plans.stage_of(group[0])
        ranks.append(Account(pp_rank, group[0], len(group), seconds, pipeline))
    path = critical_path(timeline)
    on_path: dict[tuple[int, int], list[tuple[str, Seconds]]] = {}
    for span in path:
        other = shares(*plans.of(span.rank))
        on_path.setdefault(plans.stage_of(span.rank), []).extend(_split(span.kind, span.group, span.seconds, other))
    accounts = (Account(at[1], -1, 0, _ordered(on_path[at]), at[0]) for at in sorted(on_path))
    in_order = sorted(ranks, key=lambda account: (account.pipeline, account.pp_rank, account.rank))
    return Explanation(timeline.step_s, tuple(in_order), tuple(accounts), chain(plan, timeline, path), _layers(plans.plans))


def _layers(plans: Iterable[Plan]) -> tuple[Layer, ...]:
    """One layer, of the kind that the model has most of, on every type of device that plans use; of a type in several plans as
    the first of them has it."""
    found: dict[str, Layer] = {}
    for plan in plans:
        once, workload = plan.config.recomputing("none"), plan.workload.usual
        for device in dict.fromkeys(plan.fleet.spec(device) for device in plan.placement):
            kernels = compute.kernel_times(device, workload, once)
            measured = compute.measured(device, workload, once) is not None
            seconds = compute.layer_seconds(device, workload, once)
            found.setdefault(device.name, Layer(device.name, *seconds, kernels, measured))
    return tuple(found.values())


def critical_path(timeline: Timeline) -> tuple[Span, ...]:
    """Contiguous spans from the start of a simulated step to its end, each of which waited for the previous one.

    Of several spans that end with the step, one that waited for its own rank is preferred.
    """
    spans = timeline.spans
    work = [span for span in spans if span.lane != "wait"]
    found = [max(work, key=lambda span: (span.end, span.after >= 0 and spans[span.after].rank == span.rank))]
    while found[-1].after >= 0:
        found.append(spans[found[-1].after])
    return tuple(reversed(found))


def shares(plan: Plan, rank: int) -> Shares:
    """Fractions of a rank's forward and backward seconds spent on recomputation and on waits for copies of activations."""
    if plan.config.recompute == "none" and not plan.config.offloads_activations:
        return {}
    device, stages = plan.fleet.spec(plan.placement[rank]), plan.stages_of(plan.config.coordinates(rank)[2])
    config, workload = plan.config_of(stages), plan.workload_of(stages)
    layers = sum(plan.stages[stage].layers for stage in stages)
    ends = plan.ends(stages)
    kept = replace(config, offload=tuple(word for word in config.offload if word != ACTIVATIONS))
    (forward, backward), (ahead, back), (_, once) = (
        stage_costs.compute_seconds(device, workload, one, layers, *ends) for one in (config, kept, kept.recomputing("none"))
    )
    if not forward or not backward:
        return {}
    again, copies = ("recompute", (back - once) / backward), ("offload", (backward - back) / backward)
    return {"forward": (("offload", 1.0 - ahead / forward),), "backward": (again, copies)}


def _rank_seconds(sums: Sums, other: Shares) -> tuple[tuple[str, Seconds], ...]:
    """Seconds by kind of a rank: its compute and wait spans fill the step."""
    filling = ((kind, group, seconds) for (lane, kind, group), seconds in sums.items() if lane in ("compute", "wait"))
    return _ordered(part for one in filling for part in _split(*one, other))


def _split(kind: str, group: str, seconds: Seconds, other: Shares) -> tuple[tuple[str, Seconds], ...]:
    """Seconds of spans of one kind and group, by kind of seconds."""
    if kind == "bubble":
        return (("bubble", seconds),)
    word = WORDS.get(kind, group or kind)
    parts = [(name, share * seconds) for name, share in other.get(word, ()) if share]
    return (word, seconds - sum(part for _, part in parts)), *parts


def _ordered(parts: Iterable[tuple[str, Seconds]]) -> tuple[tuple[str, Seconds], ...]:
    """Sum of parts by kind, in display order."""
    found: dict[str, Seconds] = {}
    for kind, seconds in parts:
        found[kind] = found.get(kind, 0.0) + seconds
    known = [kind for kind in KINDS if kind in found]
    return tuple((kind, found[kind]) for kind in [*known, *(kind for kind in found if kind not in KINDS)])
