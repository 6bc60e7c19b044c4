"""Table of placements of experts, and what was proved of the best."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group
from rich.text import Text

from holmes_sim.expert_placement import PROGRAMME, ExpertsPlaced, PlacementRow
from holmes_sim.printing.tables import grid
from sim.units import size_text, time_text

LITTLE = 0.5
"""Gap above which a bound is not worth a number. Guess."""
WORTH_PLANNING = 0.01
"""Share of a step from which on another ep is worth a new plan. Guess."""


def experts_placed(found: ExpertsPlaced) -> Group:
    """The table, and sentences on the bound, the replicas and what is simulated."""
    config, layers = found.plan.config, len(found.chosen.layers)
    columns = ("name", "ep", "replicas", "max/mean", "between clusters", "out of a node", "exchange", "experts", "step")
    table = grid(f"Experts of {found.plan.workload.model.name} on ranks of {found.plan.topology.name}", *columns)
    for row in found.rows:
        table.add_row(
            f"{row.name} (chosen)" if row is found.chosen else row.name,
            str(row.plan.config.ep),
            str(row.replicas or ""),
            f"{row.busiest:.2f}",
            size_text(row.between_clusters),
            size_text(row.out_of_node),
            time_text(row.exchange),
            time_text(row.experts),
            time_text(row.step),
        )
    lines = [
        "max/mean: tokens of the busiest rank. Bytes: of one exchange in one direction. exchange, experts: of one layer and "
        f"microbatch, forward and backward, on idle links. Means over {layers} layers; step: simulated with them.",
        f"Tokens: {found.counts.origin}. Dispatcher {config.dispatcher}.",
    ]
    lines += [_proved(row) for row in found.rows if row.name == PROGRAMME]
    if found.replica_bytes:
        lines.append(
            f"Replicas take {size_text(found.replica_bytes)} of weights on each rank, which the check of memory leaves out; "
            "the step leaves out the sums of their gradients."
        )
    lines += _faster(found)
    return Group(table, Text(), *(Text(line) for line in (*lines, *found.notes)))


def _faster(found: ExpertsPlaced) -> Iterator[str]:
    """That another ep, whose groups are inside nodes, is faster than what is written."""
    best = min(found.rows, key=lambda row: row.step)
    if best.plan.config.ep != found.plan.config.ep and best.step < found.chosen.step * (1 - WORTH_PLANNING):
        yield (
            f"Faster: ep {best.plan.config.ep}, {time_text(best.step)} in place of {time_text(found.chosen.step)}; plan anew "
            f"with --ep {best.plan.config.ep}, and place the experts of that plan."
        )


def _proved(row: PlacementRow) -> str:
    which = f"ep {row.plan.config.ep}" + (f", {row.replicas} replicas" if row.replicas else "")
    if row.is_optimal:
        return f"Programme, {which}: optimal for exchange + experts."
    if row.gap is None or row.gap > LITTLE:
        return f"Programme, {which}: little is proved; a longer --time-limit, or fewer pairs, may help."
    return f"Programme, {which}: no placement takes over {row.gap:.2%} less for exchange + experts."
