"""What holds for every importer: it recognises its own samples and no others, and every fact says where it was read."""

from __future__ import annotations

from pathlib import Path

import pytest

from holmes_sim import importers
from holmes_sim.importing.facts import Facts
from sim.errors import HolmesError

SAMPLES = Path(__file__).parent / "samples"
FILES = sorted(path for path in SAMPLES.iterdir() if path.name != "README.md")
CONVERTED = {"nccl_tests-a100.json", "sysfs-h100.txt"}
"""Samples that no program wrote."""


def text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def importer_of(path: Path) -> str:
    """`slurm_conf` of `slurm_conf-tree.conf`."""
    return path.name.split("-")[0]


def facts(path: Path) -> Facts | None:
    """What a sample tells; None where it is told that a plan cannot use it."""
    try:
        return importers.recognised(text(path), path.name).read(text(path), path.name)
    except HolmesError as error:
        assert str(error).startswith(f"{path.name}:")
        return None


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_sample_is_recognised_by_its_own_importer_alone(path):
    assert [name for name in importers.names() if importers.get(name).recognises(text(path))] == [importer_of(path)]


@pytest.mark.parametrize("name", importers.names())
def test_an_importer_has_two_real_samples_and_a_name(name):
    own = [path for path in FILES if importer_of(path) == name and path.name not in CONVERTED]
    assert len(own) >= 2
    assert importers.get(name).NAME
    assert any(facts(path) is not None for path in own)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_fact_says_where_it_was_read(path):
    found = facts(path)
    if found is None:
        assert path.name == "kubernetes-mig.json"
        return
    lines = text(path).splitlines()
    places = [host.where for host in found.hosts]
    for parts in found.parts:
        places += [one.where for one in (parts.devices, parts.interconnect, parts.host_memory, *parts.nics) if one is not None]
    assert found.source == path.name
    assert places or found.measured or found.notes
    for place in places:
        name, _, number = place.rpartition(":")
        assert name == path.name
        assert 1 <= int(number) <= len(lines)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_samples_are_listed_with_their_sources(path):
    listed = text(SAMPLES / "README.md")
    short = path.name.replace("slurm_conf-two-fabrics", "")
    assert f"`{path.name}`" in listed or f"`{short}`" in listed


@pytest.mark.parametrize(
    "nothing", ["", "hello\n", "{}\n", "format: holmes-sim/topology/1\nname: x\n", "<html></html>\n", "- a\n- b\n"]
)
def test_what_is_no_source_is_reported_with_all_that_are(nothing):
    known = (
        "ibnetdiscover, ibstat, Kubernetes nodes (kubectl get nodes -o json), lspci -nn, /proc/meminfo, "
        "nccl-tests output, NCCL topology XML, "
        "nvidia-smi topo -m, nvidia-smi --query-gpu, rocm-smi --showproductname, sinfo, "
        "Slurm topology.conf or scontrol show topology, Slurm topology.yaml, NIC files of /sys, topograph model or graph"
    )
    with pytest.raises(HolmesError) as caught:
        importers.recognised(nothing, "x.txt")
    assert str(caught.value) == f"x.txt: not a known kind of source; known kinds: {known}"


def test_two_sources_in_one_file_are_reported():
    both = text(SAMPLES / "slurm_conf-block.conf") + text(SAMPLES / "nvidia_smi-a100.txt")
    with pytest.raises(
        HolmesError,
        match=r"^x: looks like nvidia-smi topo -m and Slurm topology.conf or scontrol show topology; put",
    ):
        importers.recognised(both, "x")
