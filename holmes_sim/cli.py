"""The command line: arguments in, commands.py, tables or JSON out; exit codes 0, 2 (wrong input), 3 (no feasible plan).

Heavy imports stand inside the functions, so that --help answers at once.
"""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import RenderableType

    from planner.question import Wishes
    from sim.model import Workload
    from sim.plan import Plan
    from sim.topology import Topology

app = typer.Typer(
    help="Simulate and plan the training of large models on clusters that are not uniform.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

TopologyArgument = Annotated[str, typer.Argument(metavar="TOPO", help="A topology file, or the name of a shipped one.")]
PlanArgument = Annotated[Path, typer.Argument(metavar="PLAN", help="A plan file, as written by holmes-sim plan -o.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else.")]
Measured = Annotated[
    str | None,
    typer.Option("--profile", metavar="NAME|FILE", help="Measured layer seconds, in place of formulas where they fit."),
]
Degree = Annotated[int | None, typer.Option(min=1, help="Pin this dimension of the plan.", rich_help_panel="Pin a dimension")]
ScheduleWord = Annotated[
    str | None, typer.Option(help="1f1b, 1f1b-deepspeed, gpipe or interleaved.", rich_help_panel="Pin a dimension")
]
RecomputeWord = Annotated[str | None, typer.Option(help="none, selective or full.", rich_help_panel="Pin a dimension")]
ZeroStage = Annotated[int | None, typer.Option(min=0, help="Pin this dimension.", rich_help_panel="Pin a dimension")]
ZeroShardSize = Annotated[
    int | None,
    typer.Option(min=2, help="Ranks that share what ZeRO shares, where not all.", rich_help_panel="Pin a dimension"),
]
ModelWord = Annotated[str | None, typer.Option(help="A model of the catalogue or a Hugging Face config.json.")]
BatchSize = Annotated[int | None, typer.Option(min=1, help="Sequences of one optimizer step.")]
SequenceLength = Annotated[int | None, typer.Option(min=1, help="Tokens of a sequence.")]
YOUNG = 200_000
"""Objects made before Python looks for cycles among them: a command makes many that live to its end, and hardly a cycle."""
KINDS = ("devices", "links", "nics", "models", "profiles", "stacks", "topologies", "strategies", "schedules", "collectives")


@app.command(epilog="Example: holmes-sim plan topologies/holmes-hybrid-4.yaml -o plan.json")
def plan(
    topo: TopologyArgument,
    model: ModelWord = None,
    global_batch_size: BatchSize = None,
    seq_len: SequenceLength = None,
    strategy: Annotated[str, typer.Option(help="Who plans (holmes-sim list strategies).")] = "certified",
    time_limit: Annotated[float, typer.Option(min=1.0, help="Seconds of search; the best plan so far comes back.")] = 50.0,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write the plan to this file (--pareto: all, a folder).")
    ] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Say why other layouts lost, and what binds this one.")] = False,
    profile: Measured = None,
    objective: Annotated[str, typer.Option(help="What is to be least: step-time, or cost or energy per token.")] = "step-time",
    pareto: Annotated[bool, typer.Option("--pareto", help="All plans that trade step time, cost and energy.")] = False,
    chart: Annotated[Path | None, typer.Option(help="With --pareto: draw the plans (png, svg, pdf).")] = None,
    as_json: Json = False,
    tp: Degree = None,
    pp: Degree = None,
    dp: Degree = None,
    cp: Degree = None,
    ep: Degree = None,
    vpp: Degree = None,
    microbatch_size: Degree = None,
    schedule: ScheduleWord = None,
    recompute: RecomputeWord = None,
    zero_stage: ZeroStage = None,
    zero_shard_size: ZeroShardSize = None,
) -> None:
    """Choose layout and placement for a topology, and say how far from the best they can be."""
    from holmes_sim import commands
    from planner.question import Wishes
    from sim import planfile
    from sim.errors import HolmesError

    if explain and as_json:
        raise HolmesError("--explain is told in words; leave out --json, or ask `holmes-sim simulate PLAN --explain --json`")
    where = commands.load(topo, profile)
    _distinct(Path(topo), output)
    workload = commands.workload_of(where, model, global_batch_size, seq_len)
    wishes = Wishes(tp, pp, dp, vpp, microbatch_size, schedule, recompute, zero_stage, cp, ep, zero_shard_size)
    if pareto:
        if explain or (strategy, objective) != ("certified", "step-time"):
            raise HolmesError("--pareto asks certified for all objectives; leave out --strategy, --objective and --explain")
        _pareto(where, workload, wishes, time_limit, output, chart, as_json)
        return
    if chart is not None:
        raise HolmesError("--chart draws what --pareto finds; `holmes-sim simulate PLAN --chart` draws a plan")
    with _progress("planning") as progress:
        answer = commands.plan(where, workload, strategy, wishes, time_limit, progress, explain and not as_json, objective)
    text = planfile.to_json(answer.plan)
    _write_text(output, text)
    if as_json:
        sys.stdout.write(text)
        return
    from holmes_sim import printing

    _print(printing.planned(answer))
    if explain:
        _print(printing.judged(answer.plan, answer.verdicts))
        _print(printing.explained(commands.explain(commands.simulate(answer.plan))))
    if answer.interrupted:
        _note("Interrupted: this is the best plan so far.")
    _rests_on(answer.plan, profile)
    _note(f"Planned in {answer.seconds:.1f} s." + (f" Written to {output}." if output else ""))


