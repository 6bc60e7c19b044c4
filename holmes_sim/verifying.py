"""Verify the simulator on the devices of this machine: profile, predict and measure models of three sizes, one report.

Each model trains on one device with the torch backend, and its step is predicted twice: from the profile that was measured just
before, and from the catalogue's entry of the device, which no measurement of this machine has seen. With several GPUs the
collectives are measured and a plan on all of them runs, too. A part that fails is reported with its reason, and the other parts
still run.
"""

from __future__ import annotations

import functools
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holmes_sim import commands, files, profiles, running
from holmes_sim.importing import hardware
from holmes_sim.measurement import MemoryLine
from holmes_sim.profiling import entry
from holmes_sim.profiling.results import DeviceProfile, LinkProfile, ProfileResult
from holmes_sim.torch_backend.run_options import RunOptions
from planner.request import Wishes
from sim.engine.engine import simulate
from sim.errors import HolmesError
from sim.formats import catalog, topology
from sim.hardware.stack import applied
from sim.hardware.topology import Topology
from sim.plan.plan import Plan
from sim.units import Bytes, Seconds
from sim.workload.model import Model
from sim.workload.workload import Workload

if TYPE_CHECKING:
    from holmes_sim.profiling.machine import Machine

FORMAT = "holmes-sim/verification/1"
AIM = 0.08
"""Largest error of a step's prediction from the profile that counts as confirmed."""
STEADY = 0.25
"""Largest spread of the measured steps of a valid measurement. A guess."""
SIZES = (1, 2, 4)
"""Microbatch sizes of the profile. The runs have the largest."""
MICROBATCHES, STEPS = 4, 5
"""Microbatches of a step, and steps of a run."""
BYTES_PER_PARAMETER = 30.0
"""Memory of a model for each parameter: 18 bytes of weights, gradients and Adam, and a guess of 12 for activations."""
SECONDS: Seconds = 20.0
"""Seconds of the search for the plan on all GPUs."""
STACK = "torch-backend-2026"
"""The software stack that runs here."""
NCCL_CHECK = "holmes_sim.torch_backend.nccl_check"


def _llama(name: str, layers: int, hidden: int, heads: int, ffn_hidden: int, vocab: int = 32000) -> Model:
    return Model(name, layers, hidden, heads, heads, ffn_hidden, vocab, mlp="swiglu", tied_embeddings=False)


MODELS = {
    False: (
        128,
        (
            _llama("verify-1m", 4, 128, 4, 352, 1024),
            _llama("verify-3m", 4, 256, 4, 688, 1024),
            _llama("verify-8m", 6, 320, 5, 864, 1024),
        ),
    ),
    True: (
        2048,
        (
            _llama("verify-0.1b", 12, 768, 6, 2048),
            _llama("verify-0.4b", 24, 1024, 8, 2816),
            _llama("verify-1.4b", 24, 2048, 16, 5632),
            _llama("verify-3.1b", 26, 3072, 24, 8192),
        ),
    ),
}
"""Tokens of a sequence and models, on a CPU (False) and a GPU (True). The three largest that fit are used."""


@dataclass(frozen=True, slots=True)
class Step:
    """A plan that ran here. Seconds of its step: predicted from the profile and from the catalogue (None: it has no such
    device), and measured; `spread`: (longest - shortest) / median of the measured steps. `memory`: empty on a CPU."""

    name: str
    devices: int
    layout: str
    profiled: Seconds
    catalogued: Seconds | None
    measured: Seconds
    spread: float
    memory: tuple[MemoryLine, ...] = ()

    @property
    def errors(self) -> tuple[float, float | None]:
        """predicted / measured - 1, from the profile and from the catalogue."""
        catalogued = None if self.catalogued is None else self.catalogued / self.measured - 1
        return self.profiled / self.measured - 1, catalogued


@dataclass(frozen=True, slots=True)
class Verification:
    """All that was measured. `catalogued`: the catalogue's name of the device, or empty. `nccl`: version and result of NCCL on
    a named network. `faults`: what did not run, and why."""

    device: DeviceProfile
    gpus: int
    catalogued: str
    steps: tuple[Step, ...]
    link: LinkProfile | None
    nccl: str
    faults: tuple[str, ...]

    @property
    def confirmed(self) -> bool:
        """Whether all parts ran, and every step is steady and predicted from the profile within `AIM`."""
        return not self.faults and all(step.spread <= STEADY and abs(step.errors[0]) <= AIM for step in self.steps)

    def facts(self) -> dict[str, Any]:
        """Plain data, the contents of the report file."""
        measured = profiles.facts(ProfileResult(self.device, self.link))
        return {
            "format": FORMAT,
            "date": self.device.date,
            "device": self.device.machine.label,
            "gpus": self.gpus,
            "software": self.device.software,
            "catalogued": self.catalogued or None,
            "confirmed": self.confirmed,
            "aim": AIM,
            "steps": [
                {
                    "model": step.name, "devices": step.devices, "layout": step.layout, "measured_s": step.measured,
                    "spread": step.spread, "profiled_s": step.profiled, "profiled_error": step.errors[0],
                    "catalogued_s": step.catalogued, "catalogued_error": step.errors[1],
                    "memory": [line.facts() for line in step.memory],
                }
                for step in self.steps
            ],
            "products": [
                {"m": one.m, "n": one.n, "k": one.k, "fastest_s": one.seconds.minimum, "median_s": one.seconds.median}
                for one in self.device.ceilings.products
            ],
            "nccl": self.nccl or None,
            "faults": list(self.faults),
            "measured": measured,
        }  # fmt: skip


