"""The workload of one optimizer step: model, batch size, sequence length, precision and model FLOPs."""

from __future__ import annotations

from dataclasses import dataclass

from sim.units import Flops
from sim.workload.kernels import Gemm, LayerSharding, layer_kernels
from sim.workload.model import PRECISION_BYTES, Model


@dataclass(frozen=True, slots=True)
class Workload:
    """One optimizer step: `global_batch_size` sequences of `seq_len` tokens through the model."""

    model: Model
    global_batch_size: int
    seq_len: int
    precision: str = "bf16"

    def __post_init__(self) -> None:
        for key in ("global_batch_size", "seq_len"):
            if getattr(self, key) < 1:
                raise ValueError(f"{key} must be at least 1, not {getattr(self, key)}")
        if self.precision not in PRECISION_BYTES:
            raise ValueError(f"precision {self.precision!r} is unknown; known: {', '.join(PRECISION_BYTES)}")

    def __hash__(self) -> int:
        """Hash of a few fields only, for speed: many results are cached by workload."""
        return hash((self.model.name, self.model.layers, self.global_batch_size, self.seq_len))

    @property
    def tokens(self) -> int:
        """Tokens of one optimizer step."""
        return self.global_batch_size * self.seq_len

    @property
    def bytes_per_value(self) -> int:
        """Bytes of one activation or weight."""
        return PRECISION_BYTES[self.precision]

    @property
    def flops(self) -> Flops:
        """Model FLOPs of one optimizer step, forward and backward, without recomputation.

        Three times the forward FLOPs of every matrix product. The attention core counts the masked half too, as MFU is usually
        reported (Narayanan et al., arXiv 2104.04473, section 3: 72 B s L h^2 (1 + s/6h + V/12Lh)).
        """
        model = self.model
        layer = sum(
            k.flops for k in layer_kernels(model, 1, self.seq_len, LayerSharding(), self.bytes_per_value) if isinstance(k, Gemm)
        )
        attention = 4.0 * self.seq_len**2 * model.query_size
        logits = 2.0 * self.seq_len * model.hidden * model.vocab
        return 3.0 * self.global_batch_size * (model.layers * (layer + attention) + logits)
