"""Facts of a model that a launch needs: positions, norms, biases, initial weights. Of these, step times depend on `qk_norm`.

A file may leave each of them out: the fact is then None, not known, and a launch says what it assumes in its place."""

from __future__ import annotations

from dataclasses import dataclass, fields

ROPE_SCALING = ("none", "llama3", "yarn")
"""How rotary frequencies are changed for sequences longer than those of pretraining: not at all, as Llama 3.1 does, or YaRN
(arXiv 2309.00071). Names as in Hugging Face's `rope_type`, whose `default` is none here."""


@dataclass(frozen=True, slots=True)
class LaunchFacts:
    """Facts in the words of Hugging Face's configurations, where they have one. Raises ValueError for wrong values.

    `rope_theta`: base of the rotary frequencies; `rope_scaling`: one of `ROPE_SCALING`, by `rope_factor`; `rotary_fraction`:
    share of each head's dimensions that is rotated (`partial_rotary_factor`); `norm_epsilon`: added to the variance in norms;
    `qk_norm`: queries and keys have norms, each over the values of a head; `qkv_bias`: the product of queries, keys and values
    has a bias; `init_std`: standard deviation of initial weights."""

    rope_theta: float | None = None
    rope_scaling: str | None = None
    rope_factor: float | None = None
    rotary_fraction: float | None = None
    norm_epsilon: float | None = None
    qk_norm: bool | None = None
    qkv_bias: bool | None = None
    init_std: float | None = None

    def __post_init__(self) -> None:
        for key in ("rope_theta", "rope_factor", "rotary_fraction", "norm_epsilon", "init_std"):
            if (value := getattr(self, key)) is not None and value <= 0:
                raise ValueError(f"{key} must be above 0, not {value:g}")
        if self.rope_scaling not in (None, *ROPE_SCALING):
            raise ValueError(f"rope_scaling {self.rope_scaling!r} is unknown; known: {', '.join(ROPE_SCALING)}")
        scaled = self.rope_scaling in ROPE_SCALING[1:]
        if scaled and self.rope_factor is None:
            raise ValueError(f"rope_scaling {self.rope_scaling} needs rope_factor, such as 8")
        if self.rope_factor is not None and not scaled:
            raise ValueError(f"rope_factor {self.rope_factor:g} needs rope_scaling, {' or '.join(ROPE_SCALING[1:])}")
        if self.rotary_fraction is not None and self.rotary_fraction > 1:
            raise ValueError(f"rotary_fraction {self.rotary_fraction:g} must be at most 1")

    def known(self) -> dict[str, float | str | bool]:
        """Key -> value of the facts that are known."""
        return {key: value for key in KEYS if (value := getattr(self, key)) is not None}


KEYS = tuple(field.name for field in fields(LaunchFacts))
"""The keys of these facts in files."""
