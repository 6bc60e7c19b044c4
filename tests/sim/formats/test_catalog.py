"""The catalogue: one contract for every file of every folder. Each number has a source, and none is out of this world."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import pytest
import yaml

from sim.errors import TopologyError
from sim.formats import catalog
from sim.formats.catalog_facts import DeviceFacts, GemmFacts
from sim.formats.fields import StrictModel

READERS = {
    "devices": catalog.device_facts,
    "links": catalog.link_facts,
    "nics": catalog.nic_facts,
    "models": catalog.model_facts,
}
ENTRIES = [(folder, name) for folder in READERS for name in catalog.names(folder)]
DEVICES, LINKS, NICS, MODELS = (catalog.names(folder) for folder in ("devices", "links", "nics", "models"))
WORDS = {"name", "vendor", "rdma", "sources"}
"""Keys that are no measurements."""


def facts(folder: str, name: str) -> StrictModel:
    return READERS[folder](name)


def written(folder: str, name: str) -> dict[str, Any]:
    text = (files("sim.catalog") / folder / f"{name}.yaml").read_text(encoding="utf-8")
    return yaml.safe_load(text)


def test_the_names_of_the_design_are_there() -> None:
    assert set(DEVICES) >= {
        "v100-sxm2-16gb", "v100-sxm2-32gb", "v100-sxm3-32gb", "a100-sxm4-40gb", "a100-sxm4-80gb", "a100-pcie-40gb",
        "a100-pcie-80gb", "a800-sxm4-80gb", "h100-sxm5-80gb", "h100-pcie-80gb", "h800-sxm5-80gb", "h200-sxm-141gb",
        "gh200-96gb", "b200-sxm-180gb", "l40s", "rtx-2080-ti", "titan-rtx", "rtx-3090", "rtx-4090", "mi210", "mi250x",
        "mi300x", "ascend-910b",
    }  # fmt: skip
    assert set(LINKS) >= {
        "nvlink2", "nvlink3", "nvlink3-a800", "nvlink4", "nvlink4-h800", "nvlink4-gh200x4", "nvlink5", "pcie3", "pcie4",
        "pcie5", "infinity-fabric-3", "infinity-fabric-4", "hccs",
    }  # fmt: skip
    assert set(NICS) >= {"infiniband", "roce", "ethernet", "omni-path", "slingshot", "efa"}
    assert set(MODELS) >= {
        "gpt-1.7b", "gpt-3.6b", "gpt-7.5b", "gpt-18b", "gpt-39b", "gpt-76b", "gpt-145b", "gpt-175b", "gpt-310b", "gpt-530b",
        "gpt-1t", "llama-2-7b", "llama-2-13b", "llama-2-70b",
        "llama-3-8b", "llama-3-70b", "llama-3-405b", "llama-140b", "mixtral-8x7b",
    }  # fmt: skip


@pytest.mark.parametrize(("folder", "name"), ENTRIES, ids=[f"{folder}/{name}" for folder, name in ENTRIES])
def test_an_entry_bears_the_name_of_its_file(folder: str, name: str) -> None:
    assert facts(folder, name).name == name


@pytest.mark.parametrize(
    ("folder", "name"), [e for e in ENTRIES if e[0] != "models"], ids=[n for f, n in ENTRIES if f != "models"]
)
def test_every_number_has_a_source_and_every_source_a_number(folder: str, name: str) -> None:
    entry = written(folder, name)
    assert set(entry["sources"]) == set(entry) - WORDS
    assert all(source.strip() for source in entry["sources"].values())


@pytest.mark.parametrize("name", MODELS)
def test_the_shape_of_a_model_has_a_source_and_so_have_facts_for_launches(name: str) -> None:
    launch = ["launch"] if catalog.model(name).launch.known() else []
    assert list(written("models", name)["sources"]) == ["shape", *launch]


@pytest.mark.parametrize(
    ("name", "theta", "scaling"),
    [
        ("llama-2-7b", 10000, "none"), ("llama-3-8b", 500000, "none"), ("llama-3-405b", 500000, "llama3"),
        ("mixtral-8x7b", 1000000, "none"), ("qwen3-30b-a3b", 1000000, "none"), ("deepseek-v3", 10000, "yarn"),
        ("gpt-3.6b", None, None),
    ],
)  # fmt: skip
def test_models_have_the_rotary_base_of_their_public_configuration(name: str, theta: int | None, scaling: str | None) -> None:
    assert (catalog.model(name).launch.rope_theta, catalog.model(name).launch.rope_scaling) == (theta, scaling)


@pytest.mark.parametrize("name", DEVICES)
def test_rates_and_memory_of_a_device_are_plausible(name: str) -> None:
    device = catalog.device(name)
    assert {"fp16", "fp32"} <= {precision for precision, _ in device.peak}
    assert all(8e12 <= rate <= 15e15 for _, rate in device.peak)
    assert device.peak_of("fp16") >= device.peak_of("fp32")
    assert 8 * 2**30 <= device.memory <= 300 * 2**30
    assert 300e9 <= device.memory_bandwidth <= 10e12
    assert 8e9 <= device.host_bandwidth <= 1e12
    assert 1 <= device.compute_units <= 400
    assert device.watts is None or 70 <= device.watts <= 1500


@pytest.mark.parametrize("name", DEVICES)
def test_the_efficiencies_of_a_device_are_shares_and_only_fitted_ones_exceed_one(name: str) -> None:
    device, sources = catalog.device(name), catalog.device_facts(name).sources
    fitted = "fit" in sources["gemm"] or "the curve of" in sources["gemm"]
    for share in (device.attention.forward, device.attention.backward, device.elementwise_efficiency):
        assert 0 < share <= 1
    assert 0 < device.gemm.compute_efficiency <= 1 or fitted
    assert 0 < device.gemm.memory_efficiency <= 1 or fitted
    assert 0 <= device.gemm.launch <= 1e-4


@pytest.mark.parametrize("name", LINKS)
def test_an_interconnect_has_shares_for_efficiencies_and_microseconds_for_latencies(name: str) -> None:
    link = catalog.link(name)
    assert all(0 < share <= 1 for _, share in link.efficiency)
    assert 5e9 <= link.bandwidth <= 2e12
    assert 0 <= link.pair_bandwidth <= link.bandwidth
    assert 0 < link.latency <= 1e-4
    assert 0 <= link.overhead <= 1e-3
    assert 0 <= link.interference <= 0.5


@pytest.mark.parametrize("name", NICS)
def test_a_nic_type_has_shares_for_efficiencies_and_microseconds_for_latencies(name: str) -> None:
    nic = catalog.nic(name)
    assert all(0 < share <= 1 for _, share in nic.efficiency)
    assert nic.rdma == (name != "ethernet")
    assert 0 < nic.latency <= 1e-3
    assert 0 <= nic.interference <= 0.5


@pytest.mark.parametrize(
    ("read", "name", "message"),
    [
        (catalog.device, "h200", "device 'h200' is not in the catalogue; did you mean 'h200-sxm-141gb'"),
        (catalog.device, "a100-sxm4-80g", "device 'a100-sxm4-80g' is not in the catalogue; did you mean 'a100-sxm4-80gb'?"),
        (
            catalog.link,
            "nvlink",
            "interconnect 'nvlink' is not in the catalogue; did you mean 'nvlink2', ",
        ),
        (catalog.nic, "rocee", "NIC type 'rocee' is not in the catalogue; did you mean 'roce'?"),
        (catalog.model, "gpt-3.6", "model 'gpt-3.6' is not in the catalogue; did you mean 'gpt-3.6b'?"),
        (catalog.device, "../models/gpt-1t", "device '../models/gpt-1t' is not in the catalogue; known: "),
    ],
)
def test_an_unknown_name_is_refused_with_one_that_is_near(read: Any, name: str, message: str) -> None:
    with pytest.raises(TopologyError) as caught:
        read(name)
    assert str(caught.value).startswith(message)


H100 = {"launch": "2.35 us", "compute_efficiency": 0.753, "memory_efficiency": 0.474, "wave_exponent": 0.0}
"""The four constants of the catalogue's H100."""


def with_products(gemm: dict[str, Any]) -> DeviceFacts:
    """An H100 of the catalogue, as if written in place with another curve of products."""
    return catalog.device_facts("h100-sxm5-80gb").model_copy(update={"gemm": GemmFacts.model_validate(gemm)})


def test_a_copied_curve_of_products_has_what_the_catalogue_says_beyond_it() -> None:
    copy = with_products(H100)
    filled = catalog.completed(copy).gemm
    assert (copy.gemm.sustained, copy.gemm.older, filled.sustained, filled.older) == (1.0, 1.0, 0.9, 0.89)


@pytest.mark.parametrize("own", [{"compute_efficiency": 0.7}, {"older": 1.0}, {"sustained": 0.9}])
def test_a_curve_that_differs_or_says_it_is_left_alone(own: dict[str, float]) -> None:
    assert catalog.completed(with_products(H100 | own)) == with_products(H100 | own)
