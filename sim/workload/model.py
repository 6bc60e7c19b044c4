"""What is trained: the model's shape and the workload of one optimizer step.

A model is `layers` equal transformer layers between an embedding and a language-model head. A layer is a list of
kernels (`layer_kernels`): matrix products by (m, n, k), one attention core, elementwise passes by bytes. FLOPs, seconds
and saved activation bytes are all read from that one list, so they cannot disagree.

Notation of the formulas: b microbatch size, s sequence length, h hidden size, a heads, t tensor-parallel degree, following
Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", arXiv 2205.05198 (section 4 for
activation bytes), and Narayanan et al., arXiv 2104.04473 (section 3 for FLOPs).
"""

from __future__ import annotations

from dataclasses import dataclass

PRECISION_BYTES: dict[str, int] = {"fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 2}
"""Bytes of one activation or weight as stored; fp8 training keeps weights and activations in bf16 and casts for the GEMM."""

MLP_KINDS = ("gelu", "swiglu", "relu2")


@dataclass(frozen=True, slots=True)
class Model:
    """A transformer language model. `vocab` is the padded vocabulary; `experts` 0 means a dense MLP.

    With experts `ffn_hidden` is the width of one; `shared_ffn_hidden` that of all experts together that every token passes.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn_hidden: int
    vocab: int
    mlp: str = "gelu"
    head_dim: int = 0
    tied_embeddings: bool = True
    learned_positions: int = 0
    experts: int = 0
    experts_per_token: int = 0
    shared_ffn_hidden: int = 0

    def __post_init__(self) -> None:
        if self.head_dim == 0:
            object.__setattr__(self, "head_dim", self.hidden // self.heads if self.heads > 0 else 0)
        for key in ("layers", "hidden", "heads", "kv_heads", "ffn_hidden", "vocab", "head_dim"):
            if getattr(self, key) < 1:
                raise ValueError(f"{key} must be at least 1, not {getattr(self, key)}")
        if self.mlp not in MLP_KINDS:
            raise ValueError(f"mlp {self.mlp!r} is unknown; known: {', '.join(MLP_KINDS)}")
        if self.heads % self.kv_heads:
            raise ValueError(f"kv_heads {self.kv_heads} does not divide heads {self.heads}")
        if bool(self.experts) != bool(self.experts_per_token) or self.experts_per_token > self.experts:
            raise ValueError(f"experts_per_token must lie in 1 to experts ({self.experts}), not {self.experts_per_token}")
        if self.shared_ffn_hidden < 0 or (self.shared_ffn_hidden and not self.experts):
            raise ValueError(f"shared_ffn_hidden {self.shared_ffn_hidden} is a width of shared experts; give experts")

    @property
    def query_size(self) -> int:
        """Width of all query heads together."""
        return self.heads * self.head_dim

    @property
    def kv_size(self) -> int:
        """Width of all key (or all value) heads together."""
        return self.kv_heads * self.head_dim

    @property
    def up_width(self) -> int:
        """Columns of the first MLP product: gate and up side by side where the MLP is gated."""
        return self.ffn_hidden * (2 if self.mlp == "swiglu" else 1)

    @property
    def layer_parameters(self) -> int:
        """Parameters of one layer: attention and MLP matrices, biases of the GELU family, two norms, router."""
        attention = self.hidden * (self.query_size + 2 * self.kv_size) + self.query_size * self.hidden
        norms = 2 * self.hidden
        if self.mlp == "gelu":  # GPT style: biases on every product, norms with a shift
            attention += self.query_size + 2 * self.kv_size + self.hidden
            norms *= 2
        if self.experts:
            shared = self._mlp_parameters(self.shared_ffn_hidden) if self.shared_ffn_hidden else 0
            return attention + self.expert_parameters + shared + self.hidden * self.experts + norms
        return attention + self._mlp_parameters(self.ffn_hidden) + norms

    @property
    def expert_parameters(self) -> int:
        """Parameters of all routed experts of one layer: what expert parallelism divides."""
        return self.experts * self._mlp_parameters(self.ffn_hidden)

    def layer_parameters_on(self, ep: int) -> float:
        """Parameters of one layer on one of `ep` expert-parallel ranks."""
        return self.layer_parameters - self.expert_parameters * (1 - 1 / ep)

    def _mlp_parameters(self, width: int) -> int:
        matrices = (3 if self.mlp == "swiglu" else 2) * self.hidden * width
        return matrices + (width + self.hidden if self.mlp == "gelu" else 0)

    @property
    def embedding_parameters(self) -> int:
        """Parameters of the input embedding (words and learned positions)."""
        return (self.vocab + self.learned_positions) * self.hidden

    @property
    def head_parameters(self) -> int:
        """Parameters of the output projection, stored on the last stage also where it is tied to the embedding."""
        return self.vocab * self.hidden + self.hidden * (2 if self.mlp == "gelu" else 1)

    @property
    def parameters(self) -> int:
        """Parameters of the whole model, tied ones counted once."""
        tied = self.vocab * self.hidden if self.tied_embeddings else 0
        return self.layers * self.layer_parameters + self.embedding_parameters + self.head_parameters - tied
