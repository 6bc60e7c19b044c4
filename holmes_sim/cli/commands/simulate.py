"""holmes-sim simulate: simulate one step of a plan, or with faults one step per seed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holmes_sim.cli import disaggregated_plans, islands_plans
from holmes_sim.cli import output as out
from holmes_sim.cli import unlike_pipelines as unlike
from holmes_sim.cli.options import Json, Measured, PlanArgument

if TYPE_CHECKING:
    from sim.plan.pipelines import PipelinesPlan
    from sim.plan.plan import Plan

NAME = "simulate"
ORDER = 20
EXAMPLE = "holmes-sim simulate plan.json --trace timeline.json --chart step.png"
FAULTS = "Faults, drawn by seed"
"""Title of the panel of --help that lists the faults."""


def command(
    plan: PlanArgument,
    trace: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a Chrome trace for Perfetto; with faults, of the slowest step."),
    ] = None,
    chart: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw the pipeline; with faults, the distribution of the step time (png, svg, pdf)."),
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Explain where the time goes, with the critical path of the step.")
    ] = False,
    stragglers: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE:TIMES",
            help="1%:1.5 = each device is 1.5 times as slow with a probability of 1%.",
            rich_help_panel=FAULTS,
        ),
    ] = None,
    jitter: Annotated[
        str | None,
        typer.Option(
            metavar="SPREAD",
            help="3% = standard deviation of the lognormal noise of each compute action.",
            rich_help_panel=FAULTS,
        ),
    ] = None,
    degrade: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE:RATE",
            help="1%:50% = each NIC and trunk has 50% of its rate with a probability of 1%.",
            rich_help_panel=FAULTS,
        ),
    ] = None,
    flaps: Annotated[
        str | None,
        typer.Option(
            metavar="EVERY:DOWN",
            help="100h:5s = each NIC and trunk fails every 100 h on average, for 5 s.",
            rich_help_panel=FAULTS,
        ),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Number of steps with faults. Default: until the mean is known to 1 %, at most 200, for at most 45 s.",
            rich_help_panel=FAULTS,
        ),
    ] = None,
    leave: Annotated[
        str | None,
        typer.Option(
            metavar="ISLAND@TIME:AWAY",
            help="1@2h = island 1 of a plan of islands leaves after 2 h; 1@2h:30min = and is back 30 min later; "
            "island:100h:2h = each island (or node) leaves every 100 h on average, for 2 h.",
            rich_help_panel=FAULTS,
        ),
    ] = None,
    profile: Measured = None,
    as_json: Json = False,
) -> None:
    """Simulate one step of a plan by discrete events; with faults, one step per seed, and the distribution of their times."""
    kinds = {"stragglers": stragglers, "jitter": jitter, "degrade": degrade, "flaps": flaps}
    _check_options(any(kinds.values()), explain, seeds)
    with out.progress(f"reading {plan}"):
        from holmes_sim import commands, unlike_pipelines
        from sim.disaggregation.plan import DisaggregatedPlan
        from sim.errors import HolmesError
        from sim.plan.islands import IslandsPlan
        from sim.plan.pipelines import PipelinesPlan

        read = unlike_pipelines.read_every_kind(plan)
    out.distinct(plan, trace, chart)
    out.can_be_written(trace, chart)
    out.can_be_drawn(chart)
    if isinstance(read, DisaggregatedPlan):
        if explain or profile or leave or any(kinds.values()):
            raise HolmesError(f"{plan}: a plan with two sets of ranks takes no --explain, --profile, --leave and no faults")
        disaggregated_plans.simulate(read, trace, chart, as_json)
        return
    if isinstance(read, PipelinesPlan):
        has_faults = any(kinds.values())
        unlike.refuse(plan, {"leave": leave, "profile": profile})
        if has_faults:
            _many(read, kinds, seeds, trace, chart, as_json)
        else:
            unlike.simulate(read, trace, chart, explain, as_json)
        return
    if isinstance(read, IslandsPlan):
        if trace or explain or profile:
            raise HolmesError(
                f"{plan}: a plan of islands takes no --trace, --explain and --profile; simulate the plan of an island"
            )
        islands_plans.simulate(read, chart, as_json, kinds, leave)
        return
    if leave is not None:
        raise HolmesError(f"{plan}: --leave is for plans of islands (holmes-sim plan --sync)")
    given = commands.with_profile(read, profile)
    if any(kinds.values()):
        _many(given, kinds, seeds, trace, chart, as_json)
    else:
        _one(given, trace, chart, explain, as_json)
    if not as_json:
        out.note_rests_on(given, profile)


def _check_options(has_faults: bool, explain: bool, seeds: int | None) -> None:
    from sim.errors import HolmesError

    if seeds is not None and not has_faults:
        raise HolmesError("--seeds needs a kind of fault; add for example --stragglers 1%:1.5")
    if explain and has_faults:
        raise HolmesError("--explain explains a step without faults; leave out --explain or the faults")


def _one(given: Plan, trace: Path | None, chart: Path | None, explain: bool, as_json: bool) -> None:
    from holmes_sim import commands, warnings
    from sim.engine import timeline

    with out.progress("simulating"):
        run = commands.simulate(given)
    out.note(warnings.unconfirmed(given, run.timeline.step_s))
    out.write(trace, timeline.to_json(run.timeline) if trace else "")
    if chart is not None:
        with out.progress("drawing"):
            from holmes_sim import charts

            out.save(charts.pipeline(given, run.timeline), chart)
    if as_json:
        out.show_json(run.facts() | ({"explanation": commands.explain(run).facts()} if explain else {}))
        return
    from holmes_sim import printing

    out.show(printing.simulated(run))
    if explain:
        out.show(printing.explained(commands.explain(run)))
    out.note(" ".join([printing.effort(run), *(f"Written to {path}." for path in (trace, chart) if path)]))


def _many(
    given: Plan | PipelinesPlan,
    kinds: dict[str, str | None],
    seeds: int | None,
    trace: Path | None,
    chart: Path | None,
    as_json: bool,
) -> None:
    from holmes_sim import distribution, warnings
    from sim.engine import timeline

    with out.progress("simulating") as progress:
        found = distribution.trouble(given, **kinds, seeds=None if seeds is None else range(seeds), progress=progress)
    out.note(warnings.unconfirmed(given, found.fault_free_s))
    out.write(trace, timeline.to_json(found.timeline(found.slowest)) if trace else "")
    if chart is not None:
        from holmes_sim import charts

        out.save(charts.distribution(found), chart)
    if as_json:
        out.show_json(found.facts())
        return
    from holmes_sim import printing

    out.show(printing.step_distribution(found))
    effort = f"Distinct steps simulated: {found.distinct_steps}, in {found.seconds:.1f} s."
    cut = f"Interrupted after {len(found.seeds)} seeds." if found.interrupted else ""
    out.note(" ".join(filter(None, [cut, effort, *(f"Written to {path}." for path in (trace, chart) if path)])))
