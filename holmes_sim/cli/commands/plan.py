"""holmes-sim plan: find the best plan for a topology, or with --pareto plans that trade step time, cost and energy."""

from __future__ import annotations

import json
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holmes_sim.cli import completion, islands_plans, several_plans
from holmes_sim.cli import output as out
from holmes_sim.cli.options import (
    BatchSize,
    Edits,
    Headroom,
    Json,
    LaunchTarget,
    Measured,
    ModelWord,
    RequireFile,
    Runs,
    SequenceLength,
    StackWord,
    Tokens,
    TopologyArgument,
    edited,
    pinned,
)

if TYPE_CHECKING:
    from planner.request import Wishes
    from sim.hardware.topology import Topology
    from sim.workload.workload import Workload

NAME = "plan"
ORDER = 10
EXAMPLE = "holmes-sim plan holmes-hybrid-4 -o plan.json"
ANY = "any"
"""Default of --for: at least one training framework must be able to run the plan."""
EXACT = "exact"
"""Default of --sync: synchronous training, without islands."""


@pinned
def command(
    topo: TopologyArgument,
    wishes: Wishes,
    model: ModelWord = None,
    global_batch_size: BatchSize = None,
    seq_len: SequenceLength = None,
    strategy: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Planning strategy (holmes-sim list strategies).",
            autocompletion=completion.modules("planner.strategies"),
        ),
    ] = "certified",
    time_limit: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", min=1.0, help="Time limit of the search; at the limit, the best plan found so far is returned."
        ),
    ] = 50.0,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="FILE", help="File for the plan (with --pareto and --shortlist: folder for all plans)."
        ),
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Explain why other layouts are slower, and what limits this one.")
    ] = False,
    profile: Measured = None,
    stack: StackWord = None,
    edits: Edits = None,
    headroom: Headroom = None,
    tokens: Tokens = None,
    budget: Annotated[
        str | None,
        typer.Option(metavar="MONEY", help="With --tokens: most that the training may cost, such as '500 kUSD'."),
    ] = None,
    require: RequireFile = None,
    objective: Annotated[
        str,
        typer.Option(
            metavar="step-time|cost|energy",
            help="What to minimise; cost and energy are per token.",
            autocompletion=completion.words("step-time", "cost", "energy"),
        ),
    ] = "step-time",
    pareto: Annotated[bool, typer.Option("--pareto", help="Find the Pareto front of step time, cost and energy.")] = False,
    chart: Annotated[Path | None, typer.Option(metavar="FILE", help="With --pareto: draw the front (png, svg, pdf).")] = None,
    shortlisted: Annotated[
        int | None,
        typer.Option(
            "--shortlist",
            metavar="K",
            min=1,
            help="Write K plans whose measurement says most about which is fastest, to -o FOLDER.",
        ),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="TARGET",
            help="With --shortlist: launch target of the plans (holmes-sim list targets); megatron if left out.",
            autocompletion=completion.modules("holmes_sim.exporters"),
        ),
    ] = None,
    launch: LaunchTarget = ANY,
    runs: Runs = None,
    sync: Annotated[
        str,
        typer.Option(
            "--sync",
            metavar="exact|any|NAME",
            help="How clusters that thin links join may keep one model: exact; any strategy; or those of NAME (holmes-sim list "
            "sync), such as 'local-steps<=64' or diloco=100,int8.",
        ),
    ] = "exact",
    as_json: Json = False,
    as_json_lines: Annotated[
        bool,
        typer.Option(
            "--json-lines", help="Print JSON on stdout: a line for each improvement while searching, last a line with the plan."
        ),
    ] = False,
) -> None:
    """Find the best layout and placement for a topology, with a bound on how far the plan can be from the best one."""
    begun = time.monotonic()
    from holmes_sim import commands, explained_plans, requirements, whole_runs
    from holmes_sim.improvements import Improvements
    from holmes_sim.intervals import plan_facts
    from sim.errors import HolmesError
    from sim.formats import planfile

    if as_json_lines and (as_json or explain or pareto or shortlisted is not None):
        raise HolmesError("--json-lines prints the search for one plan; leave out --json, --explain, --pareto and --shortlist")
    edits = [*(edits or []), *([f"memory_headroom={headroom}"] if headroom is not None else [])]
    fleet = commands.load(topo, profile)
    if tokens is not None:
        whole_runs.tokens_of(tokens)
        if as_json or as_json_lines or pareto or shortlisted is not None:
            raise HolmesError("--tokens prints a table for one plan; `holmes-sim goodput PLAN --tokens N --json` prints JSON")
    if budget is not None:
        if tokens is None:
            raise HolmesError("--budget needs --tokens, the number of tokens that it pays for, such as 2T")
        edits.append(f"require.cost.max={whole_runs.cost_within(budget, tokens, fleet.fleet.devices)}")
    where = edited(fleet, [*edits, *([f"stack={stack}"] if stack else [])], require)
    out.distinct(Path(topo), require, output)
    workload = commands.workload_of(where, model, global_batch_size, seq_len)
    if shortlisted is not None:
        if pareto or explain or chart is not None or (strategy, objective) != ("certified", "step-time"):
            raise HolmesError(
                "--shortlist uses strategy certified and the step time; leave out --strategy, --objective, --pareto, --explain "
                "and --chart"
            )
        if launch != ANY:
            raise HolmesError("--shortlist has its target from --to; leave out --for")
        if output is None:
            raise HolmesError("--shortlist writes a folder for each plan; give the folder with -o FOLDER")
        options: dict[str, object] = {"--model": model, "--global-batch-size": global_batch_size, "--seq-len": seq_len}
        options |= {"--profile": profile, "--require": require}
        given = [word for name, value in options.items() if value is not None for word in (name, str(value))]
        given += [word for edit in edits for word in ("--set", edit)]
        again = " ".join(filter(None, (shlex.join([topo, *given]), str(wishes))))
        request = requirements.request(where, workload, wishes, time_limit, to or "megatron")
        several_plans.shortlist(request, shortlisted, to or "megatron", runs, output, again, as_json)
        return
    if sync != EXACT:
        others = (as_json_lines, explain, pareto, chart, tokens, to, runs)
        if any(others) or (strategy, objective) != ("certified", "step-time"):
            raise HolmesError(
                "--sync uses strategy certified and the step time; leave out --strategy, --objective, --pareto, --chart, "
                "--explain, --tokens, --json-lines, --to and --runs"
            )
        islands_plans.plan(where, workload, sync, wishes, (time_limit, launch), output, as_json)
        return
    if runs:
        raise HolmesError("--runs needs --shortlist; holmes-sim calibrate --runs FOLDER fits a stack for --stack")
    if to is not None:
        raise HolmesError("--to needs --shortlist; `holmes-sim export PLAN --to TARGET` writes the launch of one plan")
    if pareto:
        if explain or (strategy, objective) != ("certified", "step-time"):
            raise HolmesError(
                "--pareto uses strategy certified and all objectives; leave out --strategy, --objective and --explain"
            )
        several_plans.pareto(where, workload, wishes, time_limit, launch, (output, chart), as_json)
        return
    if chart is not None:
        raise HolmesError("--chart needs --pareto; `holmes-sim simulate PLAN --chart FILE` draws a plan")
    out.can_be_written(output)
    left = max(time_limit - (time.monotonic() - begun), 0.0)
    watch = Improvements(out.show_json_line, begun) if as_json_lines else lambda state: None
    with out.progress("planning", left, _what(where, workload, time_limit)) as progress:
        try:
            answer = commands.plan(where, workload, strategy, wishes, left, progress, explain, objective, watch, launch)
        except KeyboardInterrupt:
            answer = None
    if answer is None:
        out.note("interrupted before a plan was found")
        raise typer.Exit(130)
    with out.uninterrupted():
        text = planfile.to_json(answer.plan, plan_facts(answer.plan))
        out.write(output, text)
        if as_json and explain:
            out.show_json(explained_plans.facts(answer, commands.explain(commands.simulate(answer.plan))))
        elif as_json:
            sys.stdout.write(text)
        elif as_json_lines:
            out.show_json_line(json.loads(text))
        else:
            from holmes_sim import printing

            out.show(printing.planned(answer))
            if tokens is not None:
                out.show(printing.whole_run(whole_runs.whole_run(answer.plan, tokens)))
        out.note(islands_plans.INTERRUPTED if answer.interrupted else "")
    if as_json or as_json_lines:
        return
    if explain:
        out.show(printing.verdicts(answer.plan, answer.verdicts))
        if answer.prices:
            out.show(printing.required(answer.plan, answer.prices))
        if answer.effort is not None:
            out.show(printing.search_effort(answer.effort))
        out.show(printing.explained(commands.explain(commands.simulate(answer.plan))))
    out.note_rests_on(answer.plan, profile)
    out.note(f"Planned in {answer.seconds:.1f} s." + (f" Written to {output}." if output else ""))


def _what(where: Topology, workload: Workload, time_limit: float) -> str:
    """What the command will do and how long it may take, in one line."""
    return (
        f"Planning {workload.model.name} on {where.fleet.devices:,} devices of {where.name}: at most {time_limit:g} s "
        "(--time-limit); Ctrl-C ends the search with the best plan so far."
    )
