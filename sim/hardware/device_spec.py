"""Specification of an accelerator: peaks, memory, and the fitted time of a matrix product."""

from __future__ import annotations

from dataclasses import dataclass

from sim.errors import PlanError
from sim.hardware.measured import Profile
from sim.units import Bytes, BytesPerSecond, FlopsPerSecond, Seconds, UsdPerSecond, Watts


@dataclass(frozen=True, slots=True)
class GemmCurve:
    """Fitted seconds of a matrix product: launch + max(FLOPs x padding^w / (peak x c), bytes / (bandwidth x m)).

    padding is the number of tiles rounded up to whole waves over the compute units, divided by the tiles needed. c, m and w are
    `compute_efficiency`, `memory_efficiency` and `wave_exponent`: fitted together on measured products, without a physical
    meaning one by one (the catalogue names the fit).
    """

    launch: Seconds
    compute_efficiency: float
    memory_efficiency: float
    wave_exponent: float = 0.0
    tile: tuple[int, int] = (128, 256)


@dataclass(frozen=True, slots=True)
class DeviceSpec:
    """An accelerator as one rank sees it. `peak` is dense FLOP/s by precision, sorted by name.

    `launch` is the host's time to launch the kernels of one layer's forward; no layer is faster than that. In a pipeline,
    `launch_per_rank` is added for each rank of a tensor-parallel group of several. If `blocking`, the host waits for each
    kernel before it launches the next, so that its time adds to the device's. `step` is host time once per optimizer step,
    while the device waits; `update_bytes` is bytes moved through memory for each parameter that the rank holds, once per step,
    beside the optimizer's own (norm and clipping of gradients, copies, zeroing). `watts` is the power while it computes,
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
    attention_forward: float
    attention_backward: float
    elementwise_efficiency: float
    watts: Watts | None = None
    launch: Seconds = 0.0
    step: Seconds = 0.0
    launch_per_rank: Seconds = 0.0
    update_bytes: Bytes = 0.0
    blocking: bool = False
    profile: Profile | None = None
    idle_watts: Watts | None = None
    price: UsdPerSecond | None = None

    def __hash__(self) -> int:
        """Hash of a few fields only, for speed: kernel times are cached by device."""
        return hash((self.name, self.memory))

    def runs(self, precision: str) -> str:
        """The precision at which the device runs a product of precision `precision`; empty if it cannot.

        tf32 is fp32 data on tensor cores. A device without it, as before Ampere, runs the same program at fp32 (in PyTorch
        `allow_tf32` has no effect there).
        """
        names = [name for name, _ in self.peak]
        return next((name for name in (precision, *(("fp32",) if precision == "tf32" else ())) if name in names), "")

    def peak_of(self, precision: str) -> FlopsPerSecond:
        """Dense peak at a precision (tf32 falls back to fp32, see `runs`); raises PlanError if the device has none."""
        for name, rate in self.peak:
            if name == self.runs(precision):
                return rate
        known = ", ".join(name for name, _ in self.peak)
        raise PlanError(f"device {self.name} has no {precision} peak; it has {known}")
