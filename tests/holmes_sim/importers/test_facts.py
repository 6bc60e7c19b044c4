"""What single sources tell, fact by fact, where a whole topology would not show it."""

from __future__ import annotations

from pathlib import Path

import pytest

from holmes_sim import importers
from holmes_sim.importing.facts import Devices, Facts, Host, HostMemory, Interconnect, Nics, Parts
from sim.errors import HolmesError

SAMPLES = Path(__file__).parent / "samples"
HEAD = 'Switch\t8 "S-%s"\t\t# "%s" base port 0 lid 0 lmc 0\n'
PORT = '[%d]\t"H-%d"[1](%d) \t\t# "%s" lid 0 4xHDR\n'


def facts(text: str) -> Facts:
    return importers.recognised(text, "x").read(text, "x")


def sample(name: str) -> Facts:
    return facts((SAMPLES / name).read_text(encoding="utf-8"))


def test_slingshot_whose_rate_is_in_other_units_has_none():
    """ROCm/rccl's MI300A: an accelerator that the catalogue lacks, and speed 200000000."""
    found = sample("nccl_topology-mi300a.xml")
    assert found.parts == (
        Parts(
            devices=Devices("x:4", "", "PCI device 0x1002:0x74a0", 4),
            interconnect=Interconnect("x:4", "xgmi", 1, True),
            nics=(Nics("x:12", "slingshot", 0.0, 4, ("cxi0", "cxi1", "cxi2", "cxi3")),),
        ),
    )
    assert found.notes == ("x:12: speed 200000000 Mbit/s is not a credible rate of a NIC; left out",)


def test_links_through_several_switches_add_up():
    """DGX A100: two NVLinks to each of six switches are NV12."""
    links = "".join(f'<nvlink target="0000:c{at}:00.0" count="2" tclass="0x068000"/>' for at in range(6))
    gpus = "".join(f'<pci busid="{at}" vendor="0x10de" device="0x20b0"><gpu dev="{at}">{links}</gpu></pci>' for at in range(8))
    (parts,) = facts(f'<system version="1">\n<cpu>{gpus}</cpu></system>').parts
    assert parts.devices == Devices("x:2", "a100-sxm4-40gb", "PCI device 0x10de:0x20b0", 8)
    assert parts.interconnect == Interconnect("x:2", "nvlink", 12, True)


@pytest.mark.parametrize(
    ("counts", "joints"),
    [((2, 1), Interconnect("x:1", "nvlink", 2, True)), ((2,), Interconnect("x:1", "nvlink", 2, False))],
    ids=["all", "some"],
)
def test_links_to_other_gpus_are_reported_pair_by_pair(counts, joints):
    links = "".join(f'<nvlink target="{at}" count="{count}" tclass="0x030200"/>' for at, count in enumerate(counts, 1))
    gpus = "".join(f'<pci busid="{at}"><gpu>{"" if at else links}</gpu></pci>' for at in range(3))
    (parts,) = facts(f'<system version="1">{gpus}</system>').parts
    assert parts.interconnect == joints


def test_omni_path_and_efa():
    text = '<system version="1"><pci class="0x020800"><net name="hfi1_0" speed="100000" port="1"/></pci>\n'
    text += '<pci class="0x020000" vendor="0x1d0f"><net name="rdmap1" speed="100000" port="1"/></pci></system>'
    found = facts(text)
    assert found.parts[0].nics == (
        Nics("x:1", "omni-path", 12.5e9, 1, ("hfi1_0",)),
        Nics("x:2", "efa", 12.5e9, 1, ("rdmap1",)),
    )
    assert not found.notes


def test_bandwidth_of_leaves_down_and_up_and_ports_that_lead_nowhere():
    """Two ports of 400 Gbit/s down and two up; six down and four up on the two rails that count as one."""
    found = sample("ibnetdiscover-rails.txt")
    assert found.downlinks == (("A09-P1-IBLEAF-04-04", 100e9, 100e9), ("A09-P1-IBLEAF-04-02", 300e9, 200e9))
    assert found.notes == ("x: 2 ports are left out: the description of their adapter does not name a host",)


