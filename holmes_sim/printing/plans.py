"""A plan and its simulation as an engineer reads them: layout, stages, groups, prediction, comparison, certificate."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from rich.console import Group
from rich.table import Table
from rich.text import Text

from holmes_sim.printing.tables import STYLE, grid
from holmes_sim.results import Planned, Simulated
from planner.api import Row
from planner.diagnosis.reasons import Verdict
from planner.search.mixed import is_mixed
from planner.space.shapes import Shape
from sim.kernels import memory
from sim.plan.plan import OBJECTIVES, Axis, Certificate, ParallelConfig, Plan, Prediction
from sim.results.report import PipelineRankReport
from sim.units import GIBI, GIGA, MEGA, time_text

SPOKEN = {"microbatch_size": "microbatch size", "zero_stage": "ZeRO"}
"""Axes of the searched space that have another name in a line."""
TOLD = ("tp", "pp", "dp", "cp", "ep", "microbatch_size", "schedule", "vpp", "zero_stage", "zero_shard_size", "recompute")
"""Axes that are told in a line."""
COUNTED = 12
"""Of more values of an axis it is said how many there are."""
LISTED, SHORT = 24, 4
"""Layouts that lost of which is told why; of those that lack memory at least so many."""


def planned(answer: Planned) -> Group:
    """A plan as an engineer reads it: layout, stages, groups, prediction, comparison, certificate."""
    plan = answer.plan
    parts: list[Text | Table] = [heading(plan), Text(layout(plan)), Text()]
    parts += [stages(plan, answer.places), Text(), groups(plan), Text(), prediction(_promised(plan)), Text()]
    if answer.baselines:
        parts += [comparison(plan, answer.baselines), Text()]
    if plan.certificate is not None:
        parts += [Text(line) for line in (certificate(plan, plan.certificate), searched(plan.certificate)) if line]
    return Group(*parts)


def judged(plan: Plan, verdicts: Sequence[Verdict]) -> Group:
    """Why other layouts lost: what the best of each spends its step on, and how many lack memory."""
    mine = _degrees(plan.config)
    others = [verdict for verdict in verdicts if _degrees(verdict.shape) != mine]
    fitting = [verdict for verdict in others if not math.isinf(verdict.seconds)]
    short = [verdict for verdict in others if math.isinf(verdict.seconds)]
    table = grid("Why no other layout", "layout", "about", "why")
    for verdict in [*fitting, *short[: max(LISTED - len(fitting), SHORT)]]:
        shape, about = verdict.shape, "-" if math.isinf(verdict.seconds) else time_text(float(f"{verdict.seconds:.4g}"))
        full = "" if shape.recompute == "none" else f", recompute {shape.recompute}"
        more = "".join(f", {key} {getattr(shape, key)}" for key in ("cp", "ep") if getattr(shape, key) > 1)
        words = f"tp {shape.tp}, dp {shape.dp}{more}, mb {shape.microbatch_size}{full}"
        table.add_row(words if about == "-" else f"{words}, {shape.schedule}", about, verdict.why)
    told = f"{len(short)} layouts lack memory. " if short else ""
    return Group(Text(), table, Text(f"{told}Seconds are those of an idle network; what is best by them was played."))


def _degrees(one: ParallelConfig | Shape) -> tuple[object, ...]:
    """What tells layouts apart here: all but pp and the schedule."""
    return one.tp, one.dp, one.cp, one.ep, one.microbatch_size, one.recompute


def simulated(run: Simulated) -> Group:
    """A simulated step: stages and numbers."""
    parts: list[Text | Table] = [heading(run.plan), Text(layout(run.plan)), Text(), stages(run.plan, run.places), Text()]
    return Group(*parts, prediction(run.prediction))


def effort(run: Simulated) -> str:
    """What a simulation took, in a line."""
    world, kinds = run.plan.config.world_size, "1 class" if run.classes == 1 else f"{run.classes} classes"
    return f"Simulated {world} ranks in {kinds}, {run.timeline.events} events, in {time_text(run.seconds)}."


def _promised(plan: Plan) -> Prediction:
    assert plan.prediction is not None
    return plan.prediction


def heading(plan: Plan) -> Text:
    """One line: topology, model, batch, devices."""
    workload = plan.workload
    size = workload.model.parameters / GIGA
    return Text(
        f"{plan.topology.name}: {workload.model.name} ({size:.3g} B parameters), batch {workload.global_batch_size} x "
        f"{workload.seq_len} tokens {workload.precision}, {plan.config.world_size} of {plan.fleet.devices} devices",
        style=STYLE,
    )


def layout(plan: Plan) -> str:
    """One line: degrees, microbatches, schedule, switches."""
    config = plan.config
    counts = sorted(set(config.num_microbatches))
    many = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    parts = [f"tp {config.tp}", f"pp {config.pp}", f"dp {config.dp}"]
    parts += [f"{key} {getattr(config, key)}" for key in ("cp", "ep", "vpp") if getattr(config, key) > 1]
    sharing = f" over {config.zero_shard_size} ranks" if config.zero_shard_size else ""
    parts += [f"{many} microbatches of {config.microbatch_size}", config.schedule, f"ZeRO {config.zero_stage}{sharing}"]
    parts += [f"recompute {config.recompute}"] + (["sequence parallel"] if config.sequence_parallel else [])
    return " | ".join(parts) + f"   (strategy {plan.made_by.strategy})"


def stages(plan: Plan, rows: Iterable[PipelineRankReport]) -> Table:
    """A row for each pipeline place: where it stands, its memory and share of the limit, where its time goes."""
    table = grid("Stages", "stage", "cluster", "nodes", "device", "layers", "memory", "limit", "compute", "exposed", "bubble")
    peaks, limits = memory.peak_memory(plan), memory.limits(plan)
    for row in rows:
        share = f"{peaks[row.pp_rank] / limits[row.pp_rank]:.0%}"
        times = tuple(time_text(float(f"{seconds:.3g}")) for seconds in (row.compute, row.exposed, row.bubble))
        size = f"{peaks[row.pp_rank] / GIBI:.3g} GiB"
        table.add_row(str(row.pp_rank), *stand(plan, row.pp_rank), size, share, *times)
    return table


def stand(plan: Plan, place: int) -> tuple[str, str, str, str]:
    """Where a pipeline place stands, and what it holds: its clusters, nodes, devices, and layers by stage."""
    devices = [plan.placement[rank] for rank in range(plan.config.world_size) if plan.config.place(rank)[2] == place]
    clusters = dict.fromkeys(device.cluster for device in devices)
    specs = dict.fromkeys(plan.fleet.spec(device).name for device in devices)
    nodes = sorted({device.node for device in devices})
    where = f"{nodes[0]}-{nodes[-1]}" if len(nodes) > 1 else str(nodes[0])
    layers = "+".join(str(plan.stages[stage].layers) for stage in plan.stages_of(place))
    return " + ".join(clusters), where, " + ".join(specs), layers


def groups(plan: Plan) -> Table:
    """Groups by kind, NIC and clusters, with how many alike there are."""
    table = grid("Groups", "group", "count", "ranks", "NIC", "transport", "collective", "cluster")
    for row, many in alike_groups(plan).items():
        table.add_row(row[0], str(many), *row[1:])
    return table


def alike_groups(plan: Plan) -> dict[tuple[str, str, str, str, str, str], int]:
    """(kind, ranks, NIC, transport, collective, clusters) of the groups -> how many are so."""
    alike: dict[tuple[str, str, str, str, str, str], int] = {}
    for group in plan.groups:
        clusters = dict.fromkeys(plan.placement[rank].cluster for rank in group.ranks)
        collective = "send / recv" if group.kind == "pp" else group.collective
        row = (group.kind, str(len(group.ranks)), group.nic, group.transport, collective, " + ".join(clusters))
        alike[row] = alike.get(row, 0) + 1
    return alike


def prediction(numbers: Prediction) -> Table:
    """The promised numbers."""
    table = grid("Prediction (simulated)", "name", "value")
    table.show_header = False
    for name, _, value in promises(numbers):
        table.add_row(name, value)
    return table


def promises(numbers: Prediction) -> tuple[tuple[str, str, str], ...]:
    """(name, key of the prediction, the number with its unit) of what a plan promises."""
    spent = ((name, OBJECTIVES[name], getattr(numbers, OBJECTIVES[name])) for name in ("cost", "energy"))
    exposed = time_text(float(f"{numbers.exposed_communication_s:.3g}"))
    return (
        ("step", "step_s", time_text(numbers.step_s)),
        ("samples/s", "samples_per_s", f"{numbers.samples_per_s:.4g}"),
        ("tokens/s", "tokens_per_s", f"{numbers.tokens_per_s:,.0f}"),
        ("TFLOP/s per device", "tflops_per_device", f"{numbers.tflops_per_device:.4g}"),
        ("MFU", "mfu", f"{numbers.mfu:.1%}"),
        ("bubble", "bubble_fraction", f"{numbers.bubble_fraction:.1%} of the step"),
        ("exposed communication", "exposed_communication_s", f"{exposed} per rank and step"),
        ("of the upper bound", "upper_bound_fraction", f"{numbers.upper_bound_fraction:.1%}"),
        *((name, key, amount(name, number)) for name, key, number in spent if number is not None),
    )


def comparison(plan: Plan, rows: Iterable[Row]) -> Table:
    """The plan beside other strategies."""
    objective = plan.certificate.objective if plan.certificate else "step-time"
    if objective != "step-time":
        return _comparison_by(objective, plan, rows)
    table = grid("Against", "strategy", "step", "samples/s", "slower by", "layout")
    best = _promised(plan)
    table.add_row(plan.made_by.strategy, time_text(best.step_s), f"{best.samples_per_s:.4g}", "", short_layout(plan))
    for row in rows:
        if row.plan is None:
            table.add_row(row.name, "-", "-", "-", row.reason)
            continue
        other = _promised(row.plan)
        slower = f"{other.step_s / best.step_s - 1:.1%}"
        table.add_row(row.name, time_text(other.step_s), f"{other.samples_per_s:.4g}", slower, short_layout(row.plan))
    return table


def _comparison_by(objective: str, plan: Plan, rows: Iterable[Row]) -> Table:
    """The plan beside others by cost or energy."""
    table = grid("Against", "strategy", "step", objective, "more by", "layout")
    mine = getattr(_promised(plan), OBJECTIVES[objective])
    for row in (Row(plan.made_by.strategy, plan), *rows):
        if row.plan is None:
            table.add_row(row.name, "-", "-", "-", row.reason)
            continue
        other = _promised(row.plan)
        number = getattr(other, OBJECTIVES[objective])
        more = "" if row.plan is plan else f"{number / mine - 1:.1%}"
        table.add_row(row.name, time_text(other.step_s), amount(objective, number), more, short_layout(row.plan))
    return table


def amount(objective: str, number: float) -> str:
    """What an objective's number is in words: `7.3 s`, `0.083 USD per million tokens`, `0.06 J per token`."""
    if objective == "step-time":
        return time_text(number)
    return f"{number * MEGA:.4g} USD per million tokens" if objective == "cost" else f"{number:.4g} J per token"


