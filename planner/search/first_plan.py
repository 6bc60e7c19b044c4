"""The first plan: from quick estimates of shapes to simulated pipelines of the best of them.

Shapes are ranked by a quick estimate; pipelines of the best are estimated, evaluated, improved by local search, and simulated.
Each step is slower per pipeline than the one before, and is applied to fewer pipelines. Only usual microbatch sizes are tried.
Plans with mixed stages (`planner.search.mixed`) are simulated last. Before all that, one pipeline of the best shapes by the
quick estimate is simulated as a draft, so that some plan is known at once; where ranking many shapes with cp or ep takes
seconds, one that fits in memory comes before it.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import math
from collections.abc import Callable, Container, Iterable, Iterator, Sequence

from planner.bounds.quick_estimate import quick_estimate
from planner.costs.node_classes import NodeClass, node_classes
from planner.search.candidates import Candidate, Estimate, estimates
from planner.search.incumbent import Incumbent, doubtful
from planner.search.local_search import improved
from planner.search.mixed import mixed
from planner.search.mixed_trials import simulate_mixed
from planner.search.restaging import restaged_candidates
from planner.space.shape import Shape, split_backward
from planner.space.shapes import USUAL_SIZES, variants


def find_first_plan(
    incumbent: Incumbent,
    bases: list[Shape],
    unequal: Sequence[Shape] = (),
    unlike: Sequence[Shape] = (),
    others: Callable[[], None] | None = None,
    sizes: Container[int] = USUAL_SIZES,
    drafted: Callable[[], None] = lambda: None,
) -> None:
    """Give the incumbent its first plan, if one of `bases` (shapes under their first schedule) has a plan that fits.

    unequal: shapes whose dp does not divide the batch; unlike: shapes whose tp differs between device types
    (`planner.space.unlike_tp`). The best few of both are tried as well. others: is called as soon as the draft and the variant
    with the least quick estimate are known, and may give the incumbent a plan; drafted: as soon as a draft is, once or twice.
    sizes: the microbatch sizes that are tried, where some shape has one of them.

    Once a plan is known, variants are left out whose quick estimates are far above its step (`Budgets.first_doubt`)."""
    budgets, request = incumbent.budgets, incumbent.request
    usual = [base for base in bases if base.microbatch_size in sizes]
    base_of = {split_backward(base): base for base in usual or bases}
    if budgets.draft_shapes and sum(max(base.cp, base.ep) > 1 for base in bases) >= budgets.costly_shapes:
        _sketch(incumbent, itertools.islice(_that_fit(incumbent, bases), 1))
        drafted()
    promising = ranked(incumbent, base_of, budgets.first_shapes, tails=False)
    _sketch(incumbent, [base_of[shape] for shape in promising[: budgets.draft_shapes]])
    drafted()
    every = [variant for shape in promising for variant in variants(request, base_of[shape])]
    quick = quick_variants(incumbent, [base_of[shape] for shape in promising])
    incumbent.quickest = next(iter(ranked(incumbent, quick, 1)), None)
    if others is not None:
        others()
    partial = [] if incumbent.is_over else ranked(incumbent, base_of, budgets.partial_shapes, tails=False, between=True)
    on_some = quick_variants(incumbent, [base_of[shape] for shape in partial])
    restaged = restaged_candidates(incumbent, promising[: budgets.restaged_shapes], base_of)
    _simulate_found(incumbent, restaged)
    first = ranked(incumbent, quick, budgets.first_variants)
    partly = ranked(incumbent, on_some, budgets.partial_shapes, between=True)
    tried = list(dict.fromkeys([*first, *partly]))
    fitting = simulate_best(incumbent, tried)
    if not incumbent.limit.is_up():
        incumbent.simulate_pool(budgets.first_tries)
        simulate_best(incumbent, tried, waits=True)
    if incumbent.best is None or not fitting:  # variants that take longer to simulate; otherwise the proof considers them
        quick = every
        simulate_best(incumbent, ranked(incumbent, quick, budgets.first_variants))
    if incumbent.best is not None and not incumbent.limit.is_up():
        chunked = incumbent.best.config.vpp > 1
        other_kind = (variant for variant in quick if (variant.vpp > 1) != chunked)
        simulate_best(incumbent, ranked(incumbent, other_kind, budgets.other_variants))
    if incumbent.limit.is_up():  # what follows is simulated only if it is expected to be faster than the draft
        incumbent.keep_draft()
    _simulate_alone(incumbent, every)
    incumbent.keep_draft()
    for further in (unequal, unlike):
        if further and not incumbent.limit.is_up():
            simulate_best(incumbent, _best_variants(incumbent, further))
    with incumbent.context.effort.spent("mixed stages"):
        _simulate_mixed(incumbent)


def quick_variants(incumbent: Incumbent, bases: Iterable[Shape]) -> list[Shape]:
    """The variants of bases that are quick to simulate: few virtual stages, the first ZeRO stage."""
    most = incumbent.budgets.first_vpp
    every = ((one, base) for base in bases for one in variants(incumbent.request, base))
    return [one for one, base in every if one.zero_stage == base.zero_stage and one.vpp <= max(most, base.vpp)]


def _best_variants(incumbent: Incumbent, bases: Sequence[Shape]) -> list[Shape]:
    """The best shapes of usual microbatch sizes by the quick estimate, under every schedule."""
    base_of = {split_backward(base): base for base in bases if base.microbatch_size in USUAL_SIZES}
    promising = ranked(incumbent, base_of, incumbent.budgets.unequal_shapes, tails=False)
    every = (variant for shape in promising for variant in variants(incumbent.request, base_of[shape]))
    return ranked(incumbent, every, incumbent.budgets.unequal_shapes)


def _that_fit(incumbent: Incumbent, shapes: Iterable[Shape]) -> Iterator[Shape]:
    """Shapes whose stages fit in memory, those with usual numbers of microbatches first."""
    context = incumbent.context
    for shape in sorted(shapes, key=functools.partial(_unusual, incumbent)):
        if quick_estimate(context, shape, node_classes(context, shape), False, False) < math.inf:
            yield shape


def _sketch(incumbent: Incumbent, shapes: Iterable[Shape]) -> None:
    """Simulate the best estimated pipeline of shapes."""
    context = incumbent.context
    if incumbent.best is not None:
        return
    estimated: list[Estimate] = []
    for shape in shapes:
        if estimated and incumbent.limit.is_up():
            break
        estimated += estimates(context, shape, node_classes(context, shape), 1)
    if estimated:
        best = min(estimated, key=lambda estimate: estimate.seconds)
        incumbent.sketch(best.shape, best.evaluated().stages)
        incumbent.report("estimating layouts")


def ranked(incumbent: Incumbent, shapes: Iterable[Shape], most: int, tails: bool = True, between: bool = False) -> list[Shape]:
    """The `most` shapes with the least quick estimates, in their order, without shapes that do not fit memory and, with
    `tails`, those whose estimates are far above the best step (`Budgets.first_doubt`). `between`: on some of the clusters,
    neither one nor all (`quick_estimate`).

    Lazy evaluation: a shape enters a heap with an estimate without messages, which is cheap and never above the full estimate.
    The full one, with `tails` or without, is computed when the shape is first taken from the heap. If the time is up before all
    shapes are estimated, a few with usual numbers of microbatches are (`Budgets.usual_microbatches`)."""
    context, heap = incumbent.context, list[tuple[float, int, Shape, bool]]()
    most_seconds = doubtful(incumbent) if tails else math.inf
    for number, shape in sorted(enumerate(shapes), key=lambda pair: _unusual(incumbent, pair[1])):
        if len(heap) >= min(most, incumbent.budgets.draft_shapes) and incumbent.limit.is_up():
            break
        least = quick_estimate(context, shape, node_classes(context, shape), False, False, between)
        if least < most_seconds:
            heap.append((least, number, shape, False))
    heapq.heapify(heap)
    ranked: list[Shape] = []
    while heap and len(ranked) < most:
        least, index, shape, is_full = heapq.heappop(heap)
        if least >= most_seconds:
            break
        if is_full or incumbent.limit.is_up():
            ranked.append(shape)
        else:
            estimate = quick_estimate(context, shape, node_classes(context, shape), tails, True, between)
            heapq.heappush(heap, (estimate, index, shape, True))
    return ranked


def _unusual(incumbent: Incumbent, shape: Shape) -> tuple[float, int]:
    """A sort key: how far, as a ratio, a shape's number of microbatches is from the usual one; then short pipelines first."""
    ratio = shape.microbatches(incumbent.request.workload) / incumbent.budgets.usual_microbatches
    return max(ratio, 1 / ratio), -shape.tp * shape.slots


