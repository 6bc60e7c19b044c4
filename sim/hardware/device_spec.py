"""Specification of an accelerator: peaks, memory, and the fitted time of a matrix product."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sim.errors import PlanError
from sim.hardware.measured import Profile
from sim.units import Bytes, BytesPerSecond, FlopsPerSecond, Seconds, UsdPerSecond, Watts
from sim.workload.kernels import ADAPTER_SUM, HEAD_NORM, Pass
from sim.workload.model import NARROW

FUSED_EXPERTS = "mxfp8"
"""Precision of products that apply the activation function of experts (Transformer Engine's fused operations
ForwardGroupedMLP_CuTeGEMMSwiGLU_MXFP8 and its backward, transformer_engine/pytorch/ops/fused)."""

SOFTWARE_NAMES = {HEAD_NORM: "norm", ADAPTER_SUM: "adapter"}
"""Name of a kernel -> name by which a stack's `passes` has it, where they differ."""

CASTS = ("contained", "copy", "transposed", "blocks")
"""What a curve of matrix products says of the casts of their inputs (`GemmCurve.casts`)."""


@dataclass(frozen=True, slots=True)
class GemmCurve:
    """Fitted seconds of a matrix product: launch + max(FLOPs x padding^w / (peak x c x s), bytes / (bandwidth x m)).

    padding is the number of tiles rounded up to whole waves over the compute units, divided by the tiles needed. c, m and w are
    `compute_efficiency`, `memory_efficiency` and `wave_exponent`: fitted together on measured products, without a physical
    meaning one by one (the catalogue names the fit). s is `sustained`, the share that is left at the clock of a long run, times
    `older`, the share that products of most software reach, whose libraries are older than those of the measurement.

    `casts` of the inputs (`CASTS`): "contained" in the curve, or apart from it, to a "copy" in the narrow precision, to one and
    a "transposed" one, or to two with scales for "blocks" of values (`sim.kernels.casts`).
    """

    launch: Seconds
    compute_efficiency: float
    memory_efficiency: float
    wave_exponent: float = 0.0
    tile: tuple[int, int] = (128, 256)
    sustained: float = 1.0
    older: float = 1.0
    casts: str = "contained"

    @property
    def reached(self) -> float:
        """Share of the peak that products without padding reach in a long run."""
        return self.compute_efficiency * self.sustained * self.older


MEASURED_QUERIES = 2**18
"""Queries of all heads with which the catalogue's attention by length was measured: 8 sequences of 1,024 tokens to one of 8,192
with 32 heads on Blackwell (aiconfigurator), twice as many on Hopper (docs/profile.md), so that all multiprocessors are busy."""


