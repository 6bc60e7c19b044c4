"""The numbers of one or two plans, row by row; those that differ are marked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from holmes_sim.printing import plans as printed
from holmes_sim.printing.layouts import layers_by_cluster
from holmes_sim.reporting.markup import chip, table
from holmes_sim.resolution import is_close, why_close
from holmes_sim.serving.controls import differences
from sim.kernels import memory
from sim.plan.plan import Plan
from sim.units import GIBI, time_text

NONE = "–"


@dataclass(frozen=True, slots=True)
class Row:
    """A number of each plan as text, and whether they differ."""

    name: str
    values: tuple[str, ...]

    @property
    def differs(self) -> bool:
        """Whether not all plans have the same value."""
        return len(set(self.values)) > 1


@dataclass(frozen=True, slots=True)
class Part:
    """Rows under a title."""

    title: str
    rows: tuple[Row, ...]


def parts(plans: Sequence[Plan]) -> tuple[Part, ...]:
    """Prediction and layout of plans with a prediction; for two plans, also what differs between their topologies."""
    found = [
        Part("Numbers", _rows([_prediction(plan) for plan in plans])),
        Part("Layout", _rows([_layout(plan) for plan in plans])),
    ]
    if len(plans) == 2:
        changed = tuple(Row(path, (here, there)) for path, here, there in differences(plans[0].topology, plans[1].topology))
        found += [Part("Topology and workload", changed)] if changed else []
    return tuple(found)


def verdict(plan: Plan, beside: Plan) -> str:
    """One sentence that compares the throughput of two plans."""
    mine, theirs = (one.prediction for one in (plan, beside))
    assert mine is not None and theirs is not None
    ratio = mine.tokens_per_s / theirs.tokens_per_s
    if ratio == 1:
        return "Both train as many tokens per second."
    if plan.topology == beside.topology and is_close(plan, beside):
        return why_close((plan, beside)).removeprefix("~ ").capitalize()
    return f"The plan trains {abs(ratio - 1):.1%} {'more' if ratio > 1 else 'fewer'} tokens per second than the one beside it."


def stages(plan: Plan, title: str) -> str:
    """A table of the pipeline ranks of a plan: location, layers and memory."""
    peaks, limits = memory.peak_memory(plan), memory.limits(plan)
    rows = []
    for pp_rank in range(plan.config.pp):
        clusters, nodes, devices, layers = printed.location(plan, pp_rank)
        size = f"{peaks[pp_rank] / GIBI:.3g} GiB"
        share = f"{peaks[pp_rank] / limits[pp_rank]:.0%}"
        rows.append([chip(pp_rank), escape(clusters), layers, size, share, nodes, escape(devices)])
    headers = ("stage", "cluster", "layers", "peak memory", "of the device", "nodes", "device")
    return table(headers, rows, title, words=("stage", "cluster", "device"))


def _rows(facts: Sequence[Mapping[str, str]]) -> tuple[Row, ...]:
    names = dict.fromkeys(name for one in facts for name in one)
    return tuple(Row(name, tuple(one.get(name, NONE) for one in facts)) for name in names)


def _prediction(plan: Plan) -> dict[str, str]:
    assert plan.prediction is not None
    found = {name: text for name, _, text in printed.prediction_rows(plan.prediction, plan)}
    proof = plan.certificate
    bound = {}
    if proof is not None and proof.objective == "step-time":
        bound = {"lower bound": time_text(proof.lower_bound_s), "gap": f"{proof.gap:.1%}"}
        bound["time limit reached"] = "yes" if proof.time_limit_reached else "no"
    peaks, limits = memory.peak_memory(plan), memory.limits(plan)
    fullest = max(peak / limit for peak, limit in zip(peaks, limits, strict=True))
    return {"step": found.pop("step")} | bound | found | {"highest memory use": f"{fullest:.1%}"}


def _layout(plan: Plan) -> dict[str, str]:
    config = plan.config
    counts = sorted(set(config.num_microbatches))
    found = {"tp": config.tp_text, "pp": str(config.pp), "dp": config.dp_text}
    found |= {key: str(degree) for key, degree in config.further_degrees.items()}
    found |= {"vpp": str(config.vpp)} if config.vpp > 1 else {}
    many = " to ".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
    found |= {"microbatch size": config.microbatch_text, "microbatches": many}
    zero = ", ".join(map(str, config.stage_zero or (config.zero_stage,)))
    found |= {"schedule": config.schedule, "ZeRO stage": zero}
    found |= {"recompute": ", ".join(config.stage_recompute or (config.recompute,))}
    found |= {"offload": ", ".join(config.stage_offload or config.offload)} if config.offload else {}
    return found | {
        "layers": layers_by_cluster(plan),
        "devices used": f"{config.world_size:,} of {plan.fleet.devices:,}",
    }