def short_layout(plan: Plan) -> str:
    """Degrees and layers by cluster: `tp 2, pp 2, dp 8, mb 4: ib 16, roce 14`."""
    return f"{degrees(plan)}: {layers_by_cluster(plan)}"


def degrees(plan: Plan) -> str:
    """`tp 2, pp 2, dp 8, mb 4`, and what else is not usual."""
    config = plan.config
    full = "" if config.recompute == "none" else f", recompute {config.recompute}"
    more = "".join(f", {key} {getattr(config, key)}" for key in ("cp", "ep") if getattr(config, key) > 1)
    return f"tp {config.tp}, pp {config.pp}, dp {config.dp}{more}, mb {config.microbatch_size}{full}"


def layers_by_cluster(plan: Plan) -> str:
    """Layers of the pipeline's places by where these stand: `ib 16, roce 14`."""
    config = plan.config
    runs: list[tuple[str, list[int]]] = []
    for place in range(config.pp):
        members = range(config.rank(0, 0, place), config.rank(0, 0, place) + config.tp * config.dp_cp)
        clusters = " + ".join(dict.fromkeys(plan.placement[rank].cluster for rank in members))
        layers = sum(plan.stages[stage].layers for stage in plan.stages_of(place))
        if runs and runs[-1][0] == clusters:
            runs[-1][1].append(layers)
        else:
            runs.append((clusters, [layers]))
    return ", ".join(f"{name} {_runs(layers)}" for name, layers in runs)


