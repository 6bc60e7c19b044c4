"""Memory outside torch against NCCL's source, its measured allocations, and the greatest memory that runs on H100 reserved."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from sim.formats import catalog
from sim.kernels import communicators
from sim.plan.parallel_config import ParallelConfig
from sim.units import GIGA, MEBI

LL = 8 * 512 * 8 * 16
LL128 = 120 * 640 * 8 * 8
SIMPLE = 1 << 22
"""Bytes of the buffers of NCCL's protocols: lines or elements a thread, threads, steps, bytes of each (NVIDIA/nccl 5067397c,
src/include/device.h and src/init.cc)."""


def config(**degrees: Any) -> ParallelConfig:
    return ParallelConfig(num_microbatches=(1,) * degrees.get("dp", 1), **degrees)


def aligned(nbytes: int) -> int:
    """Allocations are multiples of 2 MiB (CUDA_IPC_MIN of src/transport/p2p.cc)."""
    return -(-nbytes // (2 * MEBI)) * 2 * MEBI


def test_a_channel_is_two_allocations() -> None:
    """NVIDIA/nccl issue 1685: NCCL_DEBUG_SUBSYS=ALLOC prints sizes 10485760 and 2097152."""
    assert aligned(LL + LL128 + SIMPLE) == 10485760
    assert communicators.CHANNEL == 10485760 + 2097152


def test_channels_of_four_a100() -> None:
    """NVIDIA/nccl issue 964: communicators of 2 and of more ranks take 544 and 688 MiB. The first rank of a tree of more ranks
    receives from one more peer; on A100 the receiver has no buffer of protocol Simple, which the sender has (p2pRecvSetup)."""
    assert communicators.CHANNELS * aligned(LL + LL128) == (688 - 544) * MEBI


@pytest.mark.parametrize(
    ("degrees", "expected"),
    [
        ({}, 0),
        ({"dp": 8}, 2),  # all ranks, gradients
        ({"tp": 8}, 3),  # tensor parallel, one replica, all ranks
        ({"pp": 4}, 3),  # pipeline, one replica, all ranks
        ({"tp": 4, "pp": 2, "dp": 4}, 5),
        ({"tp": 4, "pp": 8, "dp": 4}, 5),
        ({"tp": 2, "pp": 2, "cp": 2}, 6),  # context parallelism, and gradients, which its ranks sum too
        ({"dp": 8, "ep": 8}, 3),  # experts; each is on one rank
        ({"dp": 8, "ep": 4}, 4),  # two ranks sum the gradients of an expert
    ],
)
def test_communicators_of_a_rank(degrees: dict[str, int], expected: int) -> None:
    assert communicators.number(config(**degrees)) == expected
    assert communicators.outside_torch(config(**degrees)) == communicators.CONTEXT + expected * communicators.COMMUNICATOR


@pytest.mark.parametrize("degrees", [{"pp": 8, "dp": 4}, {"tp": 2, "pp": 4, "dp": 4}, {"tp": 4, "pp": 2, "dp": 4}])
def test_torch_has_the_rest_of_an_h100(degrees: dict[str, int]) -> None:
    """The three runs of nanotron's sweep that reserve most have 82.7 and 82.8 GB, whatever their tp: what torch had of the
    device (vinjn/nanotron-ultrascale-playbook 924e4d0b, benchmarks_interactive.html)."""
    device = catalog.device("h100-sxm5-80gb")
    assert device.memory / GIGA == pytest.approx(85.0, abs=0.1)  # torch: 79.11 to 79.33 GiB
    assert (device.memory - communicators.outside_torch(config(**degrees))) / GIGA == pytest.approx(82.8, rel=0.005)


def test_fewer_degrees_have_no_more_communicators() -> None:
    """What bounds rely on that know only some degrees of a plan: those that they leave out are 1."""
    for tp, pp, cp, dp, ep in itertools.product((1, 2, 8), (1, 2, 4), (1, 2), (1, 2, 8), (1, 2, 4)):
        if dp * cp % ep:
            continue
        whole = communicators.number(config(tp=tp, pp=pp, cp=cp, dp=dp, ep=ep))
        for part in ({"dp": 1, "ep": 1}, {"pp": 1}, {"cp": 1, "ep": 1}, {"ep": 1}):
            less = {"tp": tp, "pp": pp, "cp": cp, "dp": dp, "ep": ep} | part
            assert communicators.number(config(**less)) <= whole