@dataclass(frozen=True, slots=True)
class AttentionRates:
    """Shares of the dense peak that a fused attention core reaches; only the FLOPs of causal attention count.

    A sequence of s tokens reaches s / (s + half_length) of a share, so `half_length` tokens reach half of it;
    `backward_half_length`: the same for the backward, where it differs. `head_dims`: (dimension of a head that has a kernel,
    its forward and its backward rate as multiples of the shares); a head is padded to the next of these dimensions. `fp8`: rate
    of a core that multiplies in fp8, as a multiple of these. `alone`: how much of the end of a kernel multiprocessors idle in,
    (forward, backward), as queries of each (`waiting`)."""

    forward: float
    backward: float
    half_length: float = 0.0
    backward_half_length: float | None = None
    head_dims: tuple[tuple[int, float, float], ...] = ()
    fp8: float = 1.0
    alone: tuple[float, float] = (174.0, 115.0)

    def share(self, seq_len: float, head_dim: float, backward: bool) -> float:
        """Share of the peak for causal sequences of `seq_len` tokens; `head_dim`: the mean of a query's and a value's."""
        most = self.backward if backward else self.forward
        own = self.backward_half_length if backward else None
        return most * self._of_heads(head_dim, backward) * seq_len / (seq_len + (self.half_length if own is None else own))

    def waiting(self, queries: float, compute_units: int, backward: bool) -> float:
        """How many times as long a kernel of few queries takes as `share` says; `queries` are those of all its heads.

        A multiprocessor computes one block of the queries of a head after the other. At the end most wait for the last blocks,
        which go through the most keys: with n queries and m multiprocessors 1 + `alone` m / n times as long as if none did.
        The rates were measured with `MEASURED_QUERIES`; no kernel is faster than these. 1 for rates without `half_length`."""
        if not self.half_length:
            return 1.0
        idle = self.alone[backward] * compute_units
        return max((1 + idle / queries) / (1 + idle / MEASURED_QUERIES), 1.0)

    def _of_heads(self, head_dim: float, backward: bool) -> float:
        """The rate of heads of a dimension, as a multiple."""
        if not self.head_dims:
            return 1.0
        kernel = next((one for one in self.head_dims if one[0] >= head_dim), self.head_dims[-1])
        return kernel[2 if backward else 1] * min(head_dim / kernel[0], 1.0)

    def scaled(self, factor: float) -> AttentionRates:
        """The rates times a factor."""
        return replace(self, forward=self.forward * factor, backward=self.backward * factor)


