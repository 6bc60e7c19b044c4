"""The software stack of a topology: by name, from a file, or in place; it reaches the fleet, the plan file and the step."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from sim.analytic.plan_costs import step_seconds
from sim.errors import HolmesError, PlanError, TopologyError
from sim.formats import catalog, planfile, stacks
from sim.formats.documents import check, parse
from sim.formats.stack_facts import StackConstants, written_facts
from sim.formats.topology import load
from sim.hardware.memory_facts import MemoryFacts
from sim.hardware.stack import DEFAULT, Stack, applied
from sim.kernels import memory
from sim.plan.under_stack import with_stack
from sim.units import MEBI, MICRO, MILLI
from tests import builders
from tests.sim.formats.topology_texts import TOPOLOGY

MINE = """format: holmes-sim/stack/1
name: ours
all_reduces: true
fitted: {gemm: 0.5, launch: 2 ms, network_delay: 30 us}
error: {default: 0.5, fitted: 0.1, held_out: 0.2}
cases: [one]
"""
OURS = Stack(
    gemm=0.5, attention=DEFAULT.attention, elementwise=DEFAULT.elementwise, communication=DEFAULT.communication,
    launch=2 * MILLI, step=DEFAULT.step, network_delay=30 * MICRO, all_reduces=True,
    attention_newest=DEFAULT.attention_newest, newest_attention=DEFAULT.newest_attention,
)  # fmt: skip


def topology(folder: Path, stack: str) -> Path:
    (folder / "ours.yaml").write_text(MINE)
    (folder / "topo.yaml").write_text(TOPOLOGY + f"stack: {stack}\n")
    return folder / "topo.yaml"


@pytest.mark.parametrize(
    "stack", ["ours.yaml", "{name: ours, all_reduces: true, fitted: {gemm: 0.5, launch: 2 ms, network_delay: 30 us}}"]
)
def test_a_topology_names_a_file_or_gives_the_numbers(tmp_path: Path, stack: str) -> None:
    plain = tmp_path / "plain.yaml"
    plain.write_text(TOPOLOGY)
    found = load(topology(tmp_path, stack))
    assert found.stack == OURS
    assert found.fleet == applied(OURS, load(plain).fleet)
    runs = {"runs": 1} if stack == "ours.yaml" else {}  # the file names one case
    assert found.facts()["stack"] == runs | {
        "name": "ours", "all_reduces": True, "fitted": {"gemm": 0.5, "launch": "2000 us", "network_delay": "30 us"},
    }  # fmt: skip


def test_a_plan_keeps_every_digit_of_a_stack(tmp_path: Path) -> None:
    found = load(topology(tmp_path, "{name: ours, fitted: {launch: 1.23456789 ms, update_bytes: 143.25}}"))
    assert found.facts()["stack"]["fitted"] == {"launch": "1234.56789 us", "update_bytes": 143.25}
    assert (found.stack.launch, found.stack.update_bytes) == (1.23456789 * MILLI, 143.25)


EAGER = "{keeps: [silu, fp32_logits], workspace: 256 MiB, fragmentation: 0.12, launches: [37, 52]}"


def test_what_software_keeps_in_memory_reaches_the_plan_and_its_file(tmp_path: Path) -> None:
    """SwiGLU of 8 layers on tp 2: silu(gate) takes 2 bytes for each token and value, half of them on each rank."""
    found = load(topology(tmp_path, f"{{name: ours, memory: {EAGER}, fitted: {{}}}}"))
    facts = MemoryFacts(("silu", "fp32_logits"), 256 * MEBI, 0.12, (37, 52))
    assert found.stack.memory == facts
    written = {"keeps": ["silu", "fp32_logits"], "workspace": "256 MiB", "fragmentation": 0.12, "launches": [37, 52]}
    assert found.facts()["stack"] == {"name": "ours", "memory": written, "fitted": {}}
    base = builders.plan(found.fleet, tp=2, layers=(8,), shape={"mlp": "swiglu"}, seq_len=64)
    mine = replace(base, topology=replace(found, workload=base.workload), config=replace(base.config, memory=facts))
    again = planfile.from_text("plan.json", planfile.to_json(mine))
    assert again.config.memory == facts
    assert memory.peak_memory(again) == memory.peak_memory(mine)
    only_silu = replace(base, config=replace(base.config, memory=MemoryFacts(("silu",))))
    (more,), (less,) = memory.peak_memory(only_silu), memory.peak_memory(base)
    assert more - less == 8 * 2 * 64 * base.workload.model.ffn_hidden / 2
    assert "memory" not in json.loads(planfile.to_json(mine))["config"]


def test_what_software_refuses_reaches_the_plan_and_its_file(tmp_path: Path) -> None:
    found = load(topology(tmp_path, "{name: ours, refuses: [few_microbatches], fitted: {}}"))
    assert found.facts()["stack"] == {"name": "ours", "refuses": ["few_microbatches"], "fitted": {}}
    base = builders.plan(found.fleet, tp=2)
    mine = replace(base, topology=replace(found, workload=base.workload))
    again = planfile.from_text("plan.json", planfile.to_json(mine))
    assert again.config.refuses == ("few_microbatches",)
    assert "refuses" not in json.loads(planfile.to_json(mine))["config"]
    with pytest.raises(HolmesError, match="is nothing that software is known to refuse; known: distant_head, few_microbatches"):
        load(topology(tmp_path, "{name: ours, refuses: [all], fitted: {}}"))


def test_an_exchange_of_tokens_reaches_the_stack_and_no_plan_that_is_given(tmp_path: Path) -> None:
    found = load(topology(tmp_path, "{name: ours, dispatcher: deepep, overlap_shared_experts: true, fitted: {}}"))
    assert (found.stack.dispatcher, found.stack.overlap_shared_experts) == ("deepep", True)
    written = {"name": "ours", "dispatcher": "deepep", "overlap_shared_experts": True, "fitted": {}}
    assert found.facts()["stack"] == written
    base = builders.plan(found.fleet, tp=2)
    mine = replace(base, topology=replace(found, workload=base.workload))
    again = planfile.from_text("plan.json", planfile.to_json(mine))
    assert (again.topology.stack, again.config.dispatcher) == (found.stack, "alltoall")
    with pytest.raises(HolmesError, match="'deepp' is unknown; known: alltoall, allgather, deepep, hybridep"):
        load(topology(tmp_path, "{name: ours, dispatcher: deepp, fitted: {}}"))


@pytest.mark.parametrize(
    ("other", "fault"),
    [
        ("overlap_shared_experts: true", "with overlap_shared_experts: tokens travel beside one of the two; leave one out"),
        ("dispatcher: allgather", "with dispatcher allgather: it overlaps an all_to_all; alltoall, deepep or hybridep"),
    ],
)
def test_an_overlap_with_another_microbatch_excludes_other_overlaps(tmp_path: Path, other: str, fault: str) -> None:
    alone = load(topology(tmp_path, "{name: ours, overlap_expert_communication: true, fitted: {}}"))
    assert alone.stack.overlap_expert_communication
    with pytest.raises(HolmesError, match=f"stack: overlap_expert_communication {fault}"):
        load(topology(tmp_path, f"{{name: ours, overlap_expert_communication: true, {other}, fitted: {{}}}}"))


def test_passes_and_early_stop_reach_the_plan_and_its_file(tmp_path: Path) -> None:
    found = load(topology(tmp_path, "{name: ours, early_stop: true, passes: {norm: 1.5, heads: 3.3}, fitted: {}}"))
    assert (found.stack.early_stop, found.stack.passes) == (True, (("heads", 3.3), ("norm", 1.5)))
    assert found.fleet.clusters[0].node.device.passes == (("heads", 3.3), ("norm", 1.5))
    written = {"name": "ours", "early_stop": True, "passes": {"heads": 3.3, "norm": 1.5}, "fitted": {}}
    assert found.facts()["stack"] == written
    base = builders.plan(found.fleet, tp=2, recompute="full")
    mine = replace(base, topology=replace(found, workload=base.workload), config=replace(base.config, early_stop=True))
    again = planfile.from_text("plan.json", planfile.to_json(mine))
    assert again.config == mine.config
    assert again.specs == mine.specs
    assert "early_stop" not in json.loads(planfile.to_json(mine))["config"]


def test_a_kernel_that_no_layer_has_is_refused_at_its_line(tmp_path: Path) -> None:
    with pytest.raises(TopologyError) as fault:
        load(topology(tmp_path, "{name: ours, passes: {rope: 2}, fitted: {}}"))
    assert f"topo.yaml:{len(TOPOLOGY.splitlines()) + 1}: stack" in str(fault.value)
    assert "'rope' is not an elementwise kernel; known: norm, heads, residual, activation, loss, scores" in str(fault.value)


def test_a_stack_without_facts_of_memory_is_megatron(tmp_path: Path) -> None:
    found = load(topology(tmp_path, "{name: ours, fitted: {}}"))
    assert (found.stack.memory, found.facts()["stack"]) == (MemoryFacts(), {"name": "ours", "fitted": {}})


def test_something_that_no_software_keeps_is_refused_at_its_line(tmp_path: Path) -> None:
    with pytest.raises(TopologyError) as fault:
        load(topology(tmp_path, "{name: ours, memory: {keeps: [gelu]}, fitted: {}}"))
    assert f"topo.yaml:{len(TOPOLOGY.splitlines()) + 1}: stack" in str(fault.value)
    assert "'gelu' is nothing that software is known to keep; known: silu, kv_copy" in str(fault.value)


def test_launches_of_a_layer_are_two_counts(tmp_path: Path) -> None:
    with pytest.raises(TopologyError) as fault:
        load(topology(tmp_path, "{name: ours, memory: {launches: [37, 0]}, fitted: {}}"))
    assert f"topo.yaml:{len(TOPOLOGY.splitlines()) + 1}: stack" in str(fault.value)
    assert "0 must be at least 1" in str(fault.value)


def test_a_stack_of_the_catalogue_has_its_numbers_and_facts(tmp_path: Path) -> None:
    facts = catalog.stack_facts("megatron-deepspeed-2022")
    assert load(topology(tmp_path, "megatron-deepspeed-2022")).stack == facts.stack()
    assert facts.stack().blocking
    assert stacks.load("megatron-deepspeed-2022") == facts


def test_an_unknown_stack_is_refused_at_its_line(tmp_path: Path) -> None:
    with pytest.raises(TopologyError) as fault:
        load(topology(tmp_path, "megatron-2o21"))
    line = len(TOPOLOGY.splitlines()) + 1
    assert str(fault.value).startswith(
        f"{tmp_path / 'topo.yaml'}:{line}: stack: stack 'megatron-2o21' is neither in the catalogue nor a file that "
        "holmes-sim calibrate wrote; similar names: megatron-2020, megatron-2021, "
    )


def test_a_file_of_another_kind_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "runs.yaml").write_text("format: holmes-sim/cases/1\nname: ours\n")
    with pytest.raises(TopologyError) as fault:
        stacks.load("runs.yaml", tmp_path)
    where = f"{tmp_path / 'runs.yaml'}:1: format"
    right = "its format is holmes-sim/stack/1, and holmes-sim calibrate writes one"
    assert str(fault.value) == f"{where}: this is no software stack; {right}"


def test_an_unknown_number_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TopologyError, match="spead"):
        load(topology(tmp_path, "{name: ours, fitted: {spead: 2}}"))


def test_a_plan_file_keeps_the_stack_and_the_step(tmp_path: Path) -> None:
    """The plan of a topology under a stack is the plan under that stack, and stays it when it is read again."""
    given = load(topology(tmp_path, "ours.yaml"))
    plain = tmp_path / "plain.yaml"
    plain.write_text(TOPOLOGY)
    base = builders.plan(load(plain).fleet, tp=2, dp=4)
    base = replace(base, topology=replace(load(plain), workload=base.workload))
    mine = with_stack(OURS, base)
    mine = replace(mine, topology=replace(given, workload=base.workload))
    again = planfile.from_text("plan.json", planfile.to_json(mine))
    assert again.config.all_reduces
    assert again.topology.stack == OURS
    assert step_seconds(again) == pytest.approx(step_seconds(mine), rel=1e-12)
    assert step_seconds(again) == pytest.approx(step_seconds(with_stack(OURS, base)), rel=1e-12)
    assert step_seconds(again) > step_seconds(base)
    assert "all_reduces" not in json.loads(planfile.to_json(mine))["config"]


def test_a_plan_has_one_stack(tmp_path: Path) -> None:
    given = load(topology(tmp_path, "megatron-2021"))
    plan = builders.plan(given.fleet, tp=2)
    plan = replace(plan, topology=given)
    with pytest.raises(PlanError, match="has a software stack of its own"):
        with_stack(OURS, plan)


def test_facts_that_a_stack_does_not_name_are_those_of_the_default() -> None:
    """So a stack of one number differs from the default in that number alone; older kernels are named, and kept in files."""
    mine = check(parse("mine.yaml", "name: mine\nfitted: {communication: 0.8}\n"), StackConstants)
    assert mine.stack() == replace(DEFAULT, communication=0.8)
    assert written_facts(mine.stack()) == {}
    older = check(parse("older.yaml", "name: older\nnewest_attention: false\nfitted: {}\n"), StackConstants)
    assert older.stack() == replace(DEFAULT, newest_attention=False)
    assert written_facts(older.stack()) == {"newest_attention": False}


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("mlperf-v4.1", "mlperf-v4.1"), ("mlperf-v5.0", "mlperf-v4.1"), ("mlperf-v6.0", "mlperf-v6.0"),
        ("mlperf-v7.0", "mlperf-v6.0"), ("mlperf-v2.1", "mlperf-v3.0"), ("nemo-24.09", "nemo-24.07"), ("unheard-1.0", None),
    ],
)  # fmt: skip
def test_an_unknown_version_of_known_software_has_the_facts_of_the_one_before(name: str, found: str | None) -> None:
    assert catalog.stack_family(name) == found


def test_a_division_of_layers_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("format: holmes-sim/stack/1\nname: mine\nusual: {layer_partition: even}\n")
    with pytest.raises(TopologyError) as fault:
        stacks.load("mine.yaml", tmp_path)
    known = "transformer-only, embedding-as-layer, fuller-middle"
    assert str(fault.value) == f"{tmp_path / 'mine.yaml'}:3: usual.layer_partition: 'even' is unknown; known: {known}"