def test_a_host_whose_first_rail_is_dead_hangs_under_the_leaf_of_its_neighbours():
    text = HEAD % (1, "rail-a") + PORT % (1, 11, 11, "h1 mlx5_0") + "\n"
    text += HEAD % (2, "rail-b") + PORT % (1, 12, 12, "h1 mlx5_1") + PORT % (2, 22, 22, "h2 mlx5_1")
    assert facts(text).hosts == (Host("h1", "x:2", "rail-a", ("infiniband",)), Host("h2", "x:6", "rail-a", ("infiniband",)))


def test_switches_that_nothing_joins_are_fabrics_of_their_own():
    text = HEAD % (1, "a") + PORT % (1, 11, 11, "h1 mlx5_0") + "\n" + HEAD % (2, "b") + PORT % (1, 21, 21, "h2 mlx5_0")
    assert [host.above for host in facts(text).hosts] == [("infiniband-1",), ("infiniband-2",)]


def test_an_adapter_is_described_in_its_own_record_where_the_port_does_not_say():
    text = HEAD % (1, "a") + '[1]\t"H-11"[1](11) \t\t# "" lid 0 4xFDR\n\n'
    text += 'Ca\t1 "H-11"\t\t# "h1 mlx5_0"\n[1](11) \t"S-1"[1]\t\t# lid 0\n'
    found = facts(text)
    assert found.hosts == (Host("h1", "x:2", "a", ("infiniband",)),)
    assert found.parts[0].nics == (Nics("x:2", "infiniband", 7e9, 1, ("mlx5_0",)),)


def test_blocks_of_one_switch_add_up_and_one_without_a_switch_stands_alone():
    blocks = "- {switch: a, nodes: ['n[1-2]']}\n- {switch: a, nodes: [n3]}\n- nodes: [c1]\n"
    found = facts(f"switches: {{s: {{switches: [a]}}}}\nblocks:\n{blocks}")
    assert found.hosts == (
        Host("n1", "x:3", "a", ("s",)),
        Host("n2", "x:3", "a", ("s",)),
        Host("n3", "x:3", "a", ("s",)),
        Host("c1", "x:5"),
    )


def test_a_run_names_the_devices_that_it_used():
    """The table does not say which program ran: its file's name does."""
    name = "nccl_tests-a100-all_reduce.txt"
    found = importers.get("nccl_tests").read((SAMPLES / name).read_text(encoding="utf-8"), name)
    hosts = ("nccl-test-a100-worker-0", "nccl-test-a100-worker-1")
    assert found.parts[1] == Parts(hosts, Devices(f"{name}:4", "a100-sxm4-40gb", "NVIDIA A100-SXM4-40GB", 8, True))
    points = [(point.operation, point.ranks, point.nbytes, point.seconds) for point in found.measured[0].points]
    assert points == [("all_reduce", 16, 1073741824.0, 0.011774), ("all_reduce", 16, 10737418240.0, 0.111812)]


def test_a_report_names_one_device_of_each_process():
    """`-g 2` in one process: the report's config lists the first of the two."""
    found = sample("nccl_tests-t4.json")
    assert found.hosts == (Host("22f64f592750", "x:1"),)
    assert found.parts[1] == Parts(("22f64f592750",), Devices("x:1", "t4", "Tesla T4", 2, True))
    points = [(point.operation, point.ranks, point.nbytes, point.seconds) for point in found.measured[0].points]
    assert points == [("all_reduce", 2, 134217728.0, pytest.approx(0.02341869756))]


def test_active_ports_of_ibstat_by_link_layer_and_in_the_order_of_their_numbers():
    """Eight InfiniBand ports, two RoCE ports, two that are down."""
    found = sample("ibstat-h100.txt")
    assert [(nics.type, nics.bandwidth, nics.count) for nics in found.parts[0].nics] == [
        ("infiniband", 50e9, 8),
        ("roce", 12.5e9, 2),
    ]
    assert found.parts[0].nics[0].names[-3:] == ("mlx5_9", "mlx5_10", "mlx5_11")
    assert found.notes == ("x: ports that are not active are left out: mlx5_1, mlx5_2",)


def test_network_interfaces_of_sys_that_are_no_ports_of_rdma_adapters():
    """One 25 Gbit/s interface is left; two are ports of RoCE adapters, one is IP over InfiniBand, one is down."""
    found = sample("sysfs-h100.txt")
    assert {nics.type: (nics.bandwidth, nics.names) for nics in found.parts[0].nics if nics.type != "infiniband"} == {
        "ethernet": (3.125e9, ("eno8303",)),
        "roce": (12.5e9, ("mlx5_7", "mlx5_8")),
    }