@dataclass(frozen=True, slots=True)
class DeviceSpec:
    """An accelerator as one rank sees it. `peak` is dense FLOP/s by precision, sorted by name.

    `gemm` is for products of all precisions but those in `narrow_gemm`, (precision, curve) of fp8, mxfp8 and nvfp4; a narrow
    precision without a curve has `gemm`, at its own peak.
    `attention` is for FlashAttention-2 and its like; `newest_attention` for FlashAttention-3, cuDNN and later kernels, where
    they are faster. They run if `runs_newest` (`Stack.newest_attention`). `other_attention`, (fact of a stack, rates),
    takes the place of the latter in software with that fact.

    `launch` is the host's time to launch the kernels of one layer's forward; no layer is faster than that. In a pipeline,
    `launch_per_rank` is added for each rank of a tensor-parallel group of several. If `blocking`, the host waits for each
    kernel before it launches the next, so that its time adds to the device's. If `fused_accumulation`, the product
    that computes a weight's gradient adds it to the accumulated one. If `fp8_attention`, attention beside products in fp8 or
    less multiplies in fp8, and if `fp8_head`, logits do. If `current_scaling`, casts to fp8 look for the largest value of the
    tensor first. If `fused_experts`, products of experts in mxfp8 apply the
    activation function themselves, in both directions. If `summed_norms`, a kernel of its own sums the gradients of the weights
    of norms of short rows (`sim.kernels.formulas`). If `tensor_lists`, collectives of ZeRO 3 take lists of one tensor for each
    rank (`sim.kernels.tensor_lists`); if `engine_modules`, the host calls Transformer Engine's modules
    (`sim.kernels.launches`); if `unfused_optimizer`, Adam has eight kernels, each of which reads and writes all parameters or
    moments (`Optimizer.unfused_bytes`). `message_calls`: calls of the host for a message of a pipeline, during which the device
    waits (`sim.kernels.launches.message_seconds`). `passes` is the bytes that elementwise kernels move, by name of the kernel
    (`sim.workload.kernels`), as multiples of those of Megatron-LM's fused kernels; 1 where it has no entry.
    `step` is host time once per optimizer step, while the device waits; `update_bytes` is bytes moved through memory for each
    parameter that the rank holds, once per step, beside the optimizer's own (norm and clipping of gradients, copies, zeroing).
    `host_memory_bandwidth` is its share of the memory bandwidth of its host. `watts` is the power while it computes,
    `idle_watts` while it waits, `price` its rent; None means unknown.
    """

    name: str
    vendor: str
    compute_units: int
    peak: tuple[tuple[str, FlopsPerSecond], ...]
    memory: Bytes
    memory_bandwidth: BytesPerSecond
    host_bandwidth: BytesPerSecond
    gemm: GemmCurve
    attention: AttentionRates
    elementwise_efficiency: float
    narrow_gemm: tuple[tuple[str, GemmCurve], ...] = ()
    newest_attention: AttentionRates | None = None
    runs_newest: bool = False
    watts: Watts | None = None
    launch: Seconds = 0.0
    step: Seconds = 0.0
    launch_per_rank: Seconds = 0.0
    update_bytes: Bytes = 0.0
    blocking: bool = False
    fused_accumulation: bool = False
    fp8_attention: bool = False
    fp8_head: bool = False
    current_scaling: bool = False
    fused_experts: bool = False
    summed_norms: bool = False
    tensor_lists: bool = False
    engine_modules: bool = False
    unfused_optimizer: bool = False
    message_calls: tuple[int, int, int, int] = (0, 0, 0, 0)
    passes: tuple[tuple[str, float], ...] = ()
    profile: Profile | None = None
    idle_watts: Watts | None = None
    price: UsdPerSecond | None = None
    host_memory_bandwidth: BytesPerSecond | None = None
    other_attention: tuple[tuple[str, AttentionRates], ...] = ()

    def __hash__(self) -> int:
        """Hash of a few fields only, for speed: kernel times are cached by device."""
        return hash((self.name, self.memory))

    def runs(self, precision: str) -> str:
        """The precision at which the device runs a product of precision `precision`; empty if it cannot.

        tf32 is fp32 data on tensor cores. A device without it, as before Ampere, runs the same program at fp32 (in PyTorch
        `allow_tf32` has no effect there).
        """
        names = [name for name, _ in self.peak]
        if precision in names:
            return precision
        return "fp32" if precision == "tf32" and "fp32" in names else ""

    def curve_of(self, precision: str) -> GemmCurve:
        """The curve of matrix products at a precision."""
        return dict(self.narrow_gemm).get(precision, self.gemm)

    def attention_of(self, precision: str) -> AttentionRates:
        """Rates of attention beside products of a precision. Which kernels run is a fact of the software under fp8, too:
        Transformer Engine runs the newest (transformer_engine/pytorch/attention, cuDNN), float8 of torchao changes products
        alone. The newest kernels run at the clock that the products of their step leave (`GemmCurve.sustained`)."""
        rates = self.attention
        if self.runs_newest and self.newest_attention:
            rates = self.newest_attention.scaled(self.curve_of(precision).sustained)
        return rates.scaled(rates.fp8) if self.fp8_attention and precision in NARROW else rates

    def fuses_accumulation(self, precision: str) -> bool:
        """Whether products add gradients to the accumulated ones; under fp8 and less they do (as Megatron-LM sets up
        Transformer Engine, `fuse_wgrad_accumulation`)."""
        return self.fused_accumulation or precision in NARROW

    def moved(self, kernel: Pass, precision: str) -> Bytes:
        """Bytes that the forward of an elementwise kernel moves with this device's software, beside products of a precision."""
        if kernel.routed and self.fused_experts and precision == FUSED_EXPERTS:
            return 0.0
        return kernel.moved * self.multiple(kernel)

    def multiple(self, kernel: Pass) -> float:
        """Bytes that an elementwise kernel of this device's software moves, over those of the kernel as it is counted."""
        return dict(self.passes).get(SOFTWARE_NAMES.get(kernel.name, kernel.name), 1.0)

    def peak_of(self, precision: str) -> FlopsPerSecond:
        """Dense peak at a precision (tf32 falls back to fp32, see `runs`); raises PlanError if the device has none."""
        found = self.runs(precision)
        for name, rate in self.peak:
            if name == found:
                return rate
        known = ", ".join(name for name, _ in self.peak)
        raise PlanError(f"device {self.name} has no {precision} peak; it has {known}")
