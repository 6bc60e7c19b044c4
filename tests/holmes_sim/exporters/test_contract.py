"""Every target keeps the contract of exporters, on plans that differ from a plain one in one property each."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from holmes_sim import exporters, exporting
from holmes_sim.launching import folder
from sim.errors import NotSupported, PlanError
from sim.plan.plan import Plan
from tests import features

DOCS = Path(__file__).parents[3] / "docs" / "export.md"
BEGIN, END = "<!-- made by a test: begin -->\n", "<!-- made by a test: end -->\n"


def plan_for(target: str, feature: features.Feature) -> Plan:
    return features.plan_of(feature, features.schedule(target))


def can(target: str, feature: features.Feature) -> bool:
    return not any(exporters.unsupported(target, plan_for(target, feature)))


def table() -> str:
    """What each target can express, property by property."""
    names = exporters.names()
    rows = [f"| {' | '.join(('property', *names))} |", f"| --- |{' :-: |' * len(names)}"]
    for feature in features.FEATURES:
        rows.append(f"| {feature.name} | {' | '.join('yes' if can(name, feature) else '' for name in names)} |")
    rows.append(f"| {features.UNLIKE} | {' | '.join('yes' if runs_unlike_pipelines(name) else '' for name in names)} |")
    return "\n".join(rows) + "\n"


def runs_unlike_pipelines(target: str) -> bool:
    try:
        exporting.export(features.unlike_pipelines(), target)
    except NotSupported as refused:
        assert str(refused) == (
            f"{target} cannot express pipelines 12+12, 13+11: replicas with stages and layers of their own; targets that start "
            "`holmes-sim run`: slurm, torchrun"
        )
        return False
    return True


def test_the_table_of_targets_is_what_they_can_express():
    text = DOCS.read_text(encoding="utf-8")
    shown = text[text.index(BEGIN) + len(BEGIN) : text.index(END)]
    assert shown == table(), f"docs/export.md should say:\n{table()}"


@pytest.mark.parametrize("target", exporters.names())
def test_every_target_launches_the_plain_plan_and_says_who_has_read_it(target):
    assert can(target, features.FEATURES[0])
    assert exporters.get(target).TITLE
    assert exporters.get(target).READERS


@pytest.mark.parametrize("feature", features.FEATURES, ids=lambda feature: feature.name)
@pytest.mark.parametrize("target", exporters.names())
def test_what_is_launched_is_complete_and_what_is_not_has_its_reason(target, feature, tmp_path):
    plan = plan_for(target, feature)
    if not can(target, feature):
        with pytest.raises(PlanError) as refused:
            exporting.export(plan, target)
        assert refused.value.exit_code == 2
        *faults, last = str(refused.value).splitlines()
        if target in exporters.frameworks():
            command = f"holmes-sim plan TOPOLOGY --for {target}"
            assert last == f"for a plan that {target} can run: {command} (TOPOLOGY is the file of {plan.topology.name})"
        for line in faults if target in exporters.frameworks() else [*faults, last]:
            assert re.fullmatch(rf"{target} cannot express [^:]+: [^;]+; .+", line), line
        return
    launch = exporting.export(plan, target)
    folder.write(launch, tmp_path / "launch")
    written = {str(path.relative_to(tmp_path / "launch")) for path in (tmp_path / "launch").rglob("*") if path.is_file()}
    assert written == set(launch.files)
    readme = (tmp_path / "launch" / "README.md").read_text(encoding="utf-8")
    for name in written - {"README.md"}:
        assert f"`{name}`" in readme or f"`{Path(name).parent}/ (" in readme, name
    assert launch.how.strip() in readme
    assert all(line in readme for line in launch.assumed)
    for name in written - {"plan.json", "holmes_launch.py", "README.md"}:
        assert b"NCCL_NET=" not in (tmp_path / "launch" / name).read_bytes(), "it would overrule the network of every group"
    scripts = [tmp_path / "launch" / name for name in sorted(written) if name.endswith((".sh", ".sbatch"))]
    for script in scripts[:1]:
        subprocess.run(["bash", "-n", script], check=True)
    assert all(file.executable == name.endswith((".sh",)) for name, file in launch.files.items() if name.endswith(".sh"))


@pytest.mark.parametrize("target", ["torchrun", "megatron", "holmes", "torchtitan"])
def test_a_host_finds_its_script_by_its_name_in_the_plan(target):
    """Not by `hostname -s`: a host may be named in full, or called after its cluster."""
    how = exporters.get(target).launch(features.plan_of(features.FEATURES[0])).how
    assert "bash FOLDER/launch/HOST.sh" in how
    assert "the host's own script" in how
    assert "hostname" not in how


@pytest.mark.parametrize("target", ["deepspeed", "flagscale", "holmes", "megatron", "torchtitan"])
def test_a_framework_that_builds_the_head_on_the_last_stage_refuses_another_place(target):
    four = features.Feature("", {"pp": 4, "dp": 1, "num_microbatches": (16,)}, layers=(8, 8, 8, 0))
    plan = plan_for(target, four)
    early = replace(plan, stages=(*plan.stages[:2], replace(plan.stages[2], head=True), plan.stages[3]))
    assert set(exporters.unsupported(target, early)) - set(exporters.unsupported(target, plan)) == {
        "stages[2].head: it builds the head on the last stage; a last stage with the head"
    }


@pytest.mark.parametrize("target", ["chakra", "csv", "slurm"])
def test_other_targets_take_a_head_before_the_last_stage(target):
    four = features.Feature("", {"pp": 4, "dp": 1, "num_microbatches": (16,)}, layers=(8, 8, 8, 0))
    plan = plan_for(target, four)
    early = replace(plan, stages=(*plan.stages[:2], replace(plan.stages[2], head=True), plan.stages[3]))
    assert exporting.export(early, target).files
