"""The lab on this machine: who hears whom, how fast at most, and that nothing is left of it, however it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from benchmarks.lab import Case, measure
from holmes_sim.lab.lab import Lab
from holmes_sim.lab.namespaces import Namespaces
from holmes_sim.lab.wiring import RankLocation
from sim.errors import HolmesError
from sim.hardware.cluster import Fabric, Trunk
from sim.plan.plan import Plan
from sim.units import MEGA
from tests.builders import cluster, fleet, nic, plan
from tests.more import after

ROOT = Path(__file__).parents[2]

TALK = """
import json, os, socket, sys, time
role, address, nbytes = sys.argv[1], sys.argv[2], int(sys.argv[3])
if role == "hear":
    with socket.create_server((address, 7000)) as server:
        peer, _ = server.accept()
        heard = len(peer.recv(1, socket.MSG_WAITALL))
        begun = time.perf_counter()
        while heard < nbytes:
            heard += len(peer.recv(1 << 20))
        peer.sendall(b".")
        print(json.dumps([heard, time.perf_counter() - begun]))
elif role == "say":
    for _ in range(200):
        try:
            with socket.create_connection((address, 7000), timeout=10) as peer:
                peer.sendall(bytes(nbytes))
                peer.recv(1)
            print("heard")
            break
        except ConnectionRefusedError:
            time.sleep(0.02)
        except OSError as error:
            print(os.strerror(error.errno))
            break
"""
"""One rank hears a number of bytes at an address, another says them; the others do nothing."""


def refusal() -> str:
    """Why this machine does not allow a lab; nothing where it does."""
    try:
        Namespaces(0).close()
    except HolmesError as error:
        return str(error)
    return ""


REFUSED = refusal()
pytestmark = pytest.mark.skipif(bool(REFUSED), reason=f"no lab here: {REFUSED}")


@pytest.fixture
def hybrid() -> Plan:
    """Two InfiniBand and two RoCE nodes of one device, 10 and 5 GB/s, joined by Ethernet; ranks 0 to 3 are nodes 0 to 3."""
    ethernet = nic("ethernet", 4e9)
    clusters = [
        cluster("a", 2, 1, (nic("infiniband", 1e10), ethernet)),
        cluster("b", 2, 1, (nic("roce", 5e9), ethernet)),
    ]
    return plan(fleet(*clusters, trunks=(Trunk(("a", "b"), "ethernet", 2e9, 0.0),)), pp=2, dp=2)


def address(lab: Lab, host: int, kind: str) -> str:
    return lab.wiring.hosts[host].of_kind(kind)[0].address


def talk(lab: Lab, speaker: int, hearer: int, kind: str, nbytes: int = 1000) -> tuple[str, str]:
    """What the rank that says and the one that hears print."""
    at = address(lab, lab.wiring.ranks[hearer].host, kind)

    def command(seat: RankLocation) -> list[str]:
        role = {speaker: "say", hearer: "hear"}.get(seat.rank, "rest")
        return [sys.executable, "-S", "-c", TALK, role, at, str(nbytes)]

    said = lab.run(command, timeout=30)
    return said[speaker].output.strip(), said[hearer].output.strip()


# who hears whom


def test_what_no_fabric_joins_does_not_hear_and_ethernet_spans_all(hybrid: Plan) -> None:
    with Lab(hybrid, 1000) as lab:
        assert talk(lab, 0, 1, "infiniband")[0] == "heard"
        assert talk(lab, 3, 2, "roce")[0] == "heard"
        assert talk(lab, 0, 3, "ethernet")[0] == "heard"
        across = address(lab, 2, "roce")
        (first, *_) = lab.run(lambda seat: [sys.executable, "-S", "-c", TALK, "rest" if seat.rank else "say", across, "1"])
        assert first.output.strip() == "Network is unreachable"


def test_ranks_know_their_place(hybrid: Plan) -> None:
    with Lab(hybrid, 1000) as lab:
        said = lab.run(
            lambda seat: [
                "sh",
                "-c",
                'echo "$RANK $WORLD_SIZE $LOCAL_RANK $HOLMES_SIM_HOST $HOLMES_SIM_SCALE $HOLMES_SIM_INTERFACES"',
            ]
        )
    assert [line.rank for line in said] == [0, 1, 2, 3]
    *words, interfaces = said[2].output.strip().split(" ", 5)
    assert words == ["2", "4", "0", "b/node0", "1000"]
    assert json.loads(interfaces) == {"ethernet": ["ethernet0"], "roce": ["roce0"], "intra_node": ["lo"]}


# how fast at most


@pytest.mark.parametrize(
    ("kind", "hearer", "rate"), [("infiniband", 1, 10 * MEGA), ("ethernet", 1, 4 * MEGA), ("ethernet", 2, 2 * MEGA)]
)
def test_no_link_is_faster_than_modelled(kind: str, hearer: int, rate: float, hybrid: Plan) -> None:
    """Half a second's bytes take half a second at least, but for the burst of an idle link and what sockets hold."""
    with Lab(hybrid, 1000) as lab:
        heard, seconds = json.loads(talk(lab, 0, hearer, kind, int(rate / 2))[1])
    assert heard == int(rate / 2)
    assert seconds > 0.45


