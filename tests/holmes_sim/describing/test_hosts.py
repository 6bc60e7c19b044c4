"""Hosts that are asked: this one, and those of a list by ssh."""

from __future__ import annotations

import pytest

from holmes_sim.describing import description, host_list, host_probe
from holmes_sim.describing.host_probe import Answer
from sim.errors import HolmesError
from tests.holmes_sim.describing.recorded import LISTED, Hosts, dgx, probed, rtx, sample


@pytest.fixture
def listed(tmp_path, monkeypatch):
    """A function that reads a list of hosts from hosts.txt."""
    monkeypatch.chdir(tmp_path)

    def read(text: str) -> tuple[host_list.ListedHost, ...]:
        (tmp_path / "hosts.txt").write_text(text, encoding="utf-8")
        return host_list.read(host_list.Path("hosts.txt"))

    return read


def clusters(texts, notes=()):
    """The clusters that texts describe, and what is assumed."""
    found = description.of_sources(texts, "x", "made", {}, notes)
    return found.topology["clusters"], found.assumed


def test_this_host_is_described_by_its_own_name():
    texts = host_probe.here(Hosts(here=dgx("gpu01.example.org")))
    assert [text.name for text in texts] == [
        "gpu01 nvidia-smi",
        "gpu01 nvidia-smi --query-gpu",
        "gpu01 /proc/meminfo",
        "gpu01 /sys",
    ]
    found, assumed = clusters(texts)
    assert list(found) == ["cluster"]
    assert found["cluster"]["nodes"] == 1
    assert found["cluster"]["hosts"] == ["gpu01"]
    assert found["cluster"]["node"]["devices"] == {"type": "h100-sxm5-80gb", "count": 8}
    assert found["cluster"]["node"]["intra_node"] == "nvlink4"
    assert found["cluster"]["node"]["host_memory"] == "2015 GiB"
    assert [(nic["type"], nic["bandwidth"], nic["count"]) for nic in found["cluster"]["node"]["nics"]] == [
        ("ethernet", "25 Gbit/s", 1),
        ("infiniband", "400 Gbit/s", 8),
        ("roce", "100 Gbit/s", 2),
    ]
    assert assumed == ("gpu01: ports that are not active are left out: mlx5_1, mlx5_2",)


def test_a_host_without_gpus_has_no_devices():
    texts = host_probe.here(Hosts(here=probed("login", sys=sample("sysfs-eth0.txt"), memory="MemTotal: 16268680 kB\n")))
    assert [text.name for text in texts] == ["login /proc/meminfo", "login /sys"]
    assert not host_probe.has_devices(texts)


def test_amd_devices_are_found():
    texts = host_probe.here(Hosts(here=probed("amd", rocm=sample("rocm_smi-mi300x-vf.txt"))))
    assert clusters(texts)[0]["cluster"]["node"]["devices"] == {"type": "mi300x", "count": 1}


def test_the_script_runs_in_a_plain_shell():
    """Every section has its title, whatever this machine has."""
    done = host_probe.run(("sh", "-s"), host_probe.SCRIPT)
    assert done.code == 0
    titles = [line for line in done.out.splitlines() if line.startswith("=== ")]
    assert titles == [
        "=== hostname",
        "=== nvidia-smi",
        "=== nvidia-smi --query-gpu",
        "=== rocm-smi",
        "=== /proc/meminfo",
        "=== /sys",
    ]


def test_the_script_takes_the_output_of_nvidia_smi(tmp_path, monkeypatch):
    """A program of that name in front of the path, as a host with GPUs has it."""
    (tmp_path / "matrix").write_text(LISTED + sample("nvidia_smi-h100.txt"), encoding="utf-8")
    program = f'#!/bin/sh\ncase "$*" in -L) ;; "topo -m") cat {tmp_path}/matrix ;; *) exit 1 ;; esac\n'
    (tmp_path / "nvidia-smi").write_text(program, encoding="utf-8")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    texts = host_probe.here()
    assert host_probe.has_devices(texts)
    assert clusters(texts)[0]["cluster"]["node"]["devices"] == {"type": "h100-sxm5-80gb", "count": 8}


def test_a_command_that_is_not_installed_is_one_line():
    with pytest.raises(HolmesError, match=r"^nosuch-program is not installed$"):
        host_probe.run(("nosuch-program",), "")


