"""Answers about plans with attention and experts on two sets of ranks: `simulate`, `show`, `run` and `lab` of their files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from holmes_sim.cli import output as out
from holmes_sim.cli import ranks

if TYPE_CHECKING:
    from holmes_sim.torch_backend.run_options import RunOptions
    from sim.disaggregation.plan import DisaggregatedPlan


def simulate(plan: DisaggregatedPlan, trace: Path | None, chart: Path | None, as_json: bool) -> None:
    """Simulate a step; write its timeline, draw and print it."""
    from holmes_sim import disaggregated
    from sim.disaggregation.rounds import ROUNDS
    from sim.engine import timeline

    with out.progress("simulating"):
        run = disaggregated.simulate_disaggregated(plan)
        shown = run.timeline if trace or chart else None
    if shown is not None:
        out.write(trace, timeline.to_json(shown))
    if chart is not None and shown is not None:
        from holmes_sim import charts
        from sim.formats.disaggregatedfile import SETS

        out.save(charts.timeline(shown, SETS), chart)
    if as_json:
        out.show_json(run.facts())
        return
    from holmes_sim import printing

    out.show(printing.simulated_disaggregated(run))
    if shown is not None and plan.stage.rounds > ROUNDS:
        out.note(f"The timeline has the first {ROUNDS} of {plan.stage.rounds} rounds.")
    out.note_written(trace, chart)


def show(plan: DisaggregatedPlan, chart: Path | None, as_json: bool) -> None:
    """Print a plan with its simulated step, or draw the step."""
    from sim.formats import disaggregatedfile

    if as_json and chart is None:
        out.show_json(disaggregatedfile.facts(plan))
        return
    simulate(plan, None, chart, as_json)


def run(path: Path, plan: DisaggregatedPlan, options: RunOptions, local: bool, as_json: bool) -> None:
    """Run steps here or as one rank of a launch, and print the median one beside the simulated one."""
    from holmes_sim import running_disaggregated as running

    ranks.note_wait(plan.prediction.step_s if local and plan.prediction else None, options, options.scale)
    compared = ranks.run(
        path, len(plan.placement), local,
        lambda: running.as_rank(plan, options), lambda: running.run_disaggregated(plan, options),
    )  # fmt: skip
    if compared is None:
        return
    notes = ranks.loopback(local, (plan,))
    if as_json:
        out.show_json(compared.facts() | {"notes": list(notes)})
        return
    from holmes_sim import printing

    out.show(printing.measured_disaggregated(compared))
    ranks.note_devices(compared.measured.computed_on, (plan.fleet.spec(device).name for device in plan.placement))
    ranks.show_notes(notes)


def compare(what: list[str], chart: Path | None, as_json: bool) -> bool:
    """Print a measured timeline beside the simulation of its plan; False where the first file is another kind of plan.

    Raises HolmesError unless the files are one such plan and one of its timelines."""
    from holmes_sim import commands, disaggregated
    from holmes_sim.running_disaggregated import MeasuredDisaggregated
    from sim.disaggregation.plan import predict
    from sim.engine.timeline import Timeline
    from sim.errors import HolmesError
    from sim.formats import disaggregatedfile

    if not disaggregatedfile.is_disaggregated(commands.plan_text(what[0])):
        return False
    plan, others = disaggregated.read_disaggregated(what[0]), [commands.read(name) for name in what[1:]]
    if len(others) != 1 or not isinstance(others[0], Timeline):
        raise HolmesError(f"{what[0]}: compare takes such a plan with two sets of ranks and one timeline of it (of run or lab)")
    measured = others[0]
    if measured.plan_digest != disaggregatedfile.digest(plan):
        raise HolmesError(f"{what[1]}: it is a timeline of plan {measured.plan_digest}, not of {what[0]}")
    if chart is not None:
        from holmes_sim import charts

        out.save(charts.timeline(measured, disaggregatedfile.SETS), chart)
    compared = MeasuredDisaggregated(plan, predict(plan.stage), measured)
    if as_json:
        out.show_json(compared.facts())
        return True
    from holmes_sim import printing

    out.show(printing.measured_disaggregated(compared))
    out.note_written(chart)
    return True


def lab(plan: DisaggregatedPlan, options: RunOptions, chart: Path | None, as_json: bool) -> None:
    """Run steps in the lab, and print the median one beside the simulated one; draw it."""
    from holmes_sim import printing, running_disaggregated

    ranks.note_wait(plan.prediction.step_s if plan.prediction else None, options, ranks.lab_scale(plan, options))
    with out.progress(f"{len(plan.placement)} ranks in the lab"):
        answer = running_disaggregated.run_disaggregated_in_lab(plan, options)
    if chart is not None:
        from holmes_sim import charts
        from sim.formats.disaggregatedfile import SETS

        out.save(charts.timeline(answer.compared.measured, SETS), chart)
    found = answer.compared
    ranks.show_lab(answer, found.measured.scale, found.facts(), lambda: printing.measured_disaggregated(found), as_json)
