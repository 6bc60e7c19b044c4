"""Tables of a plan and its simulation: layout, stages, groups, prediction, comparison, certificate."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from rich.console import Group
from rich.table import Table
from rich.text import Text

from holmes_sim.intervals import step_range, step_text
from holmes_sim.launchable import frameworks
from holmes_sim.message_cuts import message_cuts
from holmes_sim.printing.certificates import amount, certificate, free_memory, searched
from holmes_sim.printing.layouts import node_ranges, short_layout
from holmes_sim.printing.tables import HEADS, STYLE, grid, slower_text
from holmes_sim.printing.workloads import model_text
from holmes_sim.resolution import is_close, why_close
from holmes_sim.results import Planned, Simulated
from holmes_sim.warnings import memory_warnings, plan_warnings
from planner.api import Row
from planner.diagnosis.reasons import Verdict
from planner.space.shape import Shape
from sim.compression import NONE
from sim.kernels import memory
from sim.plan.derived_groups import embedding_groups, gradient_groups
from sim.plan.parallel_config import BLOCK, ParallelConfig
from sim.plan.pipelines import PipelinesPlan
from sim.plan.plan import Plan
from sim.plan.prediction import OBJECTIVES, Prediction
from sim.results.report import PipelineRankReport
from sim.units import GIBI, time_text

MAX_LISTED, MIN_SHORT_OF_MEMORY = 24, 4
"""Number of slower layouts for which a reason is printed, and the minimum number of layouts among them that lack memory."""


def planned(answer: Planned) -> Group:
    """Tables of a plan: layout, stages, groups, prediction, comparison with the baselines, certificate."""
    plan = answer.plan
    parts: list[Text | Table | Group] = [heading(plan), Text(layout(plan)), Text()]
    parts += [
        stages(plan, answer.pipeline_ranks),
        Text(),
        groups(plan),
        *map(Text, message_cuts(plan)),
        Text(),
        prediction(_predicted(plan), plan),
        Text(),
    ]
    if answer.baselines:
        parts += [comparison(plan, answer.baselines), *_closeness(plan, answer.baselines), Text()]
    if plan.certificate is not None:
        apart = answer.replicas.told if answer.replicas is not None else ""
        parts += [Text(line) for line in (certificate(plan, plan.certificate), searched(plan.certificate), apart) if line]
    faster = [str(one) for one in (answer.beyond, answer.split, answer.replicas) if one is not None and str(one)]
    parts += [Text(line) for line in (free_memory(plan), frameworks(plan), *faster) if line]
    parts += [Text(f"Warning: {one.text}") for one in plan_warnings(plan)]
    parts += [Text(HEADS)]
    return Group(*parts)


def verdicts(plan: Plan, found: Sequence[Verdict]) -> Group:
    """Table of other layouts: estimated step time, what limits it, and how many layouts lack memory."""
    others = [verdict for verdict in found if not _has(verdict.shape, plan.config)]
    fitting = [verdict for verdict in others if not math.isinf(verdict.seconds)]
    short = [verdict for verdict in others if math.isinf(verdict.seconds)]
    table = grid("Why other layouts are slower or do not fit", "layout", "estimate", "why")
    listed = [(verdict, "") for verdict in fitting] + _smallest(short)[: max(MAX_LISTED - len(fitting), MIN_SHORT_OF_MEMORY)]
    for verdict, larger in listed:
        shape, about = verdict.shape, "-" if math.isinf(verdict.seconds) else time_text(float(f"{verdict.seconds:.4g}"))
        full = "" if shape.recompute in ("none", BLOCK) else f", recompute {shape.recompute}"
        more = "".join(f", {key} {degree}" for key, degree in shape.further_degrees.items())
        words = f"tp {shape.tp}, dp {shape.dp}{more}, mb {shape.microbatch_size}{larger}{full}"
        table.add_row(words if about == "-" else f"{words}, {shape.schedule}", about, verdict.why)
    lacking = f"{len(short)} layouts lack memory. " if short else ""
    return Group(
        Text(), table, Text(f"{lacking}Times are estimates on an idle network; the best layouts by them were simulated.")
    )


def _smallest(short: Sequence[Verdict]) -> list[tuple[Verdict, str]]:
    """Of layouts that lack memory and differ in the microbatch size only: that with the smallest, and words for the others."""
    alike: dict[Shape, list[Verdict]] = {}
    for verdict in short:
        alike.setdefault(replace(verdict.shape, microbatch_size=1), []).append(verdict)
    smallest = [min(some, key=lambda verdict: verdict.shape.microbatch_size) for some in alike.values()]
    return [(one, " and more" if len(some) > 1 else "") for one, some in zip(smallest, alike.values(), strict=True)]


def _has(shape: Shape, config: ParallelConfig) -> bool:
    """Whether a plan has the layout of a row in the table of verdicts: all except pp and the schedule."""
    degrees = (
        tuple(getattr(one, name) for name in ("tp", "dp", "cp", "ep", "etp", "microbatch_size")) for one in (shape, config)
    )
    return len(set(degrees)) == 1 and shape.recompute in (BLOCK, config.recompute)


def simulated(run: Simulated) -> Group:
    """Tables of a simulated step, stages and prediction, and warnings about memory."""
    parts: list[Text | Table] = [heading(run.plan), Text(layout(run.plan)), Text()]
    parts += [stages(run.plan, run.pipeline_ranks), *map(Text, message_cuts(run.plan)), Text()]
    short = [Text(f"Warning: {text}") for text in memory_warnings(run.plan)]
    return Group(*parts, prediction(run.prediction, run.plan), *short)


def effort(run: Simulated) -> str:
    """One line with the ranks, classes, events and seconds of a simulation."""
    world, kinds = run.plan.config.world_size, "1 class" if run.classes == 1 else f"{run.classes} classes"
    return f"Simulated {world} ranks in {kinds}, {run.timeline.events} events, in {time_text(run.seconds)}."


def _predicted(plan: Plan) -> Prediction:
    assert plan.prediction is not None
    return plan.prediction


def heading(plan: Plan | PipelinesPlan) -> Text:
    """One line: topology, model, batch, devices."""
    workload = plan.workload
    return Text(
        f"{plan.topology.name}: {model_text(workload)}, batch {workload.global_batch_size} x "
        f"{workload.seq_len} tokens {workload.precision}, {len(plan.placement)} of {plan.fleet.devices} devices",
        style=STYLE,
    )


def layout(plan: Plan) -> str:
    """One line: degrees, microbatches, schedule, ZeRO stage, recomputation, strategy."""
    config = plan.config
    counts = sorted(set(config.num_microbatches))
    many = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    noun = "microbatch" if many == "1" else "microbatches"
    parts = [f"tp {config.tp_text}", f"pp {config.pp}", f"dp {config.dp_text}"]
    parts += [f"{key} {degree}" for key, degree in config.further_degrees.items()]
    parts += [f"vpp {config.vpp}"] if config.vpp > 1 else []
    sharing = f" over {config.zero_shard_size} ranks" if config.zero_shard_size else ""
    parts += [
        f"{many} {noun} of {config.microbatch_words}",
        config.schedule,
        f"ZeRO {'by stage' if config.stage_zero else config.zero_stage}{sharing}",
    ]
    parts += [f"recompute {_recomputation(config)}"]
    parts += ["sequence parallel"] if config.sequence_parallel and config.tp > 1 else []
    of_some = " of some stages" if config.stage_offload else ""
    parts += [f"{', '.join(config.offload)} on the hosts{of_some}"] if config.offload else []
    parts += ["tied embedding summed by shards"] if config.tied_shards else []
    parts += [f"messages between clusters {config.message_compression}"] if config.message_compression != NONE else []
    return " | ".join(parts) + f"   (strategy {plan.made_by.strategy})"


def _recomputation(config: ParallelConfig) -> str:
    """`full`, `4 layers a stage`, `some layers` (the table of stages has their number), `selective (layernorm, mlp)`."""
    if counts := config.recompute_layers:
        alike = f"{counts[0]} layer{'s' if counts[0] > 1 else ''} a stage"
        return alike if len(set(counts)) == 1 else "some layers"
    if config.stage_recompute:
        return config.recomputation
    named = f" ({', '.join(config.recompute_modules)})" if config.recompute_modules else ""
    return config.recompute + named


def stages(plan: Plan, rows: Iterable[PipelineRankReport]) -> Table:
    """Table with one row per pipeline rank: placement, layers, memory and its share of the limit, and seconds by kind."""
    unlike, some = unlike_options(plan.config), ("recomputed",) if plan.config.recompute_layers else ()
    seconds = "compute", "exposed\ncomm.", "bubble"
    held = "layers", *some, "peak\nmemory", "of the\ndevice"
    table = grid("Stages", "stage", "cluster", "nodes", "device", *unlike, *held, *seconds)
    peaks, limits = memory.peak_memory(plan), memory.limits(plan)
    for row in rows:
        share = f"{peaks[row.pp_rank] / limits[row.pp_rank]:.0%}"
        times = tuple(time_text(float(f"{seconds:.3g}")) for seconds in (row.compute, row.exposed, row.bubble))
        size = f"{peaks[row.pp_rank] / GIBI:.3g} GiB"
        *where, layers = location(plan, row.pp_rank)
        own = [value_of(row.pp_rank) for value_of in unlike.values()]
        again = [recomputed(plan, row.pp_rank) for _ in some]
        table.add_row(str(row.pp_rank), *where, *own, layers, *again, size, share, *times)
    return table


def unlike_options(config: ParallelConfig) -> dict[str, Callable[[int], str]]:
    """Name -> value by pipeline rank, of the degrees and options that differ between stages."""
    differ = range(config.pp if config.stage_dp or config.stage_microbatch_size else 0)
    samples = (config.size_of(pp_rank) // config.split_of(pp_rank) for pp_rank in differ)
    found: dict[str, tuple[object, ...]] = {
        "tp": config.stage_tp, "dp": config.stage_dp, "mb": tuple(samples), "cp": config.stage_cp, "ep": config.stage_ep,
        "etp": config.stage_etp, "ZeRO": config.stage_zero, "on hosts": config.stage_offload,
        "recompute": config.stage_recompute,
    }  # fmt: skip
    return {name: tuple(map(str, values)).__getitem__ for name, values in found.items() if values}


def recomputed(plan: Plan, pp_rank: int) -> str:
    """Recomputed layers of each stage of a pipeline rank, as text like that of its layers: `1+2`."""
    held = ((plan.config_of((stage,)), plan.stages[stage].layers) for stage in plan.stages_of(pp_rank))
    return "+".join(str(config.recomputed(layers)) for config, layers in held)


def location(plan: Plan, pp_rank: int) -> tuple[str, str, str, str]:
    """(clusters, nodes, device types, layers of each stage) of a pipeline rank, as text."""
    devices = plan.placement[plan.config.first_rank(pp_rank) : plan.config.first_rank(pp_rank + 1)]
    clusters = dict.fromkeys(device.cluster for device in devices)
    specs = dict.fromkeys(plan.fleet.spec(device).name for device in devices)
    nodes = (node_ranges(device.node for device in devices if device.cluster == name) for name in clusters)
    held = [plan.stages[stage] for stage in plan.stages_of(pp_rank)]
    layers = "+".join(f"{stage.layers} and head" if stage.head else str(stage.layers) for stage in held)
    return " + ".join(clusters), " + ".join(nodes), " + ".join(specs), layers


def groups(plan: Plan) -> Table:
    """Table of groups by kind, size, NIC, transport, collective and clusters, with their number."""
    table = grid("Groups", "group", "count", "ranks", "NIC", "transport", "collective", "cluster")
    for row, many in group_counts(plan).items():
        table.add_row(row[0], str(many), *row[1:])
    return table


def group_counts(plan: Plan) -> dict[tuple[str, str, str, str, str, str], int]:
    """Number of groups by (kind, ranks, NIC, transport, collective, clusters), with those that follow from a plan: of the
    gradients of experts (edp), and of a tied embedding."""
    counts: dict[tuple[str, str, str, str, str, str], int] = {}
    tied = embedding_groups(plan, plan.groups) if plan.workload.model.tied_embeddings and plan.config.pp > 1 else ()
    for group in (*plan.groups, *(group for group in gradient_groups(plan) if group.kind == "edp"), *tied):
        clusters = dict.fromkeys(plan.placement[rank].cluster for rank in group.ranks)
        collective = "send / recv" if group.kind == "pp" else group.collective
        row = (group.kind, str(len(group.ranks)), group.nic, group.transport, collective, " + ".join(clusters))
        counts[row] = counts.get(row, 0) + 1
    return counts


def prediction(numbers: Prediction, plan: Plan | PipelinesPlan) -> Group:
    """Table of the numbers of a prediction, with the range of the step, and a line if it rests on a guess."""
    table = grid("Prediction (simulated)", "name", "value")
    table.show_header = False
    for name, _, value in prediction_rows(numbers, plan):
        table.add_row(name, value)
    grade = step_range(numbers.step_s, plan).grade
    return Group(table, *([Text(f"This prediction {grade}.")] if grade else []))


def prediction_rows(numbers: Prediction, plan: Plan | PipelinesPlan) -> tuple[tuple[str, str, str], ...]:
    """(name, key of `Prediction`, value with its unit) of each number of a prediction; the step with its range."""
    spent = ((name, OBJECTIVES[name], getattr(numbers, OBJECTIVES[name])) for name in ("cost", "energy"))
    exposed = time_text(float(f"{numbers.exposed_communication_s:.3g}"))
    return (
        ("step", "step_s", step_text(numbers.step_s, plan)),
        ("samples/s", "samples_per_s", f"{numbers.samples_per_s:.4g}"),
        ("tokens/s", "tokens_per_s", f"{numbers.tokens_per_s:,.0f}"),
        ("TFLOP/s per device", "tflops_per_device", f"{numbers.tflops_per_device:.4g}"),
        ("MFU", "mfu", f"{numbers.mfu:.1%}"),
        ("bubble", "bubble_fraction", f"{numbers.bubble_fraction:.1%} of the step"),
        ("exposed communication", "exposed_communication_s", f"{exposed} per rank and step"),
        ("of compute-only speed", "upper_bound_fraction", f"{numbers.upper_bound_fraction:.1%}"),
        *((name, key, amount(name, number)) for name, key, number in spent if number is not None),
    )


def comparison(plan: Plan, rows: Iterable[Row]) -> Table:
    """Table of the plan and the plans of other strategies."""
    objective = plan.certificate.objective if plan.certificate else "step-time"
    if objective != "step-time":
        return _comparison_by(objective, plan, rows)
    table = grid("Other strategies", "strategy", "step", "samples/s", "slower by", "layout")
    best = _predicted(plan)
    table.add_row(plan.made_by.strategy, time_text(best.step_s), f"{best.samples_per_s:.4g}", "", short_layout(plan))
    for row in rows:
        if row.plan is None:
            table.add_row(row.name, "-", "-", "-", row.reason)
            continue
        other = _predicted(row.plan)
        slower = f"{'~ ' if is_close(plan, row.plan) else ''}{slower_text(other.step_s / best.step_s)}"
        table.add_row(row.name, time_text(other.step_s), f"{other.samples_per_s:.4g}", slower, short_layout(row.plan))
    return table


def _closeness(plan: Plan, rows: Iterable[Row]) -> list[Text]:
    """A line that says why plans cannot be told apart, if there are such plans."""
    close = [row.plan for row in rows if row.plan is not None and is_close(plan, row.plan)]
    by_time = plan.certificate is None or plan.certificate.objective == "step-time"
    return [Text(why_close((plan, *close)))] if close and by_time else []


def _comparison_by(objective: str, plan: Plan, rows: Iterable[Row]) -> Table:
    """Table of the plan and the plans of other strategies by cost or energy."""
    table = grid("Other strategies", "strategy", "step", objective, "more by", "layout")
    mine = getattr(_predicted(plan), OBJECTIVES[objective])
    for row in (Row(plan.made_by.strategy, plan), *rows):
        if row.plan is None:
            table.add_row(row.name, "-", "-", "-", row.reason)
            continue
        other = _predicted(row.plan)
        number = getattr(other, OBJECTIVES[objective])
        more = "" if row.plan is plan else f"{number / mine - 1:.1%}"
        table.add_row(row.name, time_text(other.step_s), amount(objective, number), more, short_layout(row.plan))
    return table
