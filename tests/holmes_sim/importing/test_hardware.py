"""Devices and links of the catalogue by the names of other programs: all in the device's own file."""

from __future__ import annotations

import inspect
import json
import shutil
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pytest

from holmes_sim import changes, commands
from holmes_sim.changes import device as successors
from holmes_sim.imported import imported
from holmes_sim.importing import hardware
from holmes_sim.importing.facts import Interconnect
from sim.formats import catalog
from sim.formats.edits import edited

CACHED = (catalog.names, catalog.device_facts, hardware._by_name, hardware._by_pci)


@pytest.fixture
def new_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A catalogue with one device more, a copy of the T4: `x900`, whose successor is the L40S."""
    folder = tmp_path / "catalogue"
    shutil.copytree(str(files("sim.catalog")), folder)
    text = (folder / "devices" / "t4.yaml").read_text(encoding="utf-8")
    head, _, sources = text.partition("\nproduct: ")
    facts = {
        "product": {"names": ["x900-48gb"], "pci": ["10de:9000"]},
        "intra_node": {"usual": "nvlink4", "pcie": "pcie5", "nvlink": [{"links": 2, "all_pairs": False, "link": "nvlink2"}]},
        "next": {"device": "l40s", "intra_node": "pcie4"},
    }
    own = "\n".join(f"{key}: {json.dumps(value)}" for key, value in facts.items())
    sources = sources[sources.index("sources:") :]
    text = f"{head.replace('name: t4', 'name: x900')}\n{own}\n{sources}"
    (folder / "devices" / "x900.yaml").write_text(text, encoding="utf-8")
    monkeypatch.setattr(catalog, "files", lambda package: folder)
    for function in CACHED:
        function.cache_clear()
    yield folder
    monkeypatch.undo()
    for function in CACHED:
        function.cache_clear()


def test_a_new_file_is_a_device_for_importers(new_device: Path) -> None:
    assert hardware.device("NVIDIA X900 48GB") == hardware.pci_device("0x10de", "0x9000") == "x900"
    assert hardware.device("Tesla T4") == "t4"
    assert hardware.usual_link("x900") == "nvlink4"
    assert hardware.link("x900", Interconnect("a.txt", "nvlink", 2, False)) == "nvlink2"
    assert hardware.link("x900", Interconnect("a.txt", "nvlink", 2, True)) == ""
    assert hardware.link("x900", Interconnect("a.txt", "pcie")) == "pcie5"


def test_a_new_file_is_imported_and_replaced_in_what_if(new_device: Path, tmp_path: Path) -> None:
    node = {"nvidia.com/gpu.product": "NVIDIA-X900-48GB", "nvidia.com/gpu.count": "4"}
    source = tmp_path / "nodes.json"
    items = [{"kind": "Node", "metadata": {"name": "n1", "labels": node}}]
    source.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}), encoding="utf-8")
    (cluster,) = imported([str(source)], "x").topology["clusters"].values()
    assert cluster["node"] == {"devices": {"type": "x900", "count": 4}, "intra_node": "nvlink4"}
    topology = edited(commands.load("holmes-infiniband-4"), {"clusters.ib.node.devices.type": "x900"})
    assert "ib: l40s, not x900" in [change.name for change in changes.menu(topology)]


@pytest.mark.parametrize("module", [hardware, successors])
def test_no_device_is_named_in_the_code(module: object) -> None:
    text = inspect.getsource(module)  # type: ignore[arg-type]
    assert [name for name in catalog.names("devices") if name.partition("-")[0] in text.lower()] == []


def test_product_names_and_identities_belong_to_one_device_each() -> None:
    facts = [catalog.device_facts(name).product for name in catalog.names("devices")]
    for every in ([name for one in facts for name in one.names], [pci for one in facts for pci in one.pci]):
        assert len(set(every)) == len(every) > 20
    assert all(hardware.device(name) for one in facts for name in one.names)


@pytest.mark.parametrize("name", catalog.names("devices"))
def test_links_and_successors_are_in_the_catalogue(name: str) -> None:
    facts = catalog.device_facts(name)
    joins, links = facts.intra_node, set(catalog.names("links"))
    named = {joins.usual, joins.pcie, joins.xgmi, *(one.link for one in joins.nvlink)} - {""}
    assert named <= links
    if facts.next is not None:
        assert facts.next.device in catalog.names("devices") and facts.next.intra_node in links
