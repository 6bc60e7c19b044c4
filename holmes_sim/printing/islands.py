"""Tables of plans of islands: the islands, the outer period, and the sync strategies that were compared."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rich.console import Group
from rich.table import Table
from rich.text import Text

from holmes_sim.islands import PlannedIslands, SimulatedIslands
from holmes_sim.launchable import launches_islands
from holmes_sim.printing.certificates import amount
from holmes_sim.printing.layouts import degrees
from holmes_sim.printing.tables import STYLE, grid
from holmes_sim.printing.trunk_sweeps import worth_text
from holmes_sim.printing.workloads import model_text
from holmes_sim.warnings import islands_warnings
from planner.islands.node_ranges import island_text, partition_text
from planner.islands.search import best
from planner.islands.sync_rows import SyncRow
from sim import aggregation
from sim.islands.prediction import is_on_host, outer_state_bytes
from sim.islands.token_worth import SOURCE, TokenWorth, token_worth
from sim.kernels import memory
from sim.plan.certificate import Certificate
from sim.plan.islands import IslandsPlan, IslandsPrediction
from sim.plan.plan import Plan
from sim.results import islands_cost
from sim.sync import PRICES
from sim.units import GIBI, time_text


def planned_islands(answer: PlannedIslands) -> Group:
    """Tables of a plan of islands: islands, prediction, what other sync strategies give, what it gives up, certificate."""
    plan = answer.plan
    parts: list[Text | Table | Group] = []
    if isinstance(plan, IslandsPlan):
        assert plan.prediction is not None
        parts += [_description(plan, plan.prediction, token_worth(plan)), Text()]
    parts += [sync_strategies(answer), Text(), *map(Text, _price(answer))]
    if isinstance(plan, IslandsPlan) and (launches := launches_islands(plan)):
        parts.append(Text(launches))
    if isinstance(plan, IslandsPlan) and plan.certificate is not None:
        parts.append(Text(f"Certificate: {certificate(plan.certificate)}"))
    if isinstance(plan, IslandsPlan):
        parts += [Text(f"Warning: {text}") for text in (*_idle(answer), *(one.text for one in islands_warnings(plan)))]
    return Group(*parts)


def _idle(answer: PlannedIslands) -> Iterator[str]:
    """For each cluster that the best plan leaves out, what the best plan that uses it, too, gives."""
    used = _clusters(answer.plan)
    for cluster in answer.plan.fleet.clusters:
        if cluster.name in used:
            continue
        others = [row for row in answer.answer.every if {*used, cluster.name} <= _clusters(row.plan)]
        if not others:
            yield f"{cluster.name} is idle: no plan that uses it, too, was found."
            continue
        most = best(others)
        unit = "tokens/s" if most.effective is None else "effective tokens/s"
        yield f"{cluster.name} is idle: the best plan found that uses it, too ({most.short}), gives {most.speed:,.0f} {unit}."


def _clusters(plan: Plan | IslandsPlan) -> set[str]:
    islands = plan.islands if isinstance(plan, IslandsPlan) else (plan,)
    return {device.cluster for island in islands for device in island.placement}


def certificate(proof: Certificate) -> str:
    """The certificate of a plan of islands in two sentences: what it proves, and for which islands."""
    tried = [str(value) for axis in proof.space if axis.name == "islands" for value in axis.values]
    divisions = "1 division" if len(tried) == 1 else f"{len(tried)} divisions"
    required = "".join(f" Required: {'; '.join(map(str, axis.values))}." for axis in proof.space if axis.name == "required")
    islands = ", or ".join(dict.fromkeys(re.sub(r": batch \d+( each|(, \d+)*)", "", text) for text in tried))
    return (
        f"with this sync strategy, no searched islands take less than {time_text(proof.lower_bound_s)} for an inner step and "
        f"its part of the exchanges ({time_text(proof.objective_s)} here): at most {proof.gap:.1%} could be saved. "
        f"Searched: {islands}; {divisions} of the batch in all; for each island the space of `plan`.{required}"
    )


def simulated_islands(run: SimulatedIslands) -> Group:
    """Tables of simulated outer periods: islands and prediction."""
    gives = f"It gives up: {PRICES[run.plan.sync.price]}."
    return Group(_description(run.plan, run.prediction, run.worth), Text(), Text(gives), *map(Text, worth_source(run.worth)))


def _description(plan: IslandsPlan, predicted: IslandsPrediction, worth: TokenWorth | None) -> Group:
    return Group(
        Text(heading(plan), style=STYLE), Text(f"sync {plan.sync}"), Text(), _islands(plan, predicted), Text(),
        _prediction(plan, predicted, worth),
    )  # fmt: skip


def heading(plan: IslandsPlan) -> str:
    """One line: topology, model, batch, devices, islands."""
    workload, used = plan.workload, sum(island.config.world_size for island in plan.islands)
    return (
        f"{plan.topology.name}: {model_text(workload)}, batch {workload.global_batch_size} x {workload.seq_len} tokens "
        f"{workload.precision}, {used} of {plan.fleet.devices} devices in {len(plan.islands)} islands"
    )


def _islands(plan: IslandsPlan, predicted: IslandsPrediction) -> Table:
    where = "host" if is_on_host(plan) else "device"
    table = grid(
        "Islands",
        "island",
        "cluster",
        "device",
        "devices",
        "batch",
        "layout",
        "inner step",
        "waits",
        "memory",
        f"outer state on the {where}",
    )
    state = outer_state_bytes(plan)
    for index, island in enumerate(plan.islands):
        config = island.config
        peak = max(a / b for a, b in zip(memory.peak_memory(island), memory.limits(island), strict=True))
        table.add_row(
            str(index), island_text(island), ", ".join(spec.name for spec in island.specs), str(config.world_size),
            str(island.workload.global_batch_size), layout(island), time_text(predicted.inner_step_s[index]),
            _share(predicted.waiting_s[index], predicted.period_s), f"{peak:.0%}",
            f"{state[index] / GIBI:.3g} GiB" if state[index] else "-",
        )  # fmt: skip
    return table


def layout(island: Plan) -> str:
    """Layout of an island in few words."""
    return f"{degrees(island)}, {island.config.schedule}"


def _share(seconds: float, period: float) -> str:
    return f"{seconds / period:.1%}" if seconds > 1e-6 * period else "-"


def _prediction(plan: IslandsPlan, predicted: IslandsPrediction, worth: TokenWorth | None) -> Table:
    table = grid("Prediction (simulated)", "name", "value")
    table.show_header = False
    table.add_row("outer period", f"{time_text(predicted.period_s)}, {inner_steps(plan)}")
    table.add_row("exchanges on the network", f"{time_text(predicted.exchange_s)}{beside(predicted)}")
    waits = is_waited_for(predicted)
    table.add_row(
        "slowest island waits for them", f"{predicted.exposed_s / predicted.period_s:.1%} of the period" if waits else "never"
    )
    table.add_row("tokens/s", f"{predicted.tokens_per_s:,.0f}")
    table.add_row("a token is worth", worth_text(worth))
    if worth is not None:
        low, high = (predicted.tokens_per_s * share for share in (worth.low, worth.high))
        spread = f", {low:,.0f} to {high:,.0f}" if high > low else ""
        table.add_row("effective tokens/s", f"{predicted.tokens_per_s * worth.expected:,.0f}{spread}")
    table.add_row("MFU", f"{predicted.mfu:.1%}")
    priced = plan.annotated(predicted)
    for name, number in (("cost", islands_cost.usd_per_token(priced)), ("energy", islands_cost.joules_per_token(priced))):
        if number is not None:
            table.add_row(name, amount(name, number))
    if plan.sync.aggregation != "mean":
        table.add_row("wrong islands that it withstands", withstood(plan))
        table.add_row("noise of the result", noise(plan))
    return table


def withstood(plan: IslandsPlan) -> str:
    """Number of wrong islands that the aggregation withstands: `1 of 5`."""
    name, islands = plan.sync.aggregation, len(plan.islands)
    found = aggregation.get(name).tolerated(islands)
    return f"{found} of {islands}" + (f"; {aggregation.needed(name)} islands withstand one" if not found else "")


def noise(plan: IslandsPlan) -> str:
    """The statistical price of an aggregation while all islands are right."""
    share = aggregation.get(plan.sync.aggregation).efficiency(len(plan.islands))
    return "unknown" if share is None else f"as of the mean of {share * len(plan.islands):.3g} of {len(plan.islands)} islands"


def inner_steps(plan: IslandsPlan) -> str:
    """Inner steps of an outer period: `8 inner steps`."""
    return f"{plan.sync.inner_steps} inner step{'s' if plan.sync.inner_steps > 1 else ''}"


def beside(predicted: IslandsPrediction) -> str:
    """How much of the exchanges is beside inner steps: `, 100% of it beside inner steps`; empty for nothing."""
    hidden = max(predicted.exchange_s - predicted.exposed_s, 0.0)
    return f", {hidden / predicted.exchange_s:.0%} of it beside inner steps" if hidden > 1e-6 * predicted.exchange_s > 0 else ""


def is_waited_for(predicted: IslandsPrediction) -> bool:
    """Whether islands wait for exchanges, but for rounding."""
    return predicted.exposed_s > 1e-6 * predicted.period_s


def sync_strategies(answer: PlannedIslands) -> Table:
    """Table of the sync strategies that were compared, the plans without islands first."""
    table = grid("Sync strategies", "name", "cluster", "tokens/s", "a token is worth", "effective", "gives up")
    for row in _best_of_each(answer):
        mark = "> " if _is_best(row, answer.answer.best) else "  "
        islands = partition_text(row.islands)
        effective = "unknown" if row.effective is None else f"{row.effective:,.0f}"
        table.add_row(
            mark + row.short,
            islands,
            f"{row.tokens_per_s:,.0f}",
            worth_text(row.worth, short=True),
            effective,
            MESSAGES if isinstance(row.plan, Plan) and row.price != "exact" else GIVES_UP[row.price],
        )
    return table


def _best_of_each(answer: PlannedIslands) -> list[SyncRow]:
    """The exact plans, and of each sync strategy the best row of all islands that were tried."""
    groups: dict[object, list[SyncRow]] = {}
    for row in answer.rows():
        name = row.plan.sync.strategy if isinstance(row.plan, IslandsPlan) else (row.sync, row.islands)
        groups.setdefault(name, []).append(row)
    return [best(group) for group in groups.values()]


GIVES_UP = {"exact": "nothing", "bounded": "islands differ", "changed": "one model"}
"""What a strategy gives up, in two words (`sim.sync.PRICES` has the sentence)."""
MESSAGES = "exact messages"
"""What compressed messages give up."""
ROUNDED = "not the result of synchronous training: messages of the pipeline between clusters send rounded values"
"""The same as a sentence."""


def _is_best(row: SyncRow, best: SyncRow) -> bool:
    return (row.sync, row.islands, row.tokens_per_s) == (best.sync, best.islands, best.tokens_per_s)


def _price(answer: PlannedIslands) -> list[str]:
    """Sentences about what the chosen strategy gives up, against the best exact plan."""
    best, exact = answer.answer.best, [row for row in (answer.answer.exact, answer.answer.alone) if row is not None]
    lines = [f"No plan of islands: {answer.answer.refused}."] if answer.answer.refused else []
    if best.price == "exact":
        return [*lines, "The best plan is exact: it gives up nothing."]
    if exact:
        most = max(row.tokens_per_s for row in exact)
        more = "not known how many more, or fewer, effective ones"
        if best.worth is not None:
            low, high = (best.tokens_per_s * share / most for share in (best.worth.low, best.worth.high))
            more = f"{low:.2f} to {high:.2f} times as many effective ones"
        lines.append(f"Against the best exact plan: {best.tokens_per_s / most:.2f} times as many tokens/s, {more}.")
    gives_up = PRICES[best.price] if isinstance(best.plan, IslandsPlan) else ROUNDED
    return [*lines, f"It gives up: {gives_up}.", *worth_source(best.worth)]


def worth_source(worth: TokenWorth | None) -> list[str]:
    """Where the worth of a token is from, and how far it is extrapolated."""
    if worth is None:
        return ["What a token is worth is not published for this strategy on language models: compare losses of your own."]
    if worth.low == worth.high:
        return []
    outside = f" Outside the published range: {worth.extrapolated}." if worth.extrapolated else ""
    return [f"Worth of a token: the tokens of synchronous training with the same loss ({SOURCE}).{outside}"]
