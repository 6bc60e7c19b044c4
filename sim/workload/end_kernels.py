"""Forward kernels of the input embedding and of the head, by shape (as `sim.workload.kernels` has those of a layer)."""

from __future__ import annotations

from sim.workload.kernels import Gemm, Kernel, Pass
from sim.workload.model import Model


def embedding_kernels(model: Model, b: int, s: int, nbytes: int) -> tuple[Kernel, ...]:
    """Kernels of the input embedding: gather and write rows, then dropout."""
    values = b * s * model.hidden * nbytes
    mask = float(b * s * model.hidden) if model.mlp == "gelu" else 0.0
    return (Pass("embedding", 2.0 * values + 2.0 * values + mask, saved=mask),)


def head_kernels(model: Model, b: int, s: int, t: int, nbytes: int) -> tuple[Kernel, ...]:
    """Kernels of the final norm, the logits and the cross-entropy loss on one of `t` tensor-parallel ranks.

    Each layer that predicts further tokens has these once more, and a product of its two normed inputs before it (arXiv
    2412.19437, section 2.2, equation 21).

    The loss reads the logits, keeps them in fp32 and makes three more fp32 passes: maximum, exponentials, gradient
    (arXiv 2205.05198, section 4.3: 4 s b h for norm and projection and 4 s b v for the logits, per rank divided by t).
    """
    tokens, h, v = b * s, model.hidden, model.vocab // t
    values = float(tokens * h * nbytes)
    head: tuple[Kernel, ...] = (
        Pass("norm", 2.0 * values, saved=values),
        Gemm("logits", tokens, v, h, saved=values),
        Pass("loss", float(tokens * v) * (nbytes + 4 + 3 * 4), saved=4.0 * tokens * v),
    )
    further: tuple[Kernel, ...] = (
        Pass("norm", 4.0 * values, saved=2.0 * values),
        Gemm("joined", tokens, h // t, 2 * h, saved=2.0 * values),
        *head,
    )
    return head + model.mtp_layers * further
