"""Routing of tokens to the experts of a mixture: how uneven it is, and how many tokens an expert takes at most."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from sim.workload.model import Model

REAL_IMBALANCE = 1.3
"""Tokens of the busiest rank of an ep group over the mean, where the router of a real run is not forced to balance (`routing:
real`): a guess. Two pairs of runs with and without forced balance say 1.85 (Qwen3-235B-A22B on 256 H100 at 32,768 and 131,072
tokens, github.com/yanring/Megatron-MoE-ModelZoo e8650517, best_practice/qwen3/readme.md)."""
BIASED_IMBALANCE = 1.04
"""The same of routers that a bias of each expert balances (`balanced_by_bias`): the busiest expert of models of 1 and 3 billion
parameters had 1.04 times the mean of tokens (from memory: arXiv 2408.15664, table 2, MaxVio; 1.5 to 1.7 with an auxiliary
loss). A rank with several experts has less, one microbatch more. DeepSeek-V3 on 256 GB300 took 2 % longer in MLPerf v6.0 than
with forced balance (NVIDIA-NeMo/Megatron-Bridge 067f987, docs/performance-summary-archive.md, 26.06), which would be 1.07."""
BIASED_EXPERTS = 256
"""Experts from which on models with latent attention are of DeepSeek-V3's kind (Kimi K2), not of DeepSeek-V2's, with 160."""


@dataclass(frozen=True, slots=True)
class Routing:
    """How a router divides the tokens of a workload among experts, in every layer with experts.

    imbalance: tokens of the busiest rank of an ep group over the mean, with any ep above 1; one rank alone has the mean.
    tokens: what each expert was given, in place of an imbalance; consecutive experts are on one rank. capacity_factor: most
    tokens that an expert takes, over the mean; tokens above it are dropped, which changes what is trained. None: no token is
    dropped. pad_to_capacity: experts with fewer tokens get rows of padding up to it."""

    imbalance: float = 1.0
    tokens: tuple[int, ...] = ()
    capacity_factor: float | None = None
    pad_to_capacity: bool = False

    def check(self, model: Model) -> None:
        """Raise ValueError where a model has no experts to route to, or the routing does not fit their number."""
        if self == BALANCED:
            return
        if not model.experts:
            raise ValueError(f"routing: model {model.name} has no experts to route tokens to; leave routing out")
        if self.tokens and len(self.tokens) != model.experts:
            raise ValueError(
                f"routing.tokens: {len(self.tokens)} numbers for {model.experts} experts of {model.name}; one for each"
            )
        if self.capacity_factor is not None and self.capacity_factor * model.experts_per_token > model.experts:
            most = model.experts / model.experts_per_token
            raise ValueError(
                f"routing.capacity_factor: {self.capacity_factor:g} is above {most:g}, with which an expert takes every token"
            )

    def of_busiest(self, ep: int) -> float:
        """Tokens of the busiest of `ep` ranks over the mean, at least 1; of counted tokens those that experts take under the
        capacity. Raises ValueError where `ep` does not divide the experts whose tokens are counted."""
        if not self.tokens:
            return self.imbalance
        each, rest = divmod(len(self.tokens), ep)
        if rest:
            raise ValueError(
                f"routing.tokens: {len(self.tokens)} experts with {sum(self.tokens)} tokens for ep {ep}; a multiple of it"
            )
        most = math.inf if self.capacity_factor is None else self.capacity_factor * sum(self.tokens) / len(self.tokens)
        taken = [min(tokens, most) for tokens in self.tokens]
        return max(1.0, *(sum(taken[first : first + each]) * ep / sum(self.tokens) for first in range(0, len(taken), each)))

    def of_config(self, ep: int) -> dict[str, Any]:
        """The fields of a parallel configuration with `ep` ranks in a group that follow from the routing of its workload."""
        limits = {"capacity_factor": self.capacity_factor, "pad_to_capacity": self.pad_to_capacity}
        return {"imbalance": 1.0 if ep == 1 else self.of_busiest(ep), "exchange": None, **limits}


def balanced_by_bias(model: Model) -> bool:
    """Whether a bias of each expert balances the router of a model, and no auxiliary loss (arXiv 2412.19437, section 2.1.2).

    A model does not say it. Those that predict further tokens do (DeepSeek-V3, GLM-4.5), and large ones with latent attention
    (Kimi K2): their configurations at Hugging Face have a score correction bias."""
    return model.experts > 0 and (model.mtp_layers > 0 or (model.attention == "mla" and model.experts >= BIASED_EXPERTS))


def real(model: Model | None) -> Routing:
    """The routing of a run of a model that is not forced to balance; None: of a model that is not known."""
    return Routing(BIASED_IMBALANCE if model is not None and balanced_by_bias(model) else REAL_IMBALANCE)


BALANCED = Routing()
"""Forced balance: every expert has the same number of tokens, and none is dropped."""
