"""holmes-sim compare: compare strategies on one topology, several plans, or timelines with their plan."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holmes_sim.cli import completion, disaggregated_plans, islands_plans
from holmes_sim.cli import output as out
from holmes_sim.cli.options import BatchSize, Edits, Json, Measured, ModelWord, RequireFile, SequenceLength, edited, pinned

if TYPE_CHECKING:
    from planner.request import Wishes
    from sim.engine.timeline import Timeline
    from sim.plan.pipelines import PipelinesPlan
    from sim.plan.plan import Plan

NAME = "compare"
ORDER = 30
EXAMPLE = "holmes-sim compare holmes-hybrid-4 --strategies holmes,megatron --chart strategies.png"


WHAT = "A topology (file or name), two plans or more, or a plan and its timelines, measured or simulated."
SEARCH = 50.0
"""Default time limit of each strategy, in seconds."""


@pinned
def command(
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="TOPO | PLAN PLAN... | PLAN TIMELINE...",
            help=WHAT,
            autocompletion=completion.shipped("topologies", ".yaml", ".yml", ".json"),
        ),
    ],
    wishes: Wishes,
    strategies: Annotated[
        str,
        typer.Option(
            metavar="all|NAME,...",
            help="Strategies to compare (holmes-sim list strategies).",
            autocompletion=completion.listed("planner.strategies", "all"),
        ),
    ] = "all",
    launches: Annotated[
        str | None,
        typer.Option(
            "--for",
            metavar="all|TARGET,...",
            help="Compare the best plans for launch targets (holmes-sim list targets) instead; all: every training framework.",
            autocompletion=completion.listed("holmes_sim.exporters", "all"),
        ),
    ] = None,
    edits: Edits = None,
    model: ModelWord = None,
    global_batch_size: BatchSize = None,
    seq_len: SequenceLength = None,
    time_limit: Annotated[
        float, typer.Option(metavar="SECONDS", min=1.0, help="Time limit of each strategy that searches.")
    ] = SEARCH,
    chart: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw samples/s by strategy, or the steps of the timelines (png, svg, pdf)."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FOLDER", help="Folder to write all plans into.")
    ] = None,
    profile: Measured = None,
    require: RequireFile = None,
    as_json: Json = False,
) -> None:
    """Compare plans of strategies, or for launch targets; plans from files; or measured steps with their plan."""
    from holmes_sim import commands, comparisons, files
    from holmes_sim.intervals import plan_facts
    from sim.errors import HolmesError
    from sim.formats import planfile

    for name in what:
        islands_plans.refuse(name, "a topology or a plan", "`holmes-sim plan TOPO --sync any` compares sync strategies")
    topology_only = {
        "--strategies": strategies != "all", "--for": launches, "--model": model, "--global-batch-size": global_batch_size,
        "--seq-len": seq_len, "--time-limit": time_limit != SEARCH, "--output": output, "--require": require,
        " ".join(f"--set {edit}" for edit in edits or []): edits, str(wishes): str(wishes),
    }  # fmt: skip
    given = " ".join(option for option, value in topology_only.items() if value)
    if _plans(what, " ".join(filter(None, (given, "--chart" if chart else "", "--profile" if profile else ""))), as_json):
        return
    if what[0].endswith(".json") and profile is None and disaggregated_plans.compare(what, chart, as_json):
        return
    if any(name.endswith(".json") for name in what):
        if given:
            raise HolmesError(f"{given}: only for a topology; with a plan and timelines use --chart, --profile and --json")
        _measured(what, chart, profile, as_json)
        return
    where = edited(commands.load(_one_topology(what), profile), edits, require)
    workload = commands.workload_of(where, model, global_batch_size, seq_len)
    out.can_be_drawn(chart)
    if output is not None:
        files.folder(output)
    if launches is not None and strategies != "all":
        raise HolmesError("--for compares plans of strategy certified; leave out --strategies")
    wanted = strategies if launches is None else launches
    names = () if wanted == "all" else tuple(name.strip() for name in wanted.split(","))
    with out.progress("comparing") as progress:
        compare = comparisons.compare if launches is None else comparisons.compare_targets
        answer = compare(where, workload, names, wishes, time_limit, progress)
    if output is not None:
        for name, plan, _ in answer.ranked:
            out.write(output / f"{name}.json", planfile.to_json(plan, plan_facts(plan)))
    if chart is not None:
        from holmes_sim import charts

        out.save(charts.comparison(answer), chart)
    if as_json:
        out.show_json(answer.facts())
    else:
        from holmes_sim import printing

        out.show(printing.compared(answer))
        out.note_written(output, chart)
    out.note(answer.note)


def _one_topology(what: list[str]) -> str:
    from sim.errors import HolmesError

    if len(what) > 1:
        raise HolmesError(f"compare takes one topology, not {len(what)}: {' '.join(what)}")
    return what[0]


def _plans(what: list[str], options: str, as_json: bool) -> bool:
    """Print several plans beside each other; False where the files are not all plans. `options`: what was given that is not for
    plans."""
    from holmes_sim import plans_beside
    from sim.errors import HolmesError

    if not (plans := plans_beside.read_plans(what)):
        return False
    if options:
        raise HolmesError(f"{options}: several plans are compared without options, but for --json")
    with out.progress("simulating"):
        answer = plans_beside.compare_plans(plans)
    if as_json:
        out.show_json(answer.facts())
        return True
    from holmes_sim import printing

    out.show(printing.plans_compared(answer))
    return True


def _measured(what: list[str], chart: Path | None, profile: str | None, as_json: bool) -> None:
    """Print and draw timelines beside the prediction in their plan and a new simulation of it."""
    from holmes_sim import commands, measurement
    from holmes_sim.unlike_pipelines import simulate_pipelines
    from sim.errors import HolmesError
    from sim.formats import pipelinesfile, planfile
    from sim.plan.pipelines import PipelinesPlan

    plan, timelines = _read(what)
    out.distinct(*map(Path, what), chart)
    out.can_be_drawn(chart)
    if isinstance(plan, PipelinesPlan) and profile is not None:
        raise HolmesError("a plan of unlike pipelines takes no --profile")
    given = plan if isinstance(plan, PipelinesPlan) else commands.with_profile(plan, profile)
    with out.progress("simulating"):
        simulated = (
            simulate_pipelines(given).timeline if isinstance(given, PipelinesPlan) else commands.simulate(given).timeline
        )
    digests = (pipelinesfile.digest(plan) if isinstance(plan, PipelinesPlan) else planfile.digest(plan),)
    compared = tuple(
        measurement.measured_step(given, simulated, timeline, name, digests) for name, timeline in timelines.items()
    )
    if chart is not None:
        from holmes_sim import charts

        out.save(charts.measurement(compared), chart)
    if as_json:
        out.show_json(measurement.facts(compared))
        return
    from holmes_sim import printing

    out.show(printing.measured(compared))
    if not isinstance(given, PipelinesPlan):
        out.note_rests_on(given, profile)
    out.note_written(chart)


def _read(what: list[str]) -> tuple[Plan | PipelinesPlan, dict[str, Timeline]]:
    """The plan, and the timelines by file name. Raises HolmesError unless the files are one plan and at least one timeline."""
    from holmes_sim import commands, unlike_pipelines
    from sim.engine.timeline import Timeline
    from sim.errors import HolmesError
    from sim.plan.pipelines import PipelinesPlan
    from sim.plan.plan import Plan

    topologies = [name for name in what if not name.endswith(".json")]
    if topologies:
        raise HolmesError(
            f"{topologies[0]}: a topology; compare takes one topology, several plans, or a plan and its timelines"
        )
    read = {
        name: unlike_pipelines.read_pipelines(name) if unlike_pipelines.has_pipelines(name) else commands.read(name)
        for name in what
    }
    plans = {name: found for name, found in read.items() if isinstance(found, Plan | PipelinesPlan)}
    timelines = {name: found for name, found in read.items() if isinstance(found, Timeline)}
    if len(plans) != 1:
        given = f"{len(plans)} plans are given: {' '.join(plans)}" if plans else "no plan is given"
        raise HolmesError(f"compare takes one plan and its timelines; {given}")
    if not timelines:
        writers = "run, lab and simulate --trace write timelines"
        raise HolmesError(
            f"{next(iter(plans))}: a plan without timelines; compare takes one plan and its timelines ({writers})"
        )
    return next(iter(plans.values())), timelines
