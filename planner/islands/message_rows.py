"""Exact plans with compressed messages between clusters, as rows beside sync strategies.

Search and certificate of the exact plan assume whole messages. So for each compression another plan is searched where the
trunks are faster by as much as it makes a message smaller; that plan, and the exact one, are then simulated with the
compression on the trunks as they are, and the faster one is the row. On faster trunks gradients travel faster, too, which stay
whole: so the other plan may be slower than the exact one, and a still better plan may exist. No loss is published for
compressed messages on language models, so what a token is worth is not known."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from planner.islands.island_plans import exact_plan
from planner.islands.sync_rows import SyncRow, of_plan
from planner.placement.simulation import simulate_plan
from planner.request import Request
from planner.target import ANY
from planner.time_limit import TimeLimit
from sim import compression
from sim.kernels.messages import crosses
from sim.plan.plan import Plan


def plans_for_messages(
    request: Request, compressions: Sequence[str], limit: TimeLimit, progress: Callable[[str], None]
) -> dict[str, list[Plan]]:
    """For each compression the plan of a search with faster trunks, on the trunks as they are; none where it has no plan.

    The searches share the time that is left equally. Raises KeyboardInterrupt where Ctrl-C ended one of them."""
    found: dict[str, list[Plan]] = {text: [] for text in compressions}
    for number, text in enumerate(compressions if request.topology.fleet.trunks else ()):
        if limit.is_up():
            break
        faster = with_faster_trunks(request, _shrinking(request, text))
        seconds = limit.seconds_left / (len(compressions) - number)
        plan = exact_plan(faster, seconds, lambda words, text=text: progress(f"messages {text}, {words}"))  # type: ignore[misc]
        if plan is not None:
            found[text] = [replace(plan, topology=request.topology, prediction=None, certificate=None)]
    return found


def with_faster_trunks(request: Request, factor: float) -> Request:
    """The request with the bandwidth of all trunks multiplied."""
    fleet = request.topology.fleet
    trunks = tuple(replace(trunk, bandwidth=trunk.bandwidth * factor) for trunk in fleet.trunks)
    return replace(request, topology=replace(request.topology, fleet=replace(fleet, trunks=trunks)))


def _shrinking(request: Request, text: str) -> float:
    """How many times fewer bytes a message has."""
    width = request.workload.bytes_per_value
    return max(width / compression.code(text, width, 1.0).sent, 1.0)


def message_rows(plans: dict[str, list[Plan]], request: Request) -> Iterator[SyncRow]:
    """A row for each compression, with the fastest of its plans; none where no message of these goes from one cluster to
    another, or where a named target cannot run it."""
    for text, some in plans.items():
        rows = [of_plan(simulate_plan(plan)) for plan in _compressed(text, some) if not _refused(request, plan)]
        if rows:
            fastest = max(rows, key=lambda row: row.tokens_per_s)
            yield replace(fastest, sync=f"exact gradients, messages {text}", price="bounded", worth=None)


def _compressed(text: str, plans: Iterable[Plan]) -> Iterator[Plan]:
    """Plans with messages that cross between clusters, compressed there."""
    for plan in plans:
        config = plan.config
        hops = [*itertools.pairwise(range(config.pp)), *([(0, config.pp - 1)] if config.vpp > 1 else [])]
        if any(crosses(plan, *hop) for hop in hops):
            yield replace(plan, config=replace(config, message_compression=text), certificate=None)


def _refused(request: Request, plan: Plan) -> bool:
    """Whether a limit or a named target refuses a plan. No framework compresses messages; `holmes-sim run` does."""
    free = request.target is None or request.target.name == ANY
    return bool((replace(request, target=None) if free else request).refuses(plan))