def _runs(layers: list[int]) -> str:
    """`26|27x3|26`: equal neighbours counted."""
    runs: list[list[int]] = []
    for count in layers:
        if runs and runs[-1][0] == count:
            runs[-1][1] += 1
        else:
            runs.append([count, 1])
    return "|".join(f"{count}x{many}" if many > 1 else str(count) for count, many in runs)


def certificate(plan: Plan, found: Certificate) -> str:
    """The certificate in a sentence: how far from the best, and of what."""
    if found.lower_bound_per_token is not None:
        least = amount(found.objective, found.lower_bound_per_token)
        return (
            f"Certificate: at most {found.gap:.1%} from the least {found.objective}; no plan takes less than {least}, at which "
            f"all layers are computed where that takes least, and nothing waits."
        )
    best = "plan, however it mixes clusters in a stage" if is_mixed(plan) else "pipeline of whole stages, each on one cluster"
    far = f"the best {best}" if found.status == "optimal" else f"at most {found.gap:.1%} from the best {best}"
    least = f"{time_text(found.lower_bound_s)} ({found.solver})"
    mixed = None if is_mixed(plan) else found.mixed_lower_bound_s
    more = f" None with stages across clusters takes less than {time_text(mixed)}." if mixed is not None else ""
    return f"Certificate: {far}; none takes less than {least}.{more}"


