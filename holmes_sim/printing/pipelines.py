"""Tables of plans of unlike pipelines: the pipelines, who sums which gradients, and the prediction."""

from __future__ import annotations

from rich.console import Group
from rich.table import Table
from rich.text import Text

from holmes_sim.message_cuts import message_cuts
from holmes_sim.printing.plans import heading, layout, prediction, stages
from holmes_sim.printing.tables import grid
from holmes_sim.unlike_pipelines import SimulatedPipelines
from holmes_sim.unlike_replicas import UnlikeReplicas
from holmes_sim.warnings import pipelines_warnings
from sim.plan.pipelines import PipelinesPlan
from sim.plan.sections import Section


def simulated_pipelines(run: SimulatedPipelines) -> Group:
    """Tables of a simulated step: the stages of each pipeline, the groups that sum gradients, and the prediction."""
    plan = run.plan
    parts: list[Text | Table | Group] = [heading(plan), Text()]
    for index, (pipeline, rows) in enumerate(zip(plan.pipelines, run.pipeline_ranks, strict=True)):
        first = plan.first_ranks[index]
        ranks = f"ranks {first} to {first + pipeline.config.world_size - 1}"
        parts += [Text(f"Pipeline {index}, {ranks}: {layout(pipeline)}"), stages(pipeline, rows)]
        parts += [*map(Text, message_cuts(pipeline)), Text()]
    parts += [sums(plan), Text(), prediction(run.prediction, plan)]
    parts += [Text(f"{name}: {text}.") for name, text in bound(plan)]
    parts += [Text(f"Warning: {one.text}") for one in pipelines_warnings(plan)]
    world, kinds = len(plan.placement), "1 class" if run.classes == 1 else f"{run.classes} classes"
    return Group(*parts, Text(f"Simulated {world} ranks in {kinds}, {run.timeline.events} events."))


def bound(plan: PipelinesPlan) -> tuple[tuple[str, str], ...]:
    """(name, text) of how far the plan is from the best one of its kind, and of their space; empty without a bound."""
    known = plan.certificate
    return (("Certificate", str(known)), ("Space", known.space)) if known is not None else ()


def unlike_pipelines(known: UnlikeReplicas) -> Group:
    """Step, lower bound, gap and space of unlike pipelines beside a plan of alike replicas."""
    return Group(Text(), Text(known.explained))


def sums(plan: PipelinesPlan) -> Table:
    """Table of the sections of layers, with the groups of ranks that sum their gradients."""
    table = grid("Gradients", "layers", "groups", "ranks", "NIC", "transport", "cluster")
    dense = ((_named(section), groups) for section, groups in plan.gradient_groups())
    routed = ((f"experts of {_layers(section)}", groups) for section, groups in plan.expert_gradient_groups() if section.layers)
    for held, groups in (*dense, *routed):
        nics, transports = (dict.fromkeys(getattr(group, name) for group in groups) for name in ("nic", "transport"))
        clusters = dict.fromkeys(plan.placement[rank].cluster for group in groups for rank in group.ranks)
        words = (" + ".join(one) for one in (nics, transports, clusters))
        table.add_row(held, str(len(groups)), str(len(groups[0].ranks)), *words)
    return table


def _named(section: Section) -> str:
    """`embedding and 0 to 3`, `4 to 7`, `head`."""
    held = _layers(section) if section.layers else ""
    return " and ".join(filter(None, ("embedding" if section.embedding else "", held, "head" if section.head else "")))


def _layers(section: Section) -> str:
    """`4 to 7`, `4`."""
    return f"{section.first} to {section.past_last - 1}" if section.layers > 1 else str(section.first)
