"""Plans that a software stack cannot run, whatever the memory: facts that are read in its source."""

from __future__ import annotations

REFUSED = {
    "distant_head": "more than two stages behind the one with the head",
    "few_microbatches": "1F1B with fewer microbatches than pp - 1",
}
"""Name of what software refuses to run -> its description. Both were read in nanotron (huggingface/nanotron 67c5ebb6).

distant_head      `build_model` (src/nanotron/models/base.py) starts a new rank after each block once all compute is placed, so
                  that the cast of the logits and the loss are on the two ranks behind the head. A rank behind them has no block
                  and the last one logs a loss that it does not have (trainer.py): 139 of nanotron's layouts, of which 2 ran
few_microbatches  an assertion of its 1F1B engine (src/nanotron/parallel/pipeline_parallel/engine.py): 159 layouts, none ran"""


def refused(refuses: tuple[str, ...], behind_head: int, schedule: str, microbatches: int, pp: int) -> bool:
    """Whether software that `refuses` so much cannot run a plan with `behind_head` stages behind the head.

    microbatches: of the replica with fewest."""
    found = {"distant_head": behind_head > 2, "few_microbatches": schedule == "1f1b" and microbatches < pp - 1}
    return any(found[name] for name in refuses)
