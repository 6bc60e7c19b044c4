"""The shape of a transformer language model and its parameter counts.

A model is `layers` equal transformer layers between an embedding and a language-model head. `sim.workload.kernels` lists the
kernels of a layer.
"""

from __future__ import annotations

from dataclasses import dataclass

PRECISION_BYTES: dict[str, int] = {"fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 2, "mxfp8": 2, "nvfp4": 2}
"""Precision -> stored bytes of one activation or weight. Training in fp8 or less keeps both in bf16 and casts them for the
GEMM."""
NARROW = ("fp8", "mxfp8", "nvfp4")
"""Precisions of the products of layers alone; attention, logits and all tensors between products are bf16. fp8 has a scale for
each tensor, mxfp8 for each 32 values, nvfp4 for each 16 (Transformer Engine: DelayedScaling, MXFP8BlockScaling,
NVFP4BlockScaling)."""

MLP_KINDS = ("gelu", "swiglu", "relu2")
"""Kinds of MLP: two matrices with biases (GPT), three matrices (gated, Llama), two matrices without biases."""


@dataclass(frozen=True, slots=True)
class Model:
    """A transformer language model.

    `vocab` is the padded vocabulary size. `experts` is 0 for a dense MLP; else `ffn_hidden` is the width of one routed expert,
    and `shared_ffn_hidden` the total width of the shared experts, which process every token. Raises ValueError for wrong
    values.
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
            raise ValueError(f"experts_per_token must be between 1 and experts {self.experts}, not {self.experts_per_token}")
        if self.shared_ffn_hidden < 0 or (self.shared_ffn_hidden and not self.experts):
            raise ValueError(
                f"shared_ffn_hidden {self.shared_ffn_hidden} is the width of shared experts, but the model has no experts"
            )

    @property
    def query_size(self) -> int:
        """Total width of all query heads."""
        return self.heads * self.head_dim

    @property
    def kv_size(self) -> int:
        """Total width of all key heads, which is also that of all value heads."""
        return self.kv_heads * self.head_dim

    @property
    def up_width(self) -> int:
        """Columns of the first MLP product; in a gated MLP those of gate and up projection together."""
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
    def linear_parameters(self) -> int:
        """Parameters of the linear layers of one layer: attention and MLP matrices, without biases, norms and router."""
        attention = self.hidden * (self.query_size + 2 * self.kv_size) + self.query_size * self.hidden
        dense = self.shared_ffn_hidden if self.experts else self.ffn_hidden
        return attention + self._mlp_matrices(dense) + self.expert_linear_parameters

    @property
    def expert_linear_parameters(self) -> int:
        """Parameters of the matrices of all routed experts of one layer, without biases."""
        return self.experts * self._mlp_matrices(self.ffn_hidden)

    @property
    def expert_parameters(self) -> int:
        """Parameters of all routed experts of one layer, which expert parallelism divides."""
        return self.experts * self._mlp_parameters(self.ffn_hidden)

    def layer_parameters_on(self, tp: int, ep: int = 1, etp: int = 0) -> float:
        """Parameters of one layer on one rank: `ep` x `etp` ranks divide the routed experts (etp 0: as tp), `tp` the rest."""
        return (self.layer_parameters - self.expert_parameters) / tp + self.expert_parameters / ep / (etp or tp)

    def _mlp_parameters(self, width: int) -> int:
        return self._mlp_matrices(width) + (width + self.hidden if self.mlp == "gelu" else 0)

    def _mlp_matrices(self, width: int) -> int:
        return (3 if self.mlp == "swiglu" else 2) * self.hidden * width

    @property
    def embedding_parameters(self) -> int:
        """Parameters of the input embedding (words and learned positions)."""
        return (self.vocab + self.learned_positions) * self.hidden

    @property
    def head_parameters(self) -> int:
        """Parameters of final norm and output projection; the last stage stores them even if tied to the embedding."""
        return self.vocab * self.hidden + self.hidden * (2 if self.mlp == "gelu" else 1)

    @property
    def parameters(self) -> int:
        """Parameters of the whole model; tied ones count once."""
        tied = self.vocab * self.hidden if self.tied_embeddings else 0
        return self.layers * self.layer_parameters + self.embedding_parameters + self.head_parameters - tied
