"""Groups of experts from which a token chooses (arXiv 2412.19437, section 2.1.2)."""

from __future__ import annotations


def checked(groups: int, chosen: int, experts: int, per_token: int) -> tuple[int, int]:
    """(groups, chosen groups) of a model of `experts` experts and `per_token` for each token; (1, 1) where all are chosen.

    Raises ValueError for groups that do not divide the experts, or that have too few."""
    if groups == chosen:
        return 1, 1
    if not 1 <= chosen <= groups:
        raise ValueError(f"topk_group must be between 1 and n_group {groups}, not {chosen}")
    if groups > 1 and (not experts or experts % groups):
        raise ValueError(f"n_group {groups} does not divide experts {experts} into equal groups")
    if groups > 1 and experts // groups * chosen < per_token:
        raise ValueError(
            f"topk_group {chosen} of n_group {groups} has {experts // groups * chosen} experts, fewer than experts_per_token"
        )
    return groups, chosen
