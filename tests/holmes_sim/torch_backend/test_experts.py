"""Models with routed experts: losses and weights of every division of the experts equal those of one process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from sim.engine import timeline
from sim.errors import NotSupported
from sim.kernels import lowering
from sim.plan.plan import Plan
from tests.more import after

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.xdist_group("torch")  # one test process starts the fork server

from holmes_sim.torch_backend import emulated_worker, experts, local, supported  # noqa: E402
from holmes_sim.torch_backend.emulated_worker import EmulatedWorker  # noqa: E402
from holmes_sim.torch_backend.experts import ExpertLayer  # noqa: E402
from holmes_sim.torch_backend.groups import groups_of  # noqa: E402
from holmes_sim.torch_backend.run_options import RunOptions  # noqa: E402
from holmes_sim.torch_backend.tensor_parallel import TensorParallel  # noqa: E402
from tests.holmes_sim.torch_backend.one_process import alone, check_equal, plan_of  # noqa: E402

QWEN = (
    "{layers: 2, hidden: 32, heads: 4, kv_heads: 2, ffn_hidden: 24, vocab: 64, mlp: swiglu, tied_embeddings: false, "
    "experts: 8, experts_per_token: 2}"
)
MANY = QWEN.replace("experts: 8", "experts: 16")
SHARED = QWEN.replace("}", ", shared_ffn_hidden: 16}")
BIASED = SHARED.replace("swiglu", "gelu")
SWITCH = QWEN.replace("experts_per_token: 2", "experts_per_token: 1")

CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, object]]] = {
    "ep 2": ((2,), (2, 2), {"model": MANY, "ep": 2}),
    "ep 4 over tp 2 and dp 2": ((2,), (2, 2), {"tp": 2, "sequence_parallel": True, "ep": 4, "etp": 1}),
    "etp 2 as tp": ((2,), (2,), {"model": BIASED, "tp": 2, "sequence_parallel": True}),
    "pp 2, ep 2, zb-h1": ((1, 1), (3, 3), {"ep": 2, "schedule": "zb-h1"}),
    "ep 2, full, shared": ((2,), (2, 2), {"model": SHARED, "ep": 2, "recompute": "full"}),
    "etp 2 of tp 1, ep 2, biases": ((2,), (1, 1, 1, 1), {"model": BIASED, "ep": 2, "etp": 2}),
    "ep 2 over tp 2, edp 2, zero 2": (
        (2,),
        (2, 2),
        {"tp": 2, "sequence_parallel": True, "ep": 2, "etp": 1, "zero_stage": 2},
    ),
    "experts as dense weights, dp 2": ((2,), (2, 1), {"model": SHARED}),
    "etp 2 as tp, ep 2, edp 2, zero 0": (
        (2,),
        (1, 1, 1, 1),
        {"model": BIASED, "tp": 2, "sequence_parallel": True, "ep": 2, "zero_stage": 0},
    ),
    "tp 2, whole sequences, ep 2, biases": ((2,), (2, 2), {"model": BIASED, "tp": 2, "ep": 2}),
    "tp 4, etp 2, ep 2, dp 2": ((2,), (1, 1), {"model": QWEN.replace("kv_heads: 2", "kv_heads: 4"), "tp": 4,
                                              "sequence_parallel": True, "ep": 2, "etp": 2}),
    "etp 1 of tp 2, no dp": ((2,), (2,), {"tp": 2, "sequence_parallel": True, "etp": 1}),
    "ep 2, edp 2, zero 3": ((2,), (2, 2, 2, 2), {"ep": 2, "zero_stage": 3}),
    "one expert a token, nothing overlapped": (
        (2,),
        (1, 1, 1, 1),
        {"model": SWITCH, "ep": 2, "overlap_grad_reduce": False, "overlap_param_gather": False},
    ),
    "pp 2, interleaved, ep 2, full": (
        (1, 1, 1, 1),
        (2, 2),
        {"model": QWEN.replace("layers: 2", "layers: 4"), "ep": 2, "schedule": "interleaved", "vpp": 2, "recompute": "full"},
    ),
    "pp 2, tp 2, ep 2 over tp, zb-h1, full": (
        (1, 1),
        (2,),
        {"tp": 2, "sequence_parallel": True, "ep": 2, "etp": 1, "schedule": "zb-h1", "recompute": "full"},
    ),
}  # fmt: skip
QUICK = 7
"""Cases that `make test` tries."""


def case(folder: Path, name: str) -> Plan:
    layers, microbatches, config = CASES[name]
    return plan_of(folder, layers, microbatches, **({"model": QWEN} | config))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def here() -> Iterator[local.Local]:
    with local.Local() as machine:
        yield machine


@pytest.mark.parametrize("name", after(QUICK, CASES))
def test_equals_one_process(name: str, tmp_path: Path, here: local.Local) -> None:
    check_equal(case(tmp_path, name), here, tmp_path)