def _simulate_found(incumbent: Incumbent, found: Iterable[Candidate]) -> None:
    """Simulate candidates that are expected to be faster than the best plan."""
    incumbent.pool.add(found, incumbent.cutoff * (1 - incumbent.budgets.optimal_gap))
    incumbent.simulate_pool(incumbent.budgets.first_tries)


def simulate_best(incumbent: Incumbent, shapes: Iterable[Shape], waits: bool = False) -> bool:
    """Estimate pipelines of shapes, evaluate the best estimates, improve the best candidates and simulate them; return whether
    some pipeline fits memory.

    waits: stages that wait for messages between nodes have fewer layers. Where messages share links, such pipelines may be much
    slower or much faster than others, so they are simulated after them, as far as that is quick."""
    budgets, context = incumbent.budgets, incumbent.context
    estimated: list[Estimate] = []
    below = doubtful(incumbent)
    for shape in shapes:
        if incumbent.is_over or (estimated and incumbent.limit.is_up()):
            break
        estimated += estimates(context, shape, node_classes(context, shape), budgets.first_estimates, waits=waits)
    if waits:
        estimated = [estimate for estimate in estimated if estimate.forwards < budgets.forwards_of_a_try]
    estimated.sort(key=lambda estimate: estimate.seconds)
    incumbent.report(f"evaluating {len(estimated)} estimates")
    evaluated: list[Candidate] = []
    kinds = set[tuple[object, ...]]()
    for estimate in estimated[: budgets.first_evaluated]:
        if incumbent.is_over:
            break
        fastest = min((candidate.seconds for candidate in evaluated), default=math.inf)
        if estimate.seconds > fastest * (1 + budgets.estimate_error):
            break
        evaluated.append(estimate.evaluated())
        kinds.add(_kind(estimate))
    evaluated = [candidate for candidate in evaluated if candidate.seconds < below]
    most = 1 if incumbent.limit.is_up() else budgets.first_improved
    _simulate_found(incumbent, improved(evaluated, most))
    if not incumbent.limit.is_up():
        _simulate_unlike(incumbent, [estimate for estimate in estimated if _kind(estimate) not in kinds])
    return bool(estimated)