def _pareto(
    where: Topology,
    workload: Workload,
    wishes: Wishes,
    time_limit: float,
    output: Path | None,
    chart: Path | None,
    as_json: bool,
) -> None:
    """Print, draw and write the plans that trade step time, cost and energy."""
    from holmes_sim import files, front
    from sim import planfile

    if chart is not None:  # what cannot be written is told before the work
        from holmes_sim import charts

        charts.ending(chart)
    if output is not None:
        files.folder(output)
    with _progress("planning") as progress:
        found = front.pareto(where, workload, wishes, time_limit, progress)
    for number, plan in enumerate(found.plans, 1):
        _write_text(output / f"{number}.json" if output is not None else None, planfile.to_json(plan))
    if chart is not None:
        _save(charts.front(found), chart)
    if as_json:
        _json(found.facts())
    else:
        from holmes_sim import printing

        _print(printing.front(found))
        _note(" ".join(f"Written to {path}." for path in (output, chart) if path))
    _note("Interrupted: these are the best plans so far." if found.interrupted else "")


@app.command(epilog="Example: holmes-sim simulate plan.json --trace timeline.json --chart step.png")
def simulate(
    plan: PlanArgument,
    trace: Annotated[Path | None, typer.Option(help="Write a Chrome trace, which Perfetto opens.")] = None,
    chart: Annotated[Path | None, typer.Option(help="Draw the pipeline (png, svg, pdf).")] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Say where the time goes and what the step waits for.")] = False,
    profile: Measured = None,
    as_json: Json = False,
) -> None:
    """Play one step of a plan as discrete events."""
    from holmes_sim import commands
    from sim import timeline

    given = commands.read_plan(plan, profile)
    _distinct(plan, trace, chart)
    with _progress("simulating"):
        run = commands.simulate(given)
    _write_text(trace, timeline.to_json(run.timeline) if trace else "")
    if chart is not None:
        from holmes_sim import charts

        _save(charts.pipeline(given, run.timeline), chart)
    if as_json:
        _json(run.facts() | ({"explanation": commands.explain(run).facts()} if explain else {}))
        return
    from holmes_sim import printing

    _print(printing.simulated(run))
    if explain:
        _print(printing.explained(commands.explain(run)))
    _rests_on(given, profile)
    _note(" ".join([printing.effort(run), *(f"Written to {path}." for path in (trace, chart) if path)]))


@app.command(epilog="Example: holmes-sim compare holmes-hybrid-4 --strategies holmes,megatron --chart strategies.png")
def compare(
    what: Annotated[list[str], typer.Argument(metavar="TOPO", help="A topology file, or the name of a shipped one.")],
    strategies: Annotated[str, typer.Option(metavar="all|NAME,...", help="Who plans (holmes-sim list strategies).")] = "all",
    model: ModelWord = None,
    global_batch_size: BatchSize = None,
    seq_len: SequenceLength = None,
    time_limit: Annotated[float, typer.Option(min=1.0, help="Seconds of search for each strategy that searches.")] = 50.0,
    chart: Annotated[Path | None, typer.Option(help="Draw samples/s by strategy (png, svg, pdf).")] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write every plan into this folder.")] = None,
    profile: Measured = None,
    as_json: Json = False,
    tp: Degree = None,
    pp: Degree = None,
    dp: Degree = None,
    cp: Degree = None,
    ep: Degree = None,
    vpp: Degree = None,
    microbatch_size: Degree = None,
    schedule: ScheduleWord = None,
    recompute: RecomputeWord = None,
    zero_stage: ZeroStage = None,
    zero_shard_size: ZeroShardSize = None,
) -> None:
    """Plan a topology by several strategies, and say how fast each would be."""
    from holmes_sim import commands, files
    from planner.question import Wishes
    from sim import planfile

    where = commands.load(_one_topology(what), profile)
    workload = commands.workload_of(where, model, global_batch_size, seq_len)
    wishes = Wishes(tp, pp, dp, vpp, microbatch_size, schedule, recompute, zero_stage, cp, ep, zero_shard_size)
    if chart is not None:  # what cannot be written is told before the work
        from holmes_sim import charts

        charts.ending(chart)
    if output is not None:
        files.folder(output)
    names = () if strategies == "all" else tuple(name.strip() for name in strategies.split(","))
    with _progress("comparing") as progress:
        answer = commands.compare(where, workload, names, wishes, time_limit, progress)
    if output is not None:
        for name, plan, _ in answer.ranked:
            _write_text(output / f"{name}.json", planfile.to_json(plan))
    if chart is not None:
        _save(charts.comparison(answer), chart)
    if as_json:
        _json(answer.facts())
    else:
        from holmes_sim import printing

        _print(printing.compared(answer))
        _note(" ".join(f"Written to {path}." for path in (output, chart) if path))
    _note(answer.note)


