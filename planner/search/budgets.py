"""How much work the search does before it stops.

Work is counted in estimates, pipelines, programmes and simulations, not in seconds, so that a request has the same answer on
every machine. The time limit of the request is only a safeguard on top of that.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Budgets:
    """Limits and tolerances of one search, in the order in which the search meets them.

    All values are guesses, set by hand. Unless a field says otherwise, a larger value makes the search slower and its plan or
    its certificate better."""

    # the first plan
    first_shapes: int = 24
    """Shapes from which the first plan is taken, the best by a quick estimate; each under every schedule, with vpp up to
    `first_vpp` and the first ZeRO stage, and under all of them where none of these fits."""
    partial_shapes: int = 8
    """Shapes, and then variants of them, that are added to these: the best by a quick estimate on several clusters, not all."""
    usual_microbatches: int = 32
    """Number of microbatches of a replica, near which shapes are estimated first where the time limit ends the estimates. More
    take longer to simulate, fewer leave long pipelines idle."""
    draft_shapes: int = 6
    """Shapes, the best by the quick estimate, of which one pipeline is simulated as a draft before all others."""
    costly_shapes: int = 200
    """Shapes with cp or ep from which on one that fits is simulated before they are ranked, which takes milliseconds each."""
    first_vpp: int = 4
    """Largest vpp (virtual stages per pipeline rank) of the first plan; plans with a larger one take longer to simulate."""
    first_variants: int = 32
    """Variants (a shape under one schedule, vpp and ZeRO stage) for which pipelines are estimated."""
    first_doubt: float = 0.8
    """Fraction of its quick estimate that a variant may take: it is left out where that is above the first plan's step."""
    other_variants: int = 8
    """The same with virtual stages where the fastest of these has none, or without where it has some: contention is unlike."""
    first_estimates: int = 3
    """Estimated pipelines kept of each of these variants."""
    first_evaluated: int = 32
    """Estimated pipelines that the evaluator evaluates."""
    estimate_error: float = 0.02
    """Fraction by which an estimate may be above the fastest candidate and its pipeline still be evaluated."""
    first_improved: int = 6
    """Fastest candidates that go through local search."""
    restaged_shapes: int = 6
    """Shapes, the best by the quick estimate, of which candidates go through the local search over stages
    (`planner.search.stage_search`), where there are more than three node classes."""
    restaged_estimates: int = 6
    """Estimated pipelines that are evaluated of each schedule of these shapes from which this search begins."""
    restaged_starts: int = 12
    """Fastest of all these pipelines from which this search begins."""
    restaged_pipelines: int = 6_000
    """Pipelines evaluated in one such search, after which it ends."""
    restaged_again: int = 2
    """Fastest pipelines of these searches from which it begins again after random changes of stages."""
    restaged_kept: int = 6
    """Candidates of this search, the fastest first, that go through the local search over layers and may be simulated."""
    latency_pipelines: int = 3
    """Best pipelines of this search whose warm-ups are chosen by the borders between clusters (`planner.search.latency`)."""
    latency_starts: int = 2
    """Fastest of these that go through the search over stages once more."""
    first_tries: int = 6
    """Simulations in a row without a faster plan, after which mixed stages are tried and the proof begins."""
    first_unlike_tries: int = 3
    """The same for pipelines of unlike degrees or lengths, which are tried where messages of the fastest share links."""
    forwards_of_a_try: int = 4_000
    """Forwards of a pipeline (stages times microbatches times vpp) for which its simulation counts as one more try: where it
    finds no steady state, it takes about a second for each 4,000 of them."""
    forwards_of_a_long_one: int = 16_000
    """Forwards beyond which a pipeline is simulated only if it may be faster by `target_gap`."""
    ranks_of_a_large_one: int = 20_000
    """The same for its devices, before it is built, which takes a second as well."""
    alone_tries: int = 2
    """Simulations of pipelines on one cluster in a row without a faster plan, after which no more are simulated."""
    mixed_tries: int = 8
    """Simulations of plans with mixed stages in a row without a faster plan, after which no more are simulated."""
    mixed_holders: int = 3
    """Placements with mixed stages, those with the least bounds, of which plans are simulated after the proof."""
    mixed_splits: int = 20_000
    """Splits of the layers of a placement up to which all its plans are evaluated, where it holds the bound of mixed stages."""
    mixed_bound_tries: int = 40
    """Simulations of plans of such placements, in a row without a faster plan; a long one counts as several, as for
    `forwards_of_a_try`. Where more are known, those whose bounds leave a gap of `wide_gap`, and none where these are more."""
    wide_gap: float = 0.01
    """Gap above which they are simulated although others are left, and those of `closing_work`. With a smaller one more are."""
    placement_delay: float = 0.5
    """Where a pipeline has two placements and the simulation of one was longer than its step on an idle network: fraction of
    this delay that is expected of the other placement at least (0.57 to 1 in a search of `holmes-uneven-8`). With a larger one
    fewer plans are simulated."""

    # the proof
    target_gap: float = 0.005
    """The proof searches for plans that are faster than the best one by at least this fraction of its step. With a larger one
    it ends sooner, and leaves a larger gap."""
    optimal_gap: float = 1e-3
    """Largest gap at which a plan is called optimal: no plan of the searched space is faster by a larger fraction."""
    few_pipelines: int = 1_000
    """Pipelines of a variant, in one order of its classes, up to which all that might beat the target are evaluated."""
    most_pipelines: int = 20_000
    """Most pipelines of a variant, per order of its classes, that are listed when only those near its bound are listed."""
    bound_step: float = 0.02
    """First increment above a variant's bound, as a fraction: pipelines that might finish within bound x (1 + increment) are
    listed, and the increment doubles until there are `few_pipelines`. A larger one evaluates more pipelines at once."""
    all_pipelines: int = 1_000_000
    """Number of pipelines evaluated for the proof, after which only variants with `few_pipelines` or fewer are evaluated."""
    bound_slack: float = 1e-3
    """Fraction by which a variant's bound may be below a final one and still not matter: raising it further could raise the
    certificate's bound by no more than this. A larger one ends the proof sooner, and leaves a larger gap."""
    kept_pipelines: int = 4
    """Fastest pipelines of each evaluated list that become candidates for simulation."""
    unproved_variants: int = 40
    """Number of variants, since the last faster plan, whose bounds are too high to change the certificate, or that come after
    `all_pipelines`; then the search ends."""
    unequal_variants: int = 20
    """The same for the shapes whose dp does not divide the batch, where they come after all others."""
    unlike_variants: int = 8
    """The same for the shapes whose tp differs between device types, which come last."""
    unequal_shapes: int = 8
    """Such shapes from which a first plan is taken as well, the best by a quick estimate."""
    round_variants: int = 20
    """Number of such variants after which candidates of the pool are simulated."""
    refused: int = 60
    """Most candidates that a target or a limit refuses, in one round of simulations."""
    round_tries: int = 1
    """Simulations in a row without a faster plan, after which such a round ends."""
    last_tries: int = 16
    """Simulations in a row without a faster plan, after which the search ends."""
    bound_tries: int = 60
    """Simulations of pipelines that hold the bound, in a row without a faster plan, counted as for `forwards_of_a_try`."""
    quick_work: int = 3_000_000
    """Work of quick simulations (`planner.search.quick_trials`) in each proof; a million take about two seconds."""
    closing_work: int = 20_000_000
    """The same where it surely closes a gap above `wide_gap`: all pipelines that may be faster are known, and need no more."""
    known_tries: int = 24
    """The same for evaluated pipelines of all variants, which hold no bound and may give a faster plan."""
    bound_refused: int = 2_000
    """The same for pipelines that a target or a limit refuses, which takes 3 to 10 milliseconds each."""
    doubtful_tries: int = 4
    """Simulations in a row without a faster plan of candidates that only unlike ones make seem slow (`Pool.take_doubtful`)."""

    # layers moved by simulation (`planner.search.crowded_links`)
    crowded_delay: float = 0.02
    """Fraction by which the simulated step of the best plan must be above that on an idle network."""
    crowded_tries: int = 64
    """Quick simulations in a row without a faster plan, after which it ends; one of the engine counts as four."""
    crowded_near: float = 0.1
    """Fraction by which the fastest plan of another kind may be slower than the best one for its layers to be moved, too."""
    crowded_starts: int = 4
    """Most plans of other kinds of which layers are moved, the fastest first."""

    # stages of unlike degrees (`planner.search.unlike_degrees`)
    unlike_layouts: int = 60
    """Layouts with the least estimates of which layers are assigned to stages, and then pipelines that are priced."""
    unlike_near: float = 0.1
    """Fraction by which an estimate, and then the closed form of a plan, may be above the step that is searched for."""
    unlike_plans: int = 6
    """Plans in a row that are priced in closed form, 10 to 30 ms each, and are slower than that step: then no more are."""
    unlike_tries: int = 3
    """Fastest of these plans whose layers are moved and that are simulated."""
    unlike_moves: int = 60
    """Plans that are priced to move layers, after which no more are moved."""
    unlike_gain: float = 0.02
    """Fraction of a step that they must save where any framework may run the plan: few launch them (a guess)."""
    unlike_s: float = 2.0
    """Seconds of the time limit that the proof leaves for these plans."""
    unlike_share: float = 0.04
    """Largest fraction of the time limit that is left for them."""
    unlike_tests: int = 3_000
    """Deadline tests of layouts for their bound (`planner.search.unlike_degrees_proof`): two take about a millisecond."""

    # short chunks of sequences (`planner.search.short_chunks`)
    short_shapes: int = 8
    """Shapes, and then variants of them, of the degree that is tried, from which its plans are made; with 0
    none is tried."""
    short_first: float = 0.95
    """They are tried before all others where the ratio of their least quick estimate to that of the others is below this."""
    short_doubt: float = 0.85
    """Fraction of the best step below which their quick estimate does not dismiss them by itself: shared links make steps that
    much longer than estimates, and cp may use them less."""

    # faster plans of a variant, without a proof
    improved_estimates: int = 3
    """Best estimated pipelines of the variant that are evaluated; the fastest one goes through local search."""
    contention: float = 0.5
    """Contention expected where no candidate of the same kind was simulated, as a fraction of the busiest link's message time
    (`planner.search.pool`). With a larger one fewer candidates are simulated as soon as they are found."""
    programmes: int = 16
    """Stage programmes (`planner.models.stage_programme`) in a row without a faster plan, after which no more are solved; most
    only prove that they have none. With at most 12 solutions, the plan of metis-128 was 7 % slower."""
    programme_nodes: int = 1_000
    """Nodes of the branch-and-bound tree of one stage programme, after which its best solution so far is taken."""

    # the time limit
    proof_share: float = 0.2
    """Fraction of the time limit that the first plan leaves for the proof. With a larger one, plans of the largest fleets are
    slower, and their bounds better."""
    long_s: float = 0.25
    """Seconds of building and simulating one plan from which time is reserved for the plans that follow the search."""
    plans_after: int = 1
    """Number of times that building and simulating the slowest plan took for which time is reserved after the search, for the
    certificate and the output."""
    late_tries: int = 4
    """Simulations in a row without a faster plan once the time limit has passed; none where one takes `long_s`."""
    late_s: float = 30.0
    """Seconds after the time limit up to which other strategies are still asked for a plan."""
    mixed_bound_s: float = 5.0
    """Seconds of the time limit left for the bound of plans with mixed stages; total work bounds the placements after that."""
    mixed_share: float = 0.1
    """Largest fraction of the time limit that is left for it."""
