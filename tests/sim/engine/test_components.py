"""Components are the ranks that anything but gradient collectives joins."""

from __future__ import annotations

from sim.engine.components import components
from sim.engine.symmetry import FoldedCarrier, FoldedLeg, FoldedRoute, Folding
from sim.network.alpha_beta import AlphaBeta
from sim.plan.parallel_config import ParallelConfig


def test_gradient_collectives_do_not_join_ranks() -> None:
    """Ranks 0 and 1, and 2 and 3, send to each other; carriers and links that they share join them, but for gradients."""

    def parts(*others: tuple[str, tuple[int, ...], tuple[int, ...]], zero_stage: int = 0) -> tuple[tuple[int, ...], ...]:
        listed = (("message", (0, 1), (0,)), ("message", (2, 3), (1,)), *others)
        carriers = tuple(
            FoldedCarrier(
                (FoldedRoute((FoldedLeg(tuple((link, 1.0) for link in links), 1.0, 0.0),), 0.0, AlphaBeta(0.0, 0.0)),),
                0.0,
                members,
            )
            for _, members, links in listed
        )
        of = {(kind, index, "all_reduce"): index for index, (kind, _, _) in enumerate(listed)}
        folding = Folding((0, 1, 2, 3), (0, 1, 2, 3), (1.0,) * 4, carriers, of)
        return components(folding, ParallelConfig(pp=2, dp=2, num_microbatches=(1, 1), zero_stage=zero_stage))

    assert parts() == ((0, 1), (2, 3))
    assert parts(("dp", (0, 2), (2,)), ("dp", (1, 3), (2, 0, 1))) == ((0, 1), (2, 3))
    assert parts(("dp", (0, 2), (2,)), zero_stage=2) == ((0, 1, 2, 3),)
    assert parts(("ep", (0, 2), (2,))) == ((0, 1, 2, 3),)
    assert parts(("message", (0, 1), (1,))) == ((0, 1, 2, 3),), "a shared link"
    assert parts(("edp", (0, 1), (2,))) == ((0, 1, 2, 3),), "gradients that could travel while 2 and 3 are postponed"