def _one_topology(what: list[str]) -> str:
    """The topology among the arguments; plans and timelines will be compared here one day."""
    from sim.errors import HolmesError

    for name in what:
        if name.endswith(".json"):
            raise HolmesError(f"{name}: plans and timelines cannot be compared yet; compare takes a topology")
    if len(what) > 1:
        raise HolmesError(f"compare takes one topology, not {len(what)}: {' '.join(what)}")
    return what[0]


@app.command(epilog="Example: holmes-sim show topologies/holmes-hybrid-4.yaml -o fleet.png")
def show(
    what: Annotated[str, typer.Argument(metavar="TOPO|PLAN", help="A topology, or a plan.")],
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Draw a picture (png, svg, pdf).")] = None,
    as_json: Json = False,
) -> None:
    """Show a topology, or a plan and where its ranks stand, in words or as a picture."""
    from holmes_sim import commands

    is_plan = what.endswith(".json")
    if is_plan:
        given = commands.read_plan(what)
        where = given.topology
    else:
        where = commands.load(what)
    if output is not None:
        from holmes_sim import charts

        _save(charts.placement(given) if is_plan else charts.topology(where), output)
    if as_json:
        from sim import planfile, topology

        _json(planfile.facts(given) if is_plan else topology.written(where))
        return
    from holmes_sim import printing

    if is_plan:
        run = commands.simulate(given)
        _print(printing.simulated(run))
        _print(printing.groups(given))
    else:
        _print(printing.topology(where))
    _note(f"Written to {output}." if output else "")


@app.command("list", epilog="Example: holmes-sim list devices")
def list_(kind: Annotated[str, typer.Argument(metavar="|".join(KINDS), help="What to list.")], as_json: Json = False) -> None:
    """List what the catalogue holds and what can be chosen."""
    from holmes_sim import commands
    from planner import strategies
    from sim import catalog, collectives, schedules
    from sim.errors import HolmesError

    if kind not in KINDS:
        raise HolmesError(f"{kind!r} cannot be listed; known: {', '.join(KINDS)}")
    of: dict[str, Callable[[], tuple[str, ...]]] = {
        "topologies": commands.shipped_topologies,
        "strategies": strategies.names,
        "schedules": schedules.names,
        "collectives": collectives.names,
    }
    found = of[kind]() if kind in of else catalog.names(kind)
    if as_json:
        _json({"kind": kind, "names": list(found)})
        return
    from holmes_sim import printing

    if kind == "topologies":
        _print(printing.topologies((name, commands.load(name)) for name in found))
        return
    if kind in of:
        folder: Any = {"strategies": strategies, "schedules": schedules, "collectives": collectives}[kind]
        _print(printing.modules(kind.capitalize(), [(name, _first_line(folder.get(name).__doc__)) for name in found]))
        return
    _print(printing.catalogue(kind))
    if kind == "links":
        _print(printing.catalogue("nics"))


def _first_line(text: str | None) -> str:
    """What a module says of itself: its docstring's first line, without its own name in front."""
    line = (text or "").strip().splitlines()[0]
    name, _, rest = line.partition(": ")
    return rest if rest and " " not in name else line


@app.command(epilog="Example: holmes-sim schema topology > topology.schema.json")
def schema(what: Annotated[str, typer.Argument(metavar="topology|plan", help="Which file format.")]) -> None:
    """Print the JSON Schema of a file format, for editors."""
    from sim.errors import HolmesError
    from sim.planfile import plan_schema
    from sim.schema import topology_schema

    known = {"topology": topology_schema, "plan": plan_schema}
    if what not in known:
        raise HolmesError(f"there is no schema of {what!r}; known: {', '.join(known)}")
    _json(known[what]())


