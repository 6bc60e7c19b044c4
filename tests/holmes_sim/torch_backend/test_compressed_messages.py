"""Messages between clusters as int8 and int4: their codes, and a pipeline over two clusters that trains with them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sim.errors import NotSupported
from sim.hardware.cluster import Device
from sim.kernels.messages import Messages
from sim.plan.groups import groups_of

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.xdist_group("torch")  # one test process starts the fork server

from holmes_sim.torch_backend import local, supported  # noqa: E402
from holmes_sim.torch_backend.compressed_messages import MessageCode  # noqa: E402
from holmes_sim.torch_backend.run_options import RunOptions  # noqa: E402
from sim.formats import topology  # noqa: E402
from sim.plan.plan import Plan  # noqa: E402
from sim.plan.program import Action  # noqa: E402
from tests.holmes_sim.torch_backend.one_process import GPT, TOPOLOGY, alone, plan_of  # noqa: E402


def over_two_clusters(folder: Path, **config: object) -> Plan:
    """A pipeline of two ranks on two clusters."""
    plan = plan_of(folder, (3, 2), (3,), **config)  # type: ignore[arg-type]
    text = TOPOLOGY.format(model=GPT, batch=3, precision="fp32")
    at = text.index("  a:\n"), text.index("workload:")
    second = text[at[0] : at[1]].replace("  a:\n", "  b:\n")
    link = "links: [{between: [a, b], type: ethernet, bandwidth: 1 Gbit/s, latency: 1 ms}]\n"
    path = folder / "two.yaml"
    path.write_text(text[: at[1]] + second + link + text[at[1] :], encoding="utf-8")
    where, placement = topology.load(path), (Device("a", 0, 0), Device("b", 0, 0))
    return replace(plan, topology=where, placement=placement, groups=groups_of(where.fleet, plan.config, placement))


@pytest.mark.parametrize(("name", "nbytes", "error"), [("int8", 1500 + 8, 1 / 255), ("int4", 750 + 4, 1 / 3)])
def test_a_message_keeps_its_shape_and_type(name: str, nbytes: int, error: float, tmp_path: Path) -> None:
    """Values of one block from -1 to 1: off by half a step of 2 / 255 or a third of a magnitude, and by bf16's rounding."""
    sender, receiver = (MessageCode(over_two_clusters(tmp_path, message_compression=name), pp_rank) for pp_rank in range(2))
    values = (torch.arange(1500) % 201 / 100 - 1).to(torch.bfloat16).view(15, 100)
    there, back = Action("send", 0, 0, peer=1, operation="F"), Action("recv", 0, 0, peer=0, operation="F")
    code = sender.encode(there, values)
    buffer = receiver.buffer(back, values)
    assert (code.dtype, code.numel(), buffer.numel()) == (torch.uint8, nbytes, nbytes)
    found = receiver.decode(back, code, values)
    assert (found.dtype, found.shape) == (torch.bfloat16, values.shape)
    assert 0 < (found.float() - values.float()).abs().max() < error + 0.004


def test_a_whole_message_stays_as_it_is(tmp_path: Path) -> None:
    code, values = MessageCode(over_two_clusters(tmp_path), 0), torch.ones(3)
    there = Action("send", 0, 0, peer=1, operation="F")
    assert code.encode(there, values) is code.buffer(there, values) is code.decode(there, values, values) is values


def test_a_pipeline_trains_with_int8_messages(tmp_path: Path, here: local.Local) -> None:
    """Its losses are near those of one process, but not the same: values were rounded."""
    plan = over_two_clusters(tmp_path, message_compression="int8")
    assert Messages(plan).is_compressed(0, 1)
    here.run(plan, RunOptions(steps=2, weights=str(tmp_path)))
    losses, _, _ = alone(plan, 3)
    found = sum(torch.load(tmp_path / f"{rank}.pt")["losses"] for rank in range(2)).tolist()
    assert found == pytest.approx(losses, rel=1e-3)
    assert found != pytest.approx(losses, rel=1e-7)


def test_other_compressions_are_refused(tmp_path: Path) -> None:
    with pytest.raises(NotSupported, match=r"message_compression top-k=10% \(none, int8, int4\)"):
        supported.check(over_two_clusters(tmp_path, message_compression="top-k=10%"))