def searched(found: Certificate) -> str:
    """What the certificate speaks of, and what lies outside, in a line; empty where a plan file does not say."""
    if not found.space:
        return ""
    axes = {axis.name: axis for axis in found.space}
    parts = [_axis(axis, axes.get("vpp")) for name, axis in axes.items() if name in TOLD and _telling(axis, axes)]
    split = [text.partition(" ") for text in found.outside]
    other = [_outside(name, text) for name, _, text in split if name in TOLD]
    other += ["more in plan.json"] if len(other) < len(split) else []
    return f"Searched: {', '.join(parts)}." + (f" Outside: {'; '.join(other)}." if other else "")


def values(axis: Axis) -> str:
    """The values of an axis as text; of many numbers the first, the last and how many."""
    if len(axis.values) > COUNTED:
        return f"{axis.values[0]} to {axis.values[-1]} ({len(axis.values)} values)"
    return ("; " if any(" " in str(value) for value in axis.values) else ", ").join(map(str, axis.values))


def _telling(axis: Axis, axes: dict[str, Axis]) -> bool:
    """Whether a line names the axis for itself: cp and ep where they are more than 1, vpp not beside its schedule."""
    return axis.values != (1,) if axis.name in ("cp", "ep") else axis.name != "vpp" or "schedule" not in axes


def _axis(axis: Axis, vpp: Axis | None) -> str:
    """An axis in a line: `tp 1-8`, `schedules 1f1b, interleaved (vpp 2 or 4)`, `recompute none or full`."""
    if axis.name != "schedule":
        return _spoken(axis.name, _span(axis.values))
    chunks = _span(tuple(value for value in vpp.values if value != 1)) if vpp else ""
    names = [f"{name} (vpp {chunks})" if chunks and name == "interleaved" else str(name) for name in axis.values]
    return f"schedule{'s' if len(names) > 1 else ''} {', '.join(names)}"


def _span(found: Sequence[str | int]) -> str:
    """Values in a line: two of them, or the first and the last; of many numbers how many there are."""
    if len(found) <= 2 or isinstance(found[0], str):
        return " or ".join(str(value).replace(" to ", "-") for value in found)
    return f"{found[0]}-{found[-1]}" + (f" ({len(found)})" if len(found) > COUNTED else "")


def _outside(name: str, text: str) -> str:
    """Values of an axis that were not searched, in a line: `cp 2-16 (4)`; schedules without their axis."""
    short = text.replace(" to ", "-").replace(" values)", ")")
    return short if name == "schedule" else _spoken(name, short)


def _spoken(name: str, text: str) -> str:
    return f"{SPOKEN.get(name, name)} {text}"