def test_an_oversubscribed_leaf_is_a_link_of_its_own() -> None:
    """One node a leaf, four times oversubscribed: its two NICs of 10 MB/s get 5 MB/s out of it together."""
    nodes = cluster("a", 2, 2, (nic("infiniband", 1e10, 2),), fabric=Fabric(1, 4.0))
    with Lab(plan(fleet(nodes), dp=4), 1000) as lab:
        heard, seconds = json.loads(talk(lab, 0, 2, "infiniband", 2_500_000)[1])
    assert heard == 2_500_000
    assert seconds > 0.45


@pytest.mark.parametrize(
    "case",
    after(
        1,
        [
            Case("ring", "all_reduce", "infiniband", ((0, 2),), 3_000_000, 1),
            Case("message", "send_recv", "ethernet", ((0, 8),), 3_000_000, 1),
        ],
    ),
    ids=lambda case: case.name,
)
def test_gloo_runs_over_the_links(case: Case) -> None:
    """A ring and a message of the benchmark; as the lab is no faster than the model, neither are they."""
    pytest.importorskip("torch")
    (row,) = measure((case,), repeats=1)
    assert row.measured > 0.9 * row.modelled


# failures


def test_the_first_rank_that_fails_ends_all_with_its_last_line(hybrid: Plan) -> None:
    def command(seat: RankLocation) -> list[str]:
        return ["sh", "-c", "echo first; echo last >&2; exit 3" if seat.rank == 2 else "exec sleep 1000"]

    with Lab(hybrid, 1000) as lab:
        with pytest.raises(HolmesError, match=r"^rank 2 \(b/node0/dev0\) failed: last \(exit code 3\)$"):
            lab.run(command)
        with pytest.raises(HolmesError, match=r"^after 0\.1 s these ranks were still running: 0, 1, 3$"):
            lab.run(lambda seat: ["sleep", "0" if seat.rank == 2 else "1000"], timeout=0.1)
        assert lab.run(lambda seat: ["echo", "again"])[3].output == "again\n"


def test_a_command_that_linux_refuses_is_one_clear_line(hybrid: Plan) -> None:
    with Namespaces(0) as namespaces, pytest.raises(HolmesError, match=r"^the lab cannot be set up: ip -batch -: .*nowhere"):
        namespaces.run(0, ("ip", "-batch", "-"), ["link set nowhere up"])


# the end


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until_gone(pids: list[int]) -> None:
    until = time.monotonic() + 20
    while left := [pid for pid in pids if is_alive(pid)]:
        assert time.monotonic() < until, f"still there: {left}"
        time.sleep(0.05)


