"""Targets of plans of islands: what is launched is complete, what is not has its reason, and each island launches alone."""

from __future__ import annotations

import itertools
import re
import subprocess

import pytest

from holmes_sim import exporters, exporting
from holmes_sim.launching import folder
from sim import sync
from sim.errors import NotSupported
from sim.sync import Sync
from tests.island_plans import TEN, islands

STRATEGIES = [
    Sync(name, **{"inner_steps": 12} if "inner_steps" in sync.get(name).TAKES else {}, compression=compression)
    for name, compression in itertools.product(sync.names(), ("none", "int8", "top-k=1%"))
]
FRAGMENTS = [Sync("streaming-diloco", 12, overlap, parts) for overlap, parts in itertools.product((0, 2, 3), (1, 4, 5))]
LAYOUTS = [
    {},
    {"nodes": 2, "batch": 16},
    {"batch": 32},
    {"batch": 16, "microbatch_size": 2, "zero_stage": 2},
    {"zero_stage": 0},
    {"dp": 4, "tp": 2, "num_microbatches": (1,) * 4, "batch": 4},
    {"dp": 2, "pp": 4, "zero_stage": 1, "num_microbatches": (4, 4)},
    {"west": {"batch": 16, "nodes": 2}},
    {"west": {"batch": 16}},
    {"model": TEN},
]
PLANS = [islands(each) for each in STRATEGIES + FRAGMENTS] + [islands(model=TEN, sync=each) for each in STRATEGIES]
PLANS += [islands(Sync("diloco", 12, compression="powersgd=4"))]
PLANS += [islands(**layout) for layout in LAYOUTS]


def reasons(plan, target):
    with pytest.raises(NotSupported) as refused:
        exporting.export(plan, target)
    assert refused.value.exit_code == 2
    return str(refused.value).splitlines()


@pytest.mark.parametrize("target", exporters.of_islands())
def test_what_exports_has_islands_that_export_alone_and_what_does_not_says_why(target):
    launched = 0
    for plan in PLANS:
        if any(exporters.unsupported_islands(target, plan)):
            for line in reasons(plan, target):
                assert re.fullmatch(rf"{target} cannot express [^:]+: [^;]+; .+", line), line
            continue
        assert exporting.export(plan, target).files
        for island in plan.islands:
            assert exporting.export(island, target).files
        launched += 1
    assert 0 < launched < len(PLANS)


def test_who_launches_islands():
    assert exporters.of_islands() == ("torchrun", "torchtitan", "prime")
    assert "prime" not in exporters.names()
    for target in set(exporters.names()) - {"torchtitan", "torchrun"}:
        line = f"{target} cannot keep islands together by diloco; targets that can: torchrun, torchtitan, prime"
        assert reasons(islands(), target) == [line]


@pytest.mark.parametrize(("target", "model"), [("torchtitan", "llama-3-8b"), ("torchrun", "gpt-18b"), ("prime", TEN)])
def test_a_folder_of_islands_is_complete_and_explained(target, model, tmp_path):
    launch = exporting.export(islands(model=model), target, tmp_path / "launch")
    written = {str(path.relative_to(tmp_path / "launch")) for path in (tmp_path / "launch").rglob("*") if path.is_file()}
    assert written == set(launch.files)
    readme = (tmp_path / "launch" / folder.README).read_text(encoding="utf-8")
    assert "| 0 | east-node0 | 8 | 1, 1, 8, 1 | 8 |\n| 1 | west-node0 | 8 | 1, 1, 8, 1 | 8 |" in readme
    assert "sync strategy: diloco, every 100 steps." in readme
    assert launch.how.strip() in readme
    assert all(line in readme for line in launch.assumed)
    for name in written:
        if name.endswith(".sh"):
            subprocess.run(["bash", "-n", tmp_path / "launch" / name], check=True)
            assert launch.files[name].executable


def test_what_two_islands_have_in_common_is_said_once():
    told = reasons(islands(model="gpt-1.7b", batch=16), "torchtitan")
    assert told and all(line.count("islands[1]") == 0 for line in told if "mlp gelu" in line)
    assert len([line for line in told if "mlp gelu" in line]) == 1
