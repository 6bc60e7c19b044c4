"""prime: its configuration and scripts, its models, and what is refused."""

from __future__ import annotations

import tomllib
from dataclasses import replace

import pytest

from holmes_sim import exporters
from holmes_sim.exporters import prime
from holmes_sim.launching import prime_models
from sim.plan.islands import IslandsPrediction
from sim.sync import Sync
from tests.island_plans import TEN, island, islands

INT8 = Sync("diloco", 100, compression="int8")


def files(plan):
    assert list(exporters.unsupported_islands("prime", plan)) == []
    return {name: file.content for name, file in prime.islands_launch(plan).files.items()}


def test_the_configuration_of_an_island_of_intellect_1():
    text = files(islands(INT8, model=TEN, batch=128))["island1.toml"]
    assert text == (
        'name_model = "10B"\ntype_model = "llama3"\nproject = "two-sites"\n\n'
        "[train]\nmicro_bs = 1\nac_ckpt = true\nreshard_after_forward = true\nreduce_fp32 = true\n"
        'attn_fn = "flex"\n\n'
        "[optim]\nbatch_size = 128\n\n"
        "[data]\nseq_length = 2048\ndata_rank = 1\ndata_world_size = 2\n\n"
        '[diloco]\nouter_lr = 0.7\ninner_steps = 100\ncompression = "uint8"\n'
    )


def test_the_script_of_an_island():
    found = files(islands(model=TEN))
    assert sorted(found) == [
        "env/east-node0.env", "env/west-node0.env", "island0.toml", "island1.toml", "launch/east-node0.sh",
        "launch/west-node0.sh",
    ]  # fmt: skip
    assert found["launch/west-node0.sh"].splitlines()[4:] == [
        'source "$here"/env/west-node0.env',
        'export GLOBAL_ADDR="${GLOBAL_ADDR:-east-node0}"',
        'export GLOBAL_PORT="${GLOBAL_PORT:-5565}"',
        'export GLOBAL_WORLD_SIZE="${GLOBAL_WORLD_SIZE:-2}"',
        'export GLOBAL_RANK="${GLOBAL_RANK:-1}"',
        'export GLOBAL_UNIQUE_ID="${GLOBAL_UNIQUE_ID:-1}"',
        'exec torchrun --nnodes=1 --node-rank=0 --nproc-per-node=8 --rdzv-endpoint="localhost:${BASE_PORT:-10002}" '
        'src/zeroband/train.py @"$here"/island1.toml "$@"',
    ]


def test_an_island_alone_has_no_diloco():
    found = prime.launch(island("east", model=TEN, gradient_precision="bf16", recompute="none")).files
    config = tomllib.loads(found["prime.toml"].content)
    assert "diloco" not in config
    assert config["data"] == {"seq_length": 2048}
    assert config["train"]["ac_ckpt"] is config["train"]["reduce_fp32"] is False
    assert "GLOBAL" not in found["launch/east-node0.sh"].content


def test_weights_stay_gathered_under_zero_2_and_one_microbatch():
    found = prime.launch(island("east", model=TEN, zero_stage=2)).files["prime.toml"].content
    assert tomllib.loads(found)["train"]["reshard_after_forward"] is False


def test_whole_gradients_must_fit():
    """10B parameters: 4 bytes each less the eighth that ZeRO 3 keeps are 33.29 GiB."""
    plan = island("east", model=TEN, batch=16)
    assert any("33.29 GiB a device more" in line for line in prime.launch(plan).assumed)
    assert not any("GiB" in line for line in prime.launch(island("east", model=TEN)).assumed)
    large = island("east", model=TEN, batch=128, microbatch_size=8, recompute="none")
    (line,) = exporters.unsupported("prime", large)
    assert line.startswith("num_microbatches 2 with zero_stage 3: it keeps whole gradients, ")
    assert line.endswith(" of 79.2 GiB in all; one microbatch")


@pytest.mark.parametrize("shape", prime_models.SHAPES, ids=lambda shape: f"{shape.kind} {shape.name}")
def test_models_are_found_by_shape_and_vocabulary(shape):
    model = island("east").workload.model
    facts = {key: getattr(shape, key) for key in ("layers", "hidden", "heads", "kv_heads", "ffn_hidden")}
    own = replace(model, vocab=prime_models.VOCAB[shape.kind], head_dim=shape.hidden // shape.heads, v_head_dim=0, **facts)
    assert prime_models.shape_of(own) == shape
    assert prime_models.shape_of(replace(own, vocab=50257)) is None
    assert prime_models.shape_of(replace(own, tied_embeddings=True)) is None


def test_llama_3_8b_cannot_be_named():
    """get_model has it, name_model of config.py has not."""
    (line,) = exporters.unsupported("prime", island("east"))
    assert line.startswith("model llama-3-8b: it has models by name, with their tokenizer's vocabulary; llama2 70M, ")


@pytest.mark.parametrize(
    ("facts", "lines"),
    [
        ({"nodes": 2, "batch": 16}, ["hosts east-node0, east-node1: an island is one host; islands of one host each"]),
        ({"tp": 2, "dp": 4}, ["tp 2: it shards over the devices of a host and divides nothing else; tp 1"]),
        ({"zero_stage": 0}, ["zero_stage 0 with dp 8: fully_shard shards over all devices; --zero-stage 3"]),
        (
            {"zero_stage": 2, "batch": 16},
            ["zero_stage 2: it gathers weights for each microbatch; --zero-stage 3, or one microbatch"],
        ),
    ],
)
def test_what_prime_cannot_express_of_an_island(facts, lines):
    assert list(exporters.unsupported("prime", island("east", model=TEN, **facts))) == lines


@pytest.mark.parametrize(
    ("plan", "line"),
    [
        (islands(Sync("local-sgd", 10), model=TEN), "strategy local-sgd: its outer optimizer is that of DiLoCo; diloco"),
        (islands(Sync("diloco", 10, compression="fp16"), model=TEN), "compression fp16: it has uint8; none or int8"),
        (
            islands(Sync("diloco", 10, aggregation="median"), model=TEN),
            "aggregation median: it takes the mean of the islands; mean",
        ),
        (
            islands(model=TEN, west={"batch": 16}),
            "islands[1].global_batch_size 16: its mean does not weigh islands by their batches; 8, as in islands[0]",
        ),
        (
            islands(model=TEN).annotated(IslandsPrediction(4e3, (20.0, 30.0), 100.0, 100.0, (1000.0, 0.0), 1e5, 0.4)),
            "waiting of 1000 s: the first island goes on without the others after 600 s; islands of like speed, or fewer "
            "inner_steps",
        ),
    ],
)
def test_what_prime_cannot_express_of_islands(plan, line):
    assert list(exporters.unsupported_islands("prime", plan)) == [line]
