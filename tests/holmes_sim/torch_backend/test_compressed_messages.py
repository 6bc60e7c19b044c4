"""Messages between clusters as int8: the code of a tensor, and a pipeline over two clusters that trains with them."""

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
from holmes_sim.torch_backend.compressed_messages import coded_bytes, decoded, encoded  # noqa: E402
from holmes_sim.torch_backend.run_options import RunOptions  # noqa: E402
from sim.formats import topology  # noqa: E402
from sim.plan.plan import Plan  # noqa: E402
from tests.holmes_sim.torch_backend.one_process import GPT, TOPOLOGY, alone, plan_of  # noqa: E402


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_value_is_off_by_half_a_step_of_its_block(dtype: torch.dtype) -> None:
    """The range of a block is 2: steps of 2 / 255, and the rounding of the type."""
    values = (torch.arange(5000) % 201 / 100 - 1).to(dtype).view(50, 100)
    code = encoded(values)
    assert (code.dtype, code.numel()) == (torch.uint8, coded_bytes(5000)) == (torch.uint8, 5000 + 2 * 8)
    found = decoded(code, values)
    assert (found.dtype, found.shape) == (dtype, values.shape)
    assert (found.float() - values.float()).abs().max() < 1 / 255 + (0.004 if dtype == torch.bfloat16 else 1e-6)


def test_equal_values_stay_as_they_are() -> None:
    values = torch.full((7,), 0.3)
    assert torch.equal(decoded(encoded(values), values), values)


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


def test_a_pipeline_trains_with_int8_messages(tmp_path: Path) -> None:
    """Its losses are near those of one process, but not the same: values were rounded."""
    plan = over_two_clusters(tmp_path, message_compression="int8")
    assert Messages(plan).is_compressed(0, 1)
    with local.Local() as here:
        here.run(plan, RunOptions(steps=2, weights=str(tmp_path)))
    losses, _, _ = alone(plan, 3)
    found = sum(torch.load(tmp_path / f"{rank}.pt")["losses"] for rank in range(2)).tolist()
    assert found == pytest.approx(losses, rel=1e-3)
    assert found != pytest.approx(losses, rel=1e-7)


def test_other_compressions_are_refused(tmp_path: Path) -> None:
    with pytest.raises(NotSupported, match=r"message_compression top-k=10% \(int8, none\)"):
        supported.check(over_two_clusters(tmp_path, message_compression="top-k=10%"))
