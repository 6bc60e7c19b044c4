"""Adapters in launches: what targets write, and what they refuse."""

from __future__ import annotations

import ast
from dataclasses import replace

import pytest

from holmes_sim import exporters
from planner.space.runnable import recomputes_blocks
from sim.errors import NotModelled
from sim.plan.islands import check_exchanged
from sim.workload.adapter import Adapter
from tests import builders
from tests.planner.builders import on_one_cluster

LLAMA = {"mlp": "swiglu", "kv_heads": 8, "tied_embeddings": False}


def plan_with(adapter: Adapter, **values: object):
    plan = builders.plan(builders.fleet(builders.cluster("c", nodes=2, devices=2)), shape=LLAMA, seq_len=128, **values)
    workload = replace(plan.workload, adapter=adapter)
    return replace(plan, workload=workload, topology=replace(plan.topology, workload=workload))


def refusals(name: str, adapter: Adapter, **values: object) -> list[str]:
    return [text for text in exporters.unsupported(name, plan_with(adapter, **values)) if text.startswith("adapter")]


@pytest.mark.parametrize("name", exporters.names())
def test_who_refuses_adapters(name: str) -> None:
    expected = ["adapter: it trains all weights; leave it out, or a target with LoRA (megatron, torchtitan, deepspeed)"]
    assert refusals(name, Adapter(16)) == (expected if name in ("flagscale", "holmes") else [])


@pytest.mark.parametrize("name", exporters.frameworks())
def test_who_refuses_four_bit_weights(name: str) -> None:
    expected = ["adapter.base_precision nf4: its base weights are not quantised; leave it out"]
    found = refusals(name, Adapter(16, base_precision="nf4"))
    assert found == {"megatron": expected, "torchtitan": expected, "deepspeed": []}.get(name, refusals(name, Adapter(16)))


def test_modules_that_are_one_in_a_target() -> None:
    queries = Adapter(8, ("q_proj", "up_proj"))
    assert refusals("megatron", queries) == [
        "adapter.target_modules without k_proj, v_proj: its linear_qkv is one module; k_proj, q_proj, v_proj together",
        "adapter.target_modules without gate_proj: its linear_fc1 is one module; gate_proj, up_proj together",
    ]
    assert refusals("torchtitan", queries) == []
    assert refusals("torchtitan", Adapter(8, ("k_proj",))) == [
        "adapter.target_modules without v_proj: its wkv is one module; k_proj, v_proj together"
    ]
    assert refusals("megatron", Adapter(6), tp=4) == ["adapter.r 6: tp 4 must divide it; a multiple of 4"]


def test_megatron_bridge_launches_alone() -> None:
    launch = exporters.get("megatron").launch(plan_with(Adapter(16, ("q_proj", "k_proj", "v_proj", "down_proj")), dp=2))
    assert "megatron.args" not in launch.files and not [name for name in launch.files if name.startswith("launch/")]
    assert launch.files["bridge-overrides.txt"].content.splitlines()[-3:] == [
        "peft.dim=16", "peft.target_modules=[linear_qkv,linear_fc2]", "peft.dropout=0.0",
    ]  # fmt: skip
    assert "--mode lora" in launch.how


def test_megatron_bridge_has_its_own_limits() -> None:
    assert refusals("megatron", Adapter(16), gradient_precision="bf16") == [
        "adapter: no mixed precision of Megatron-Bridge has precision bf16 with gradients in bf16: no overrides for it; all "
        "weights trained"
    ]


def test_torchtitan_converts_the_model() -> None:
    text = (
        exporters.get("torchtitan")
        .launch(plan_with(Adapter(16, ("q_proj", "o_proj", "gate_proj"))))
        .files["holmes_plan.py"]
        .content
    )
    assert 'LoRAConverter.Config(rank=16, alpha=32.0, target_modules=["wq", "wo", "w1"])' in text
    assert "fuse_qkv=False" in text and 'training.dtype = "bfloat16"' in text
    imported = [node.module for node in ast.parse(text).body if isinstance(node, ast.ImportFrom)]
    assert "torchtitan.components.lora" in imported


def test_deepspeed_writes_functions_of_peft_and_bitsandbytes() -> None:
    launch = exporters.get("deepspeed").launch(plan_with(Adapter(16, ("q_proj",), "nf4")))
    text = launch.files["holmes_plan.py"].content
    functions = {node.name: ast.unparse(node) for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}
    assert "LoraConfig(r=16, lora_alpha=32, lora_dropout=0.0, target_modules=['q_proj'])" in functions["adapted"]
    assert "bnb_4bit_quant_type='nf4', bnb_4bit_use_double_quant=True" in functions["quantisation"]
    assert any(line.startswith("The model is adapted(model) of a pretrained one, stored as nf4") for line in launch.assumed)


def test_blocks_are_recomputed_where_a_framework_of_the_workload_can() -> None:
    free = replace(on_one_cluster(), target=exporters.target("megatron"))
    own = replace(free.workload, adapter=Adapter(4, base_precision="nf4"))
    assert all(recomputes_blocks(free))
    assert all(recomputes_blocks(replace(free, target=None, workload=own)))
    assert recomputes_blocks(replace(free, target=exporters.target("deepspeed"), workload=own)) == (True, False)


def test_islands_exchange_adapters_but_not_by_powersgd() -> None:
    workload = plan_with(Adapter(4)).workload
    check_exchanged(workload, ("none", "int8", "top-k=1%"))
    with pytest.raises(NotModelled, match="adapter with powersgd: it is modelled for matrices of the model, not of adapters"):
        check_exchanged(workload, ("none", "powersgd=4"))
