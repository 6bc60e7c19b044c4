"""The folder of a launch of `holmes-sim run`, for unlike pipelines or two sets of ranks: its files, the plan, and a README."""

from __future__ import annotations

from holmes_sim.launching import environment, folder, hosts
from holmes_sim.launching.folder import README, File, Launch
from sim.disaggregation.plan import DisaggregatedPlan
from sim.formats import disaggregatedfile, pipelinesfile
from sim.plan.pipelines import PipelinesPlan


def name(plan: PipelinesPlan | DisaggregatedPlan) -> str:
    """The name of the plan's file in the folder."""
    return "plan.pipelines.json" if isinstance(plan, PipelinesPlan) else "plan.disaggregated.json"


def complete(plan: PipelinesPlan | DisaggregatedPlan, title: str, checked: str, launch: Launch) -> Launch:
    """The launch with the plan, the assumptions about hosts and its README added. `checked` says how such launches were
    checked."""
    assumed = (*launch.assumed, *hosts.assumed(plan), *environment.assumed(plan))
    text = pipelinesfile.to_json(plan) if isinstance(plan, PipelinesPlan) else disaggregatedfile.to_json(plan)
    found = launch.files | {name(plan): File(text, "the plan that was exported")}
    whole = Launch(found, launch.how, assumed)
    return Launch({README: File(_readme(plan, title, checked, whole), "this file"), **found}, launch.how, assumed)


def _readme(plan: PipelinesPlan | DisaggregatedPlan, title: str, checked: str, launch: Launch) -> str:
    predicted = f" Predicted: {plan.prediction.step_s:.4g} s per step." if plan.prediction else ""
    if isinstance(plan, PipelinesPlan):
        what, rows = f"{len(plan.pipelines)} unlike pipelines", _pipelines(plan)
    else:
        what, rows = "attention and experts on two sets of ranks", _sets(plan)
    lines = [
        f"# {plan.workload.model.name} on {plan.topology.name}, for {title}",
        "",
        f"Plan of {what} by {plan.made_by.strategy} (holmes-sim {plan.made_by.version}).{predicted}",
        "",
        *rows,
        "",
    ]
    return "\n".join([*lines, *folder.sections(launch), f"How this was checked: {checked}.", ""])


def _pipelines(plan: PipelinesPlan) -> list[str]:
    rows = ["| pipeline | hosts | ranks | tp, pp, dp, cp | layers by stage | samples a step |", "| --- " * 6 + "|"]
    for index, (first, one) in enumerate(zip(plan.first_ranks, plan.pipelines, strict=True)):
        ranks, config = range(first, first + one.config.world_size), one.config
        degrees = f"{config.tp_text}, {config.pp}, {config.dp}, {config.cp}"
        layers, samples = ", ".join(map(str, one.layers)), one.workload.global_batch_size
        rows.append(f"| {index} | {_hosts(plan, ranks)} | {_numbers(ranks)} | {degrees} | {layers} | {samples} |")
    return rows


def _sets(plan: DisaggregatedPlan) -> list[str]:
    attention, both = len(plan.stage.attention), len(plan.placement)
    rows = ["| set | hosts | ranks |", "| --- " * 3 + "|"]
    for what, ranks in (("attention", range(attention)), ("experts", range(attention, both))):
        rows.append(f"| {what} | {_hosts(plan, ranks)} | {_numbers(ranks)} |")
    return rows


def _numbers(ranks: range) -> str:
    return f"{ranks[0]} to {ranks[-1]}" if len(ranks) > 1 else str(ranks[0])


def _hosts(plan: PipelinesPlan | DisaggregatedPlan, ranks: range) -> str:
    """The hosts of some ranks, in words."""
    own = set(ranks)
    names = [host.name for host in hosts.of_plan(plan) if own & set(host.ranks)]
    return ", ".join(names) if len(names) <= 4 else f"{names[0]} ... {names[-1]} ({len(names)})"
