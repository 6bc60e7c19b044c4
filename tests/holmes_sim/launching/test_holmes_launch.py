"""The shim before it meets torch: which host this is, which rank, over which network a group goes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from holmes_sim.launching import holmes_launch, nets, torch_launch
from holmes_sim.launching.holmes_launch import host_of, network, seat_of
from sim.plan.derived_groups import gradient_groups
from sim.plan.plan import Plan
from tests import features
from tests.builders import any_plan
from tests.peers import exported

TABLE: dict[str, Any] = {
    "plan": "0", "world_size": 5, "unified": False,
    "hosts": [
        {"host": "ib0.site", "node": "ib/node0", "ranks": [3, 0, 4], "devices": [0, 1, 2], "vendor": "nvidia",
         "fabrics": {"infiniband-0": 1e10}},
        {"host": "roce0", "node": "roce/node0", "ranks": [1, 2], "devices": [0, 1], "vendor": "nvidia",
         "fabrics": {"roce-0": 1e10}},
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", ["ib0.site", "ib0", "ib0.elsewhere", "ib/node0"])
def test_a_host_by_its_name_its_first_label_or_its_node(name):
    assert host_of(TABLE, {}, name)["node"] == "ib/node0"
    assert host_of(TABLE, {"HOLMES_HOST": name}, "roce0")["node"] == "ib/node0"


def test_of_hosts_with_the_same_first_label_only_a_full_name_is_one():
    twins = {"hosts": [{"host": f"n0.{site}", "node": f"{site}/node0", "fabrics": {}, "ranks": [0]} for site in "ab"]}
    assert host_of(twins, {}, "n0.b")["node"] == "b/node0"
    with pytest.raises(ValueError, match=r"^host 'n0' is more than one of n0\.a, n0\.b; HOLMES_HOST may name it$"):
        host_of(twins, {}, "n0")


@pytest.mark.parametrize(
    ("name", "environment", "line"),
    [
        ("web1", {}, "host 'web1' is not of ib0.site, roce0; HOLMES_HOST may name it"),
        ("ib0", {"HOLMES_SCRIPT": "roce0"}, "the script of roce0 was started on ib0, which is ib0.site of the plan"),
        ("ib0", {"NCCL_NET": "IB"}, "NCCL_NET=IB overrules the network of every group; unset it"),
    ],
)
def test_a_wrong_host_or_environment(name, environment, line):
    with pytest.raises(ValueError) as refused:
        host_of(TABLE, environment, name)
    assert str(refused.value) == line


def test_nccl_net_may_be_set_where_one_fabric_joins_all():
    one = TABLE | {"hosts": [host | {"fabrics": {"slingshot-0": 1.0}} for host in TABLE["hosts"]]}
    assert host_of(one, {"NCCL_NET": "AWS Libfabric"}, "roce0")["ranks"] == [1, 2]


def test_the_rank_is_that_of_the_local_rank():
    launched = {"WORLD_SIZE": "5", "LOCAL_WORLD_SIZE": "3"}
    ranks = [seat_of(TABLE, TABLE["hosts"][0], launched | {"LOCAL_RANK": str(local)}) for local in range(3)]
    assert ranks == [{"RANK": rank, "HOLMES_NODE": "ib/node0"} for rank in ("3", "0", "4")]


@pytest.mark.parametrize(
    ("environment", "line"),
    [
        ({}, "WORLD_SIZE and LOCAL_RANK are not set; start it by torchrun, as launch/*.sh does"),
        ({"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"}, "the launch has 2 ranks on ib0.site, the plan 3"),
        ({"WORLD_SIZE": "6", "LOCAL_WORLD_SIZE": "3"}, "the launch has 6 ranks, the plan 5"),
    ],
)
def test_a_launch_of_another_size(environment, line):
    with pytest.raises(ValueError) as refused:
        seat_of(TABLE, TABLE["hosts"][0], environment | ({"LOCAL_RANK": "0"} if environment else {}))
    assert str(refused.value) == line


def shim(folder: Path, *words: str, **environment: str) -> tuple[int, str, str]:
    (folder / "ranks.json").write_text(json.dumps(TABLE), encoding="utf-8")
    text = Path(holmes_launch.__file__).read_text(encoding="utf-8")
    assert "GRACE = 20.0\n" in text
    (folder / "holmes_launch.py").write_text(text.replace("GRACE = 20.0\n", "GRACE = 0.5\n"), encoding="utf-8")
    command = [sys.executable, folder / "holmes_launch.py", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    return done.returncode, done.stdout, done.stderr


def test_a_check_is_silent_or_one_line(tmp_path):
    assert shim(tmp_path, "--check", HOLMES_HOST="roce0", HOLMES_SCRIPT="roce0") == (0, "", "")
    line = "holmes_launch: the script of ib0.site was started on roce0, which is roce0 of the plan\n"
    assert shim(tmp_path, "--check", HOLMES_HOST="roce0", HOLMES_SCRIPT="ib0.site") == (2, "", line)
    assert shim(tmp_path, HOLMES_HOST="roce0", LOCAL_RANK="1", WORLD_SIZE="5") == (2, "", ""), "the first rank says it"
    code, _, said = shim(tmp_path, HOLMES_HOST="roce0")
    assert (code, said.count("\n")) == (2, 1)
    assert said.startswith("holmes_launch: which script? ")


def expected(plan: Plan, group_net: str | None, ranks: range | tuple[int, ...]) -> str | None:
    joined = nets.one_vendor(plan, ranks) or plan.fleet.communicator == "unified"
    return group_net if joined else "gloo"


def hold(plan: Plan) -> None:
    """The shim's network of every group, and of the world, is what the plan's own is to NCCL."""
    table = json.loads(torch_launch.table(plan))
    for group in (*plan.groups, *gradient_groups(plan)):
        assert network(table, list(group.ranks)) == expected(plan, nets.net_name(group), group.ranks), group
    everyone = range(plan.config.world_size)
    assert (
        network(table, None)
        == network(table, list(everyone))
        == expected(plan, nets.joining(plan.fleet, plan.placement)[1], everyone)
    )


@given(plan=any_plan(ranks=24))
def test_networks_are_those_of_the_plan(plan: Plan) -> None:
    hold(plan)


def test_networks_are_those_of_every_plan_of_the_corpus():
    seen: set[str | None] = set()
    for _, plan in exported.shipped():
        if plan.config.world_size <= 256:
            hold(plan)
            seen |= {nets.net_name(group) for group in plan.groups}
    for feature in features.FEATURES:
        hold(features.plan_of(feature))
    assert seen == {"IB", "Socket", None}