def test_hosts_with_equal_answers_form_a_cluster(listed):
    hosts = listed("# two kinds\ngpu[01-02] slots=8\n\nme@pc1 slots=2  # few\n")
    runs = Hosts(gpu01=dgx("a"), gpu02=dgx("b"), me_at_pc1=rtx("c"))
    texts, notes = host_list.ask(hosts, runs)
    ssh = ("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "--")
    assert sorted(runs.commands) == [(*ssh, address, "sh", "-s") for address in ("gpu01", "gpu02", "me@pc1")]
    found, assumed = clusters(texts, notes)
    assert {name: (one["nodes"], one["hosts"]) for name, one in found.items()} == {
        "h100-sxm5-80gb": (2, ["gpu[01-02]"]),
        "rtx-4090": (1, ["pc1"]),
    }
    assert assumed[0] == "hosts.txt:4: slots=2, but pc1 has 4 devices, which count"
    assert "gpu[01-02]: ports that are not active are left out: mlx5_1, mlx5_2" in assumed


def test_the_least_memory_of_equal_hosts_counts(listed):
    """Kernels reserve unequal parts, which is no news; half of it is."""
    memories = {"a": 2113462964, "b": 2113440000, "c": 1056700000}
    runs = Hosts(**{name: dgx(name).replace("2113462964", str(kib)) for name, kib in memories.items()})
    texts, _ = host_list.ask(listed("a\nb\n"), runs)
    found, assumed = clusters(texts)
    assert (found["cluster"]["nodes"], found["cluster"]["node"]["host_memory"]) == (2, "2015 GiB")
    assert not any("memory" in line for line in assumed)
    texts, _ = host_list.ask(listed("a\nb\nc\n"), runs)
    found, assumed = clusters(texts)
    assert (found["cluster"]["nodes"], found["cluster"]["node"]["host_memory"]) == (3, "1007 GiB")
    assert (
        "cluster cluster: every host has 1007 GiB of memory (c /proc/meminfo:1), the least; a /proc/meminfo:1 has 2015 GiB"
        in assumed
    )


def test_nics_that_no_host_tells_are_guessed(listed):
    """Virtual machines hide the rates of their NICs."""
    machine = {
        "query": "name, memory.total [MiB]\nNVIDIA A100-SXM4-80GB, 81920 MiB\n",
        "sys": sample("sysfs-virtual-machine.txt"),
    }
    texts, _ = host_list.ask(listed("a\nb\n"), Hosts(a=probed("a", **machine), b=probed("b", **machine)))
    found, assumed = clusters(texts)
    assert found["cluster"]["node"]["nics"] == [{"type": "infiniband", "bandwidth": "200 Gbit/s", "count": 1}]
    guess = "cluster cluster: 1 x infiniband at 200 Gbit/s, a guess; sources that give the NICs: ibstat, NCCL's topology XML"
    assert any(line.startswith(guess) for line in assumed)


def test_every_host_that_does_not_answer_is_told_with_its_reason(listed):
    hosts = listed("gpu01\ngpu02\nlogin\ngone\n")
    denied = Answer(255, "", "Warning: added gpu02.\ngpu02: Permission denied (publickey).\n")
    runs = Hosts(gpu01=dgx("a"), gpu02=denied, login=probed("login"), gone=Answer(255, ""))
    with pytest.raises(HolmesError) as caught:
        host_list.ask(hosts, runs)
    assert str(caught.value).splitlines() == [
        "hosts.txt:2: gpu02 does not answer: gpu02: Permission denied (publickey); ssh gpu02 must work without a password",
        "hosts.txt:3: login has no GPU that nvidia-smi or rocm-smi lists; leave it out of the list",
        "hosts.txt:4: gone does not answer: ssh ended with code 255; ssh gone must work without a password",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"hosts.txt: lists no host; write one host a line, such as 'gpu01' or 'gpu01 slots=8'"),
        ("a\nb a\n", r"hosts.txt:2: 'a' is not understood; write one host a line"),
        ("-oProxyCommand=x\n", r"hosts.txt:1: '-oProxyCommand=x' is not the name of a host; write for example gpu01"),
        ("a\nme@a\n", r"hosts.txt:2: host 'a' is listed twice; first at hosts.txt:1"),
        ("gpu[1\n", r"hosts.txt:1: 'gpu\[1' is not a list of hosts"),
    ],
    ids=range(5),
)
def test_a_wrong_list_is_one_line(listed, text, message):
    with pytest.raises(HolmesError, match=f"^{message}"):
        listed(text)