def test_an_error_inside_takes_the_lab_down(hybrid: Plan) -> None:
    pids: list[int] = []
    with pytest.raises(ZeroDivisionError), Namespaces(2) as namespaces:
        pids += namespaces.pids
        assert all(is_alive(pid) for pid in pids)
        raise ZeroDivisionError
    wait_until_gone(pids)


RUN = """
    import signal, sys
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job has it ignored
    from holmes_sim.lab.namespaces import Namespaces
    import subprocess
    with Namespaces(1) as namespaces:
        inside = subprocess.Popen(namespaces.inside(1, ["sh", "-c", "sleep 1000 & sleep 1001"], True), start_new_session=True)
        print(*namespaces.pids, inside.pid, flush=True)
        inside.wait()
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_of_a_lab_that_is_ended(how: signal.Signals) -> None:
    """Ctrl-C, a polite and an impolite end: processes and namespaces are gone, also those in the background."""
    command = [sys.executable, "-c", textwrap.dedent(RUN)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as lab:
        assert lab.stdout is not None
        pids = [int(pid) for pid in lab.stdout.readline().split()]
        until = time.monotonic() + 20
        while not (inside := with_namespace_of(pids[0])) and time.monotonic() < until:
            time.sleep(0.05)
        assert len(inside) >= 2, "the programs run"
        lab.send_signal(how)
        lab.wait()
        wait_until_gone(pids + inside)


def with_namespace_of(holder: int) -> list[int]:
    """Programs in the PID namespace that a process made, its first one left out."""
    wanted = Path(f"/proc/{holder}/ns/pid_for_children").readlink()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if (folder / "ns/pid").readlink() == wanted and (folder / "cmdline").read_bytes().startswith(b"sleep"):
                found.append(int(folder.name))
        except OSError:
            continue
    return found if len(found) == 2 else []


# beside one another, and without root


def test_two_labs_run_beside_each_other(hybrid: Plan) -> None:
    with Lab(hybrid, 1000) as one, Lab(hybrid, 500) as other:
        for lab in (one, other):
            assert talk(lab, 0, 1, "infiniband")[0] == "heard"


AS_NOBODY = """
    import os, sys
    from holmes_sim.lab.namespaces import Namespaces, set_below_proc
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
    os.chdir("/")
    with Namespaces(1) as namespaces:
        pid = namespaces.pids[1]
        namespaces.run(0, ("ip", "-batch", "-"), [f"link add here type veth peer name there netns {pid}"])
        namespaces.run(1, ("tc", "-batch", "-"), ["qdisc add dev there root tbf rate 1mbit burst 10000 limit 10000"])
        namespaces.run(1, set_below_proc("net/ipv4/tcp_wmem", "4096 65536 65536"))
        namespaces.run(1, namespaces.inside(1, ["true"], is_program=True)[-1:])
        import subprocess
        print(subprocess.run(namespaces.inside(1, ["id", "-u"], True), capture_output=True, text=True).stdout.strip())
"""


def test_a_user_namespace_serves_where_there_is_no_root() -> None:
    if os.geteuid() != 0:
        pytest.skip("the other tests have shown it: they do not run as root")
    command = [sys.executable, "-c", textwrap.dedent(AS_NOBODY)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if "needs root or user namespaces" in done.stderr:
        pytest.skip(f"no user namespaces here: {done.stderr.splitlines()[-1]}")
    assert (done.stdout.strip(), done.stderr) == ("0", "")


def test_where_nothing_is_allowed_there_is_one_clear_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An unshare that refuses, as in a container without rights."""
    refusing = tmp_path / "unshare"
    refusing.write_text("#!/bin/sh\necho unshare: unshare failed: Operation not permitted >&2\nexit 1\n")
    refusing.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(
        HolmesError, match=r"^the lab needs root or user namespaces to create network namespaces: .*not permitted$"
    ):
        Namespaces(1)