def verify(gpu: bool = False, progress: Callable[[str], None] = lambda text: None) -> Verification:
    """Verify on the GPUs of this machine, or on its CPU where it has none. Raises HolmesError without torch; with `gpu`, also
    without a GPU."""
    running.needs_torch()
    from holmes_sim.profiling import machine

    here = machine.at_hand()
    if gpu and not here.is_gpu:
        raise HolmesError("--gpu: torch finds no GPU here; without --gpu the CPU is verified")
    seq_len, models = chosen(here)
    device = profiles.measure_device(models, seq_len, SIZES, (1,), None, None, lambda text: progress(f"profile, {text}"))
    known = hardware.device(here.label)
    gpus, faults, steps = machine.count(), list[str](), list[Step]()

    def part(name: str, work: Callable[[], Any]) -> Any:
        progress(name)
        try:
            return work()
        except (HolmesError, RuntimeError) as error:
            faults.append(f"{name}: {str(error).splitlines()[0] if str(error) else type(error).__name__}")
            return None

    link: LinkProfile | None = part("links", lambda: profiles.measure_links(None, (), gpus)) if gpus > 1 else None
    nccl = part("NCCL", _nccl) if here.is_gpu else ""
    for model in models:
        one = functools.partial(_on_one, ProfileResult(device, None), known, model, seq_len)
        steps += filter(None, [part(model.name, one)])
    if link is not None:
        every = functools.partial(_on_all, ProfileResult(device, link), known, models[-1], seq_len)
        steps += filter(None, [part(f"{gpus} GPUs", every)])
    return Verification(device, gpus, known, tuple(steps), link, nccl or "", tuple(faults))


def chosen(here: Machine) -> tuple[int, tuple[Model, ...]]:
    """Tokens of a sequence, and the three largest models that fit the device; at least one model."""
    seq_len, models = MODELS[here.is_gpu]
    fitting = [model for model in models if BYTES_PER_PARAMETER * model.parameters <= _usable(here)]
    return seq_len, tuple(fitting[-3:] or models[:1])


def _usable(here: Machine) -> Bytes:
    return 0.9 * here.memory


def _nccl() -> str:
    """NCCL's version, and the network that it was told to use; raises RuntimeError with the last line of its output."""
    done = subprocess.run([sys.executable, "-m", NCCL_CHECK], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1])
    return done.stdout.strip()


def _topologies(found: ProfileResult, known: str) -> tuple[Topology, Topology | None]:
    """The measured devices as a topology, and the same with the catalogue's device `known` (None without one)."""
    assert found.device is not None
    entry_file = f"{found.device.name}-topology.yaml"
    with tempfile.TemporaryDirectory() as folder:
        for name, text in entry.files(found).items():
            files.write(Path(folder) / name, text + f"stack: {STACK}\n" if name == entry_file else text)
        profiled = topology.load(Path(folder) / entry_file)
    if not known:
        return profiled, None
    cluster = profiled.fleet.clusters[0]
    stock = replace(cluster, node=replace(cluster.node, device=catalog.device(known)))
    fleet = replace(profiled.fleet, clusters=(stock,))
    return profiled, replace(profiled, fleet=applied(profiled.stack, fleet))


def _workload(found: ProfileResult, model: Model, seq_len: int, devices: int) -> Workload:
    assert found.device is not None
    return Workload(model, MICROBATCHES * SIZES[-1] * devices, seq_len, found.device.ceilings.precision)


def _on_one(found: ProfileResult, known: str, model: Model, seq_len: int) -> Step:
    """A model on one device."""
    wishes = Wishes(tp=1, pp=1, dp=1, microbatch_size=SIZES[-1], schedule="1f1b", recompute="none")
    return _run(found, known, _workload(found, model, seq_len, 1), wishes)


def _on_all(found: ProfileResult, known: str, model: Model, seq_len: int) -> Step:
    """A model on all GPUs, in the layout that the planner chooses among those that the torch backend runs."""
    assert found.link_profile is not None
    return _run(found, known, _workload(found, model, seq_len, found.link_profile.ranks), Wishes(cp=1, ep=1))


def _run(found: ProfileResult, known: str, workload: Workload, wishes: Wishes) -> Step:
    """Plan, simulate with both devices, and run."""
    profiled, stock = _topologies(found, known)
    plan = commands.plan(profiled, workload, wishes=wishes, time_limit=SECONDS).plan
    compared = running.run_here(plan, RunOptions(STEPS, "real", 1.0, ""))
    catalogued = None if stock is None else simulate(replace(plan, topology=stock)).step_s
    assert compared.step.simulated is not None
    assert compared.step.measured is not None
    return Step(
        workload.model.name, plan.config.world_size, _layout(plan), compared.step.simulated, catalogued,
        compared.step.measured, compared.spread or 0.0, compared.memory,
    )  # fmt: skip


def _layout(plan: Plan) -> str:
    config = plan.config
    return f"tp {config.tp} pp {config.pp} dp {config.dp_text} mb {config.microbatch_size} {config.schedule}"
