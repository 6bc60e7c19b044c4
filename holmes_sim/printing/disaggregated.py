"""Tables of a simulated and of a measured step with attention and experts on two sets of ranks."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Group
from rich.table import Table
from rich.text import Text

from holmes_sim.disaggregated import SimulatedDisaggregated
from holmes_sim.printing.tables import STYLE, grid
from holmes_sim.running_disaggregated import MeasuredDisaggregated
from sim.disaggregation import shares
from sim.disaggregation.plan import DisaggregatedPlan
from sim.formats.disaggregatedfile import SETS
from sim.units import GIBI, GIGA, time_text

MODELLED = "docs/attention-and-experts.md says what is modelled."


def simulated_disaggregated(run: SimulatedDisaggregated) -> Group:
    """Tables of both sets of ranks and of the prediction."""
    plan = run.plan
    known = plan.prediction
    other = [] if run.confirmed is not False or known is None else [
        Text(f"Warning: the plan predicts a step of {time_text(known.step_s)}; this simulation gives another one.")
    ]  # fmt: skip
    heads = Text(heading(plan), style=STYLE), Text(str(plan.stage)), Text()
    proof = Text(bound(plan, run.prediction.step_s))
    return Group(*heads, _sets(run), Text(), _prediction(run), *other, Text(), proof, Text(MODELLED))


def bound(plan: DisaggregatedPlan, seconds: float) -> str:
    """How far a step of so many seconds is from the best one of the search that found the plan, as a sentence."""
    known = plan.lower_bound_s
    if known is None:
        return "No bound on the step of other stages of this kind is known."
    share = max(1 - known / seconds, 0.0)
    return f"No searched stage of this kind takes less than {time_text(known)}: at most {share:.1%} of the step could be saved."


def heading(plan: DisaggregatedPlan) -> str:
    """What is trained on how many devices."""
    workload = plan.workload
    return (
        f"{plan.topology.name}: {workload.model.name} ({workload.model.parameters / GIGA:.3g} B parameters), batch "
        f"{workload.global_batch_size} x {workload.seq_len} tokens {workload.precision}, {len(plan.placement)} of "
        f"{plan.fleet.devices} devices"
    )


def _sets(run: SimulatedDisaggregated) -> Table:
    numbers = run.prediction
    table = grid("Sets of ranks", "name", "cluster", "device", "ranks", "experts a layer", "computes", "memory", "of room")
    table.columns[0].header = ""
    for index, name in enumerate(SETS):
        table.add_row(
            name, *devices(run, index), f"{numbers.compute_s[index] / numbers.step_s:.1%}",
            f"{numbers.peak_memory_bytes[index] / GIBI:.1f} GiB", f"{numbers.peak_memory_bytes[index] / run.room[index]:.0%}",
        )  # fmt: skip
    return table


def devices(run: SimulatedDisaggregated, index: int) -> tuple[str, str, str, str]:
    """Clusters, device types, number of ranks, and experts of a layer of a rank, of the set of this number in `SETS`."""
    stage = run.plan.stage
    own = (stage.attention, stage.experts)[index]
    held = (shares.attention_rank_experts, shares.expert_rank_experts)[index](stage) / stage.workload.model.layers
    types = _listed(run.plan.fleet.spec(device).name for device in own)
    return _listed(device.cluster for device in own), types, str(len(own)), f"{held:.3g}"


def _listed(names: Iterable[str]) -> str:
    return " + ".join(dict.fromkeys(names))


def _prediction(run: SimulatedDisaggregated) -> Table:
    numbers = run.prediction
    table = grid("Prediction (simulated)", "name", "value")
    table.show_header = False
    table.add_row("step", time_text(numbers.step_s))
    table.add_row("tokens/s", f"{numbers.tokens_per_s:,.0f}")
    table.add_row("MFU", f"{numbers.mfu:.1%}")
    dispatch, combine = (time_text(seconds) for seconds in numbers.exchange_s)
    table.add_row("exchanges, one after the other", f"dispatch {dispatch}, combine {combine}")
    table.add_row(
        "gradients and optimizer", f"attention {time_text(numbers.closing_s[0])}, experts {time_text(numbers.closing_s[1])}"
    )
    return table


def measured_disaggregated(run: MeasuredDisaggregated) -> Group:
    """The layout, and the times of a step, simulated and measured."""
    found = run.measured
    table = grid("Step, mean over the ranks of a set", "name", "simulated", "measured", "error")
    table.columns[0].header = ""
    for what, simulated, measured in run.times():
        error = f"{simulated / measured - 1:+.1%}" if measured and simulated else "-"
        table.add_row(what, time_text(simulated), time_text(measured), error)
    steps = f"median of {len(found.steps_s)} steps, {found.compute} compute"
    parts = [Text(f"{run.plan.topology.name}: {run.plan.stage}", style=STYLE), Text(steps)]
    if found.scale != 1:
        parts.append(Text(f"Simulated times are multiplied by {found.scale:g}, the time scale of this run."))
    return Group(*parts, Text(), table)