def test_of_ports_with_several_rates_the_most_frequent_counts():
    lines = "".join(f"/sys/class/net/e{at}/speed:{mbit}\n" for at, mbit in enumerate((25000, 100000, 100000)))
    found = facts(lines)
    assert found.parts[0].nics == (Nics("x:2", "ethernet", 12.5e9, 2, ("e1", "e2")),)
    assert found.notes == ("x: ethernet NICs of several rates; 100 Gbit/s is kept; left out: e0 (25 Gbit/s)",)


def test_memory_that_differs_from_the_catalogue_is_noted():
    found = facts("name, memory.total [MiB]\nNVIDIA GeForce RTX 4090, 49140 MiB\n")
    assert found.parts[0].devices == Devices("x:2", "rtx-4090", "NVIDIA GeForce RTX 4090", 1)
    assert found.notes == ("x:2: the driver reports 47.99 GiB, rtx-4090 of the catalogue has 24 GiB",)
    assert sample("nvidia_smi_query-h200.txt").notes == ()


def test_the_pci_device_of_rocm_smi_counts_more_than_its_name():
    assert sample("rocm_smi-mi300x-vf.txt").parts[0].devices == Devices("x:3", "mi300x", "AMD Instinct MI300X OAM", 1)


def test_hosts_and_devices_of_sinfo():
    found = sample("sinfo-bamboo.txt")
    assert [host.name for host in found.hosts][:4] == ["gpu004", "gpu006", "gpu007", "gpu011"]
    assert found.parts[-1] == Parts(("gpu001", "gpu002"), Devices("x:9", "rtx-3090", "nvidia_geforce_rtx_3090", 8))
    assert found.notes == ("x: hosts without GPUs are left out: cpu[001-052]",)


def test_memory_of_sinfo_is_that_of_its_configuration():
    """As `sinfo -N -l` prints it; a memory of 1 is not configured."""
    found = facts(
        "NODELIST NODES PARTITION STATE CPUS S:C:T MEMORY GRES\n"
        "n1 1 a idle 96 2:24:2 1031000 gpu:nvidia_h100_80gb_hbm3:8\n"
        "n[2-3] 2 a idle 96 2:24:2 515000+ gpu:nvidia_h100_80gb_hbm3:8\n"
        "n4 1 a idle 96 2:24:2 1 gpu:nvidia_h100_80gb_hbm3:8\n"
        "login 1 a idle 8 1:8:1 16000 (null)\n"
    )
    assert [(parts.hosts, parts.host_memory) for parts in found.parts if parts.host_memory] == [
        (("n1",), HostMemory("x:2", 1031000 * 2**20)),
        (("n2",), HostMemory("x:3", 515000 * 2**20)),
        (("n3",), HostMemory("x:3", 515000 * 2**20)),
    ]


def test_memory_of_a_host_is_its_total():
    assert sample("meminfo-16g.txt").parts == (Parts(host_memory=HostMemory("x:1", 16268680 * 1024)),)
    with pytest.raises(HolmesError, match=r"^x:2: MemTotal 'much' is not a number of kB, such as '527954744 kB'$"):
        facts("MemFree: 1 kB\nMemTotal: much\n")


def test_hosts_of_several_partitions_count_once_and_drained_ones_are_noted():
    found = facts("PARTITION NODES STATE NODELIST\na* 2 idle n[1-2]\nb 1 drain n2\n")
    assert [host.name for host in found.hosts] == ["n1", "n2"]
    assert found.notes == ("x: hosts that run no jobs now count as well: n2",)


def test_a_slow_pcie_link_of_lspci_is_noted():
    text = "8a:00.0 3D controller [0302]: NVIDIA Corporation GH100 [H100 SXM5 80GB] [10de:2330] (rev a1)\n"
    text += "\t\tLnkSta:\tSpeed 16GT/s (downgraded), Width x8 (downgraded)\n"
    found = facts(text)
    assert found.parts[0].devices == Devices("x:1", "h100-sxm5-80gb", "NVIDIA Corporation GH100 [H100 SXM5 80GB]", 1)
    state = "Speed 16GT/s (downgraded), Width x8 (downgraded)"
    assert found.notes == (f"x:2: the PCIe link of GPU 8a:00.0 is slower than it allows: {state}",)
