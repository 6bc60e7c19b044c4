"""holmes-sim plan: find the best plan for a topology, or with --pareto plans that trade step time, cost and energy."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holmes_sim.cli import completion, islands_plans, plan_options, several_plans
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
    SyncWord,
    Tokens,
    TopologyArgument,
    edited,
    pinned,
)

if TYPE_CHECKING:
    from holmes_sim.results import Planned
    from planner.request import Wishes
    from sim.hardware.topology import Topology
    from sim.workload.workload import Workload

NAME = "plan"
ORDER = 10
EXAMPLE = "holmes-sim plan holmes-hybrid-4 -o plan.json"
CERTIFIED = "certified"
"""Default of --strategy."""
STEP_TIME = "step-time"
"""Default of --objective."""
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
    ] = CERTIFIED,
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
    days: Annotated[
        float | None,
        typer.Option(metavar="N", min=0.001, help="With --tokens: most days that the training may take."),
    ] = None,
    require: RequireFile = None,
    objective: Annotated[
        str,
        typer.Option(
            metavar="step-time|cost|energy",
            help="What to minimise; cost and energy are per token.",
            autocompletion=completion.words("step-time", "cost", "energy"),
        ),
    ] = STEP_TIME,
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
    sync: SyncWord = EXACT,
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
    plan_options.check({
        "--strategy": strategy != CERTIFIED, "--objective": objective != STEP_TIME, "--pareto": pareto, "--explain": explain,
        "--chart": chart is not None, "--shortlist": shortlisted is not None, "--for": launch != ANY, "--to": to is not None,
        "--runs": bool(runs), "--sync": sync != EXACT, "--tokens": tokens is not None, "--budget": budget is not None,
        "--days": days is not None, "--output": output is not None, "--json": as_json, "--json-lines": as_json_lines,
    })  # fmt: skip
    with out.progress(f"reading {topo}"):
        from holmes_sim import commands, whole_runs
        from holmes_sim.improvements import Improvements

        islands_plans.refuse(topo, "a topology", "`--sync any` plans islands of a topology")
        fleet = commands.load(topo, profile)
        if not (as_json or as_json_lines):  # takes tenths of a second, which must not come after the time limit
            from holmes_sim import printing  # noqa: F401
    edits = [*(edits or []), *([f"memory_headroom={headroom}"] if headroom is not None else [])]
    if tokens is not None:
        whole_runs.tokens_of(tokens)
        if budget is not None:
            edits.append(f"require.cost.max={whole_runs.cost_within(budget, tokens, fleet.fleet.devices)}")
        if days is not None:
            edits += [f"require.days.max={days}", f"require.days.tokens={tokens}"]
    where = edited(fleet, [*edits, *([f"stack={stack}"] if stack else [])], require)
    out.distinct(Path(topo), require, output)
    workload = commands.workload_of(where, model, global_batch_size, seq_len)
    if shortlisted is not None and output is not None:
        options = {"--model": model, "--global-batch-size": global_batch_size, "--seq-len": seq_len, "--profile": profile}
        again = several_plans.again(topo, options | {"--stack": stack, "--require": require}, edits, wishes)
        asked = (where, workload, wishes, time_limit, to or "megatron")
        several_plans.shortlist(asked, shortlisted, runs, output, again, as_json)
        return
    if sync != EXACT and pareto:
        several_plans.islands_pareto(where, workload, sync, wishes, (time_limit, launch), (output, chart), as_json)
        return
    if sync != EXACT:
        islands_plans.plan(where, workload, sync, wishes, (time_limit, launch), output, (tokens, as_json))
        return
    if pareto:
        several_plans.pareto(where, workload, wishes, time_limit, launch, (output, chart), as_json)
        return
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
    _Printed(output, explain, tokens, profile, as_json, as_json_lines).show(answer)


@dataclass(frozen=True, slots=True)
class _Printed:
    """What is printed and written of a plan, as options say."""

    output: Path | None
    explain: bool
    tokens: str | None
    profile: str | None
    as_json: bool
    as_json_lines: bool

    def show(self, answer: Planned) -> None:
        """Write the plan to its file and print it. Ctrl-C has no effect until the plan is there."""
        from holmes_sim import attention_and_experts, unlike_replicas

        with out.uninterrupted():
            beside = (attention_and_experts, unlike_replicas) if self.output is not None else ()
            former = [one.remove_former(self.output) for one in beside]
            self._plan(answer)
            out.note(islands_plans.INTERRUPTED if answer.interrupted else "")
            for file in filter(None, former):
                if not file.exists():
                    out.note(f"Removed {file}, which belonged to an earlier plan.")
        if self.as_json or self.as_json_lines:
            return
        if self.explain:
            _explanation(answer)
        out.note_rests_on(answer.plan, self.profile)
        written = " and ".join(str(path) for path in (self.output, *self._beside(answer)) if path)
        out.note(f"Planned in {answer.seconds:.1f} s." + (f" Written to {written}." if written else ""))

    def _beside(self, answer: Planned) -> dict[Path, str]:
        """Path and text of the files of faster plans of other kinds: two sets of ranks, unlike pipelines."""
        from holmes_sim import attention_and_experts, unlike_replicas
        from sim.formats import disaggregatedfile, pipelinesfile

        found: dict[Path, str] = {}
        if self.output is not None and answer.split is not None:
            found[attention_and_experts.beside(self.output)] = disaggregatedfile.to_json(answer.split.plan)
        if self.output is not None and answer.replicas is not None and answer.replicas.plan is not None:
            found[unlike_replicas.beside(self.output)] = pipelinesfile.to_json(answer.replicas.plan)
        return found

    def _plan(self, answer: Planned) -> None:
        from holmes_sim import commands, explained_plans, whole_runs
        from holmes_sim.intervals import plan_facts
        from sim.formats import planfile

        text = planfile.to_json(answer.plan, plan_facts(answer.plan))
        out.write(self.output, text)
        for path, other in self._beside(answer).items():
            out.write(path, other)
        if self.as_json and self.explain:
            out.show_json(explained_plans.facts(answer, commands.explain(commands.simulate(answer.plan))))
        elif self.as_json:
            sys.stdout.write(planfile.text_of(answer.plan_facts()))
        elif self.as_json_lines:
            out.show_json_line(answer.plan_facts())
        else:
            from holmes_sim import printing

            out.show(printing.planned(answer))
            if self.tokens is not None:
                out.show(printing.whole_run(whole_runs.whole_run(answer.plan, self.tokens)))


def _explanation(answer: Planned) -> None:
    """Print why other layouts are slower, what requirements cost, the work of the search, and what limits the plan."""
    from holmes_sim import commands, printing

    out.show(printing.verdicts(answer.plan, answer.verdicts))
    if answer.prices:
        out.show(printing.required(answer.plan, answer.prices))
    if answer.plan.certificate is not None and (apart := printing.unlike_degrees(answer.plan.certificate)):
        out.show(f"\n{apart}")
    if answer.replicas is not None:
        out.show(printing.unlike_pipelines(answer.replicas))
    if answer.effort is not None:
        out.show(printing.search_effort(answer.effort))
    out.show(printing.explained(commands.explain(commands.simulate(answer.plan))))


def _what(where: Topology, workload: Workload, time_limit: float) -> str:
    """What the command will do and how long it may take, in one line."""
    return (
        f"Planning {workload.model.name} on {where.fleet.devices:,} devices of {where.name}: at most {time_limit:g} s "
        "(--time-limit); Ctrl-C ends the search with the best plan so far."
    )