def _simulate_unlike(incumbent: Incumbent, estimated: Iterable[Estimate]) -> None:
    """Simulate the best of each kind of estimates, the best first: where messages of the fastest pipelines on an idle network
    share links, others that seem slower, such as those with one stage on a node, may be faster than the best plan."""
    best: dict[tuple[object, ...], Estimate] = {}
    for estimate in estimated:
        if estimate.seconds < incumbent.target:
            best.setdefault(_kind(estimate), estimate)
    evaluated = [estimate.evaluated() for estimate in list(best.values())[: incumbent.budgets.first_improved]]
    incumbent.pool.add(improved(evaluated, incumbent.budgets.first_improved), incumbent.cutoff)
    incumbent.simulate_pool(incumbent.budgets.first_unlike_tries)


def _kind(found: Candidate | Estimate) -> tuple[object, ...]:
    """What decides which messages share links: the degrees and the number of stages."""
    shape = found.shape
    return shape.tp, shape.cluster_tp, shape.dp, shape.cp, shape.ep, shape.etp, len(found.pipeline)


def _simulate_alone(incumbent: Incumbent, shapes: Iterable[Shape]) -> None:
    """Simulate pipelines on one cluster that are estimated to be faster than the best plan, the fastest by estimates first.

    Where links between clusters are slow, the messages of pipelines across them take longer than estimated, and all candidates
    are across them: a plan on one cluster must not be missed then. Lazy evaluation as in `ranked`: a pipeline is estimated
    when the quick estimate of its shape is the least."""
    context, budgets = incumbent.context, incumbent.budgets
    found = list[tuple[float, int, Shape, NodeClass, Estimate | None]]()
    for number, shape in enumerate(one for one in shapes if one.vpp <= budgets.first_vpp):
        if number >= budgets.first_shapes and incumbent.limit.is_up():
            break
        classes = node_classes(context, shape)
        for option in classes if len(classes) > 1 else ():
            least = quick_estimate(context, shape, [option], False)
            if least < incumbent.cutoff:
                found.append((least, len(found), shape, option, None))
    heapq.heapify(found)
    tries = 0
    while found:
        seconds, number, shape, option, best = heapq.heappop(found)
        if seconds >= incumbent.cutoff or tries >= incumbent.tries(1 if incumbent.limit.is_up() else budgets.alone_tries):
            break
        if best is not None:
            tries = 0 if incumbent.offer(shape, best.evaluated().stages) else tries + 1
            incumbent.report("simulating plans on one cluster")
        elif (best := next(iter(estimates(context, shape, [option], 1)), None)) is not None:
            heapq.heappush(found, (best.seconds, number, shape, option, best))


def _simulate_mixed(incumbent: Incumbent) -> None:
    """Simulate plans with mixed stages, as far as they seem promising."""
    if incumbent.budgets.mixed_tries and not incumbent.limit.is_up():
        simulate_mixed(incumbent, mixed(incumbent.context, "certified", incumbent.limit, incumbent.cutoff))