@app.command(epilog="Example: holmes-sim validate --cases validation/holmes.yaml --chart errors.png")
def validate(
    cases: Annotated[list[Path] | None, typer.Option(help="A case file or a folder of them; may be given again.")] = None,
    stack: Annotated[
        str,
        typer.Option(
            help="default (one set of constants), fitted (by software stack) or honest (fits without the case's group)."
        ),
    ] = "fitted",
    chart: Annotated[Path | None, typer.Option(help="Draw predicted against measured (png, svg, pdf).")] = None,
    profile: Measured = None,
    as_json: Json = False,
) -> None:
    """Hold the simulator against measured training runs."""
    from holmes_sim import validation
    from sim.errors import HolmesError

    if stack not in validation.STACKS:
        raise HolmesError(f"--stack {stack!r} is unknown; known: {', '.join(validation.STACKS)}")
    with _progress("validating") as progress:
        rows = validation.validate(validation.read(cases or [validation.folder()], profile), stack, progress)
    if chart is not None:
        from holmes_sim import charts

        _save(charts.validation(rows), chart)
    if as_json:
        _json(validation.facts(rows))
        return
    from holmes_sim import printing

    _print(printing.validated(rows))
    _note(f"Written to {chart}." if chart else "")


@app.command(epilog="Example: holmes-sim calibrate --cases my-runs.yaml -o stacks")
def calibrate(
    cases: Annotated[list[Path] | None, typer.Option(help="A case file or a folder of them; may be given again.")] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write a stack file for each stack into a folder.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Fit the few numbers of each software stack to measured runs, and say how far off the fit is on runs it did not see."""
    from holmes_sim import calibration, files, validation

    found = validation.read(cases or [validation.folder()])
    if output is not None:
        files.folder(output)
    with _progress("calibrating") as progress:
        fitted = calibration.calibrate(found, progress)
    if output is not None:
        for fit in fitted.fits:
            _write_text(output / f"{fit.name}.yaml", calibration.text(fit))
    if as_json:
        _json(calibration.facts(fitted))
        return
    from holmes_sim import printing

    _print(printing.calibrated(fitted))
    _note(f"Written to {output}." if output else "")


def _version(wanted: bool) -> None:
    if wanted:
        from sim import __version__

        sys.stdout.write(f"holmes-sim {__version__}\n")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    """Simulate and plan the training of large models on clusters that are not uniform."""


@contextmanager
def _progress(what: str) -> Iterator[Callable[[str], None]]:
    """A line on stderr that says how far things are, where stderr is a terminal."""
    from holmes_sim import printing

    screen = printing.console(stderr=True)
    if not screen.is_terminal:
        yield lambda text: None
        return
    with screen.status(f"{what} ...") as status:
        yield lambda text: status.update(f"{what}: {text}")


def _print(content: RenderableType) -> None:
    from holmes_sim import printing

    screen = printing.console()
    if not screen.is_terminal:
        screen.width = max(screen.width, 140)
    screen.print(content)


def _note(text: str) -> None:
    if text:
        sys.stderr.write(text + "\n")


def _rests_on(plan: Plan, profile: str | None) -> None:
    """Say what of a profile was used, and where it was not."""
    from holmes_sim import commands

    lines = commands.rests_on(plan)
    _note(
        "\n".join(lines) if lines or profile is None else f"Profile {profile} has no row of these devices; formulas are used."
    )


def _json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, indent=2) + "\n")


def _write_text(path: Path | None, text: str) -> None:
    if path is not None:
        from holmes_sim import files

        files.write(path, text)


def _distinct(*paths: Path | None) -> None:
    """Refuse to write over what is read, or two things to one place."""
    from sim.errors import HolmesError

    seen: set[Path] = set()
    for path in paths:
        if path is not None and path.resolve() in seen:
            raise HolmesError(f"{path}: named twice; it would be written over")
        if path is not None:
            seen.add(path.resolve())


def _save(figure: Figure, path: Path) -> None:
    from holmes_sim import charts

    charts.save(figure, path)


def main() -> None:
    """Run the command line; an error of the input is its lines on stderr and an exit code, never a traceback."""
    from sim.errors import HolmesError

    gc.set_threshold(YOUNG)
    try:
        app()
    except HolmesError as error:
        for line in str(error).splitlines():
            sys.stderr.write(f"error: {line}\n")
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(0)


if __name__ == "__main__":
    main()
