"""Which targets keep optimizer state or activations in host memory, and why the others refuse it."""

from __future__ import annotations

import subprocess

import pytest

from holmes_sim import exporters
from holmes_sim.launching.offload import threads
from holmes_sim.torch_backend import supported
from sim.plan.parallel_config import ParallelConfig
from tests import builders as make

OFFLOADED = ParallelConfig(offload=("optimizer",))
REASONS = {
    "holmes": "the fork's optimizers keep their state on devices",
    "prime": "its inner optimizer keeps its state on devices",
    "torchtitan": "its enable_cpu_offload moves weights and gradients, too (CPUOffloadPolicy of FSDP)",
}


@pytest.mark.parametrize("name", exporters.every())
def test_who_refuses_it(name):
    workload = make.plan(make.fleet(make.cluster())).workload
    found = [line for line in exporters.target(name).unsupported_layout(OFFLOADED, workload) if line.startswith("offload")]
    assert found == ([f"offload optimizer: {REASONS[name]}; --offload none"] if name in REASONS else [])


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({}, None),
        ({"pp": 2}, "with pp 2: --cpu-offloading-num-layers takes no pipeline; --pp 1"),
        ({"recompute": "full"}, "with recompute full: --cpu-offloading-num-layers takes no recomputation; --recompute none"),
    ],
)
def test_megatron_alone_copies_activations_of_whole_layers(config, reason):
    away, workload = ParallelConfig(offload=("activations",), **config), make.plan(make.fleet(make.cluster())).workload
    for name in exporters.frameworks():
        lines = exporters.target(name).unsupported_layout(away, workload)
        found = [line for line in lines if line.startswith("offload")]
        own = [] if reason is None else [f"offload activations {reason}"]
        others = ["offload activations: written for Megatron-LM only, as copies of whole layers; --offload none"]
        assert found == (own if name == "megatron" else others), name


@pytest.mark.parametrize("name", ["megatron", "flagscale", "deepspeed", *REASONS])
def test_no_framework_streams_parameters(name):
    plan = make.plan(make.fleet(make.cluster(devices=1)), offload=("optimizer", "parameters"), schedule="gpipe", zero_stage=0)
    found = [
        line for line in exporters.target(name).unsupported_layout(plan.config, plan.workload) if line.startswith("offload")
    ]
    assert found[0].startswith("offload optimizer: " if name in REASONS else "offload parameters: ")
    assert "offload parameters (optimizer)" in list(supported.unsupported(plan))


@pytest.mark.parametrize(
    ("cpus", "given", "expected"), [("128", "", "16"), ("6", "", "1"), ("128", "OMP_NUM_THREADS=4; ", "4")]
)
def test_ranks_share_the_cpus_of_their_host_for_the_optimizer(cpus, given, expected):
    script = f"set -eu; nproc() {{ echo {cpus}; }}; {given}RANKS=8\n{threads(OFFLOADED, 'RANKS')}sh -c 'echo $OMP_NUM_THREADS'"
    script = f"unset OMP_NUM_THREADS; {script}"
    assert subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout == f"{expected}\n"


@pytest.mark.parametrize("name", ["torchrun", "megatron", "deepspeed", "slurm", "mpi", "kubernetes"])
def test_every_launch_with_an_optimizer_on_hosts_has_its_threads(name):
    """torchrun starts several ranks of a host with one thread each otherwise."""
    fleet = make.fleet(make.cluster(nodes=1, devices=2))
    for offload, wanted in (((), 0), (("optimizer",), 1)):
        launch = exporters.get(name).launch(make.plan(fleet, dp=2, zero_stage=1, offload=offload))
        lines = [line for file in launch.files.values() for line in str(file.content).splitlines()]
        assert sum(line.startswith("export OMP_NUM_THREADS=") for line in lines) == wanted
