"""A launch of Megatron-LM as a job: degrees, batch, model, precision, and what is not modelled."""

from __future__ import annotations

import pytest

from holmes_sim import launch_readers
from holmes_sim.launch_reading.given import Given, variables
from sim.errors import HolmesError
from sim.formats import catalog

ALLTOALL = "--num-experts 8 --moe-token-dispatcher-type alltoall"
MODEL = """\
--num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 --group-query-attention
--num-query-groups 8 --swiglu --position-embedding-type rope --untie-embeddings-and-output-weights --vocab-size 128256
--seq-length 4096 --micro-batch-size 2 --global-batch-size 64 --bf16
"""
SCRIPT = """\
#!/bin/bash
#SBATCH --nodes=4
#SBATCH --gres=gpu:h100:8
TP=2
ARGS=(
    --tensor-model-parallel-size $TP
    --pipeline-model-parallel-size 4
    --num-layers-per-virtual-pipeline-stage 2
    --sequence-parallel
    --use-distributed-optimizer --overlap-grad-reduce
    --recompute-granularity full --recompute-method block --recompute-num-layers 3
    --lr 1e-4 --save $CHECKPOINTS  # no step time depends on these
    --cpu-offloading-num-layers 2
    --micro-batch-size $MBS
"""


def job(tmp_path, text, model=None, **given):
    path = tmp_path / "launch.sh"
    path.write_text(text, encoding="utf-8")
    return launch_readers.read(path, Given(given, model))


def test_a_text_of_arguments(tmp_path):
    found = job(tmp_path, MODEL)
    assert (found.target, found.global_batch_size, found.seq_len, found.precision) == ("megatron", 64, 4096, "bf16")
    assert {key: found.config[key] for key in ("tp", "pp", "cp", "vpp", "schedule", "zero_stage", "microbatch_size")} == {
        "tp": 1, "pp": 1, "cp": 1, "vpp": 1, "schedule": "1f1b", "zero_stage": 0, "microbatch_size": 2,
    }  # fmt: skip
    assert (found.model.name, found.model.parameters) == ("llama-3-8b", catalog.model("llama-3-8b").parameters)
    assert (found.devices, found.not_modelled, found.assumed) == (0, (), ())


def test_a_slurm_script(tmp_path):
    found = job(tmp_path, SCRIPT + MODEL + ")\nsrun python pretrain_gpt.py ${ARGS[@]}\n", MBS="1")
    assert found.devices == 32
    assert (found.config["tp"], found.config["pp"], found.config["vpp"], found.config["schedule"]) == (2, 4, 4, "interleaved")
    assert (
        found.config["sequence_parallel"] and found.config["overlap_grad_reduce"] and not found.config["overlap_param_gather"]
    )
    assert (found.config["recompute"], found.config["recompute_layers"], found.config["zero_stage"]) == ("full", (3,), 1)
    assert [line.split("launch.sh:")[1] for line in found.not_modelled] == ["13: --cpu-offloading-num-layers 2"]


def test_numbers_of_torchrun_count_before_those_of_slurm(tmp_path):
    text = f"#SBATCH -N 4\nN=2\ntorchrun --nnodes $N --nproc_per_node 8 pretrain_gpt.py {MODEL.replace(chr(10), ' ')}"
    assert job(tmp_path, text).devices == 16
    assert job(tmp_path, text, N="8").devices == 64


@pytest.mark.parametrize(
    ("more", "key", "value"),
    [
        ("--context-parallel-size 2 --cp-comm-type a2a", "cp_algo", "ulysses"),
        ("--context-parallel-size 2 --cp-comm-type all_gather", "cp_algo", "all_gather"),
        ("--context-parallel-size 8 --cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes 4 2", "cp_algo", "hybrid"),
        ("--recompute-activations", "recompute", "selective"),
        ("--recompute-granularity selective --recompute-modules mlp layernorm", "recompute_modules", ("mlp", "layernorm")),
        ("--optimizer-cpu-offload --use-precision-aware-optimizer", "offload", ("optimizer",)),
        ("--grad-reduce-in-bf16", "gradient_precision", "bf16"),
        ("--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params", "zero_stage", 3),
        ("--use-megatron-fsdp", "zero_stage", 3),
        ("--use-megatron-fsdp --data-parallel-sharding-strategy optim", "zero_stage", 1),
        ("--use-megatron-fsdp --data-parallel-sharding-strategy no_shard --use-distributed-optimizer", "zero_stage", 0),
        ("--data-parallel-sharding-strategy optim_grads --use-distributed-optimizer", "zero_stage", 1),
        ("--use-megatron-fsdp", "gradient_precision", "bf16"),
        ("--use-megatron-fsdp --megatron-fsdp-main-grads-dtype fp32", "gradient_precision", "fp32"),
        ("--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads", "overlap_grad_reduce", True),
        ("--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads", "overlap_param_gather", False),
        ("--use-megatron-fsdp", "overlap_param_gather", True),
        ("--attention-backend unfused", "attention", "unfused"),
        ("--sequence-parallel --tp-comm-overlap", "own_tp_overlap", True),
        ("--sequence-parallel", "own_tp_overlap", False),
        ("--num-experts 8 --expert-model-parallel-size 8", "ep", 8),
        ("--num-experts 8 --moe-token-dispatcher-type flex --moe-flex-dispatcher-backend hybridep", "dispatcher", "hybridep"),
        ("--num-experts 8 --moe-expert-capacity-factor 1.25", "capacity_factor", 1.25),
        (f"{ALLTOALL} --moe-shared-expert-intermediate-size 1024 --moe-shared-expert-overlap", "overlap_shared_experts", True),
        (f"{ALLTOALL} --moe-shared-expert-overlap", "overlap_shared_experts", False),
        ("--num-experts 8 --moe-expert-capacity-factor 2 --moe-pad-expert-input-to-capacity", "pad_to_capacity", True),
    ],
)
def test_flags_of_the_configuration(tmp_path, more, key, value):
    assert job(tmp_path, MODEL + more).config[key] == value


@pytest.mark.parametrize(
    ("more", "left"),
    [
        ("--megatron-fsdp-main-grads-dtype fp32 --megatron-fsdp-grad-comm-dtype auto", []),
        (
            "--megatron-fsdp-main-grads-dtype fp32 --megatron-fsdp-grad-comm-dtype bf16",
            ["--megatron-fsdp-grad-comm-dtype bf16"],
        ),
        ("--outer-dp-sharding-strategy no_shard", []),
        ("--outer-dp-sharding-strategy optim", ["--outer-dp-sharding-strategy optim"]),
        ("--fsdp-double-buffer", ["--fsdp-double-buffer"]),
    ],
)
def test_what_of_megatron_fsdp_is_not_modelled(tmp_path, more, left):
    found = job(tmp_path, f"{MODEL}--use-megatron-fsdp --use-distributed-optimizer --ckpt-format fsdp_dtensor {more}")
    assert [line.partition(": ")[2] for line in found.not_modelled] == left


def test_how_far_ahead_megatron_fsdp_gathers_is_assumed(tmp_path):
    found = job(tmp_path, f"{MODEL}--use-megatron-fsdp --suggested-communication-unit-size 500000000")
    assert found.assumed == (
        "--suggested-communication-unit-size 500000000: weights of two layers are gathered ahead, and any number of gradients "
        "waits",
    )


def test_an_unknown_strategy_of_megatron_fsdp(tmp_path):
    what = "zero3 is unknown; known: no_shard, optim, optim_grads, optim_grads_params"
    with pytest.raises(HolmesError, match=f"launch.sh:4: --data-parallel-sharding-strategy: {what}"):
        job(tmp_path, f"{MODEL}--use-megatron-fsdp --data-parallel-sharding-strategy zero3")


def test_levels_of_context_parallelism_are_assumed_to_be_those_of_nodes(tmp_path):
    both = "--context-parallel-size 8 --cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes 4 2"
    found = job(tmp_path, MODEL + both)
    assert found.not_modelled == ()
    assert found.assumed[-1] == (
        "--hierarchical-context-parallel-sizes 4 2: ranks on one node exchange heads, ranks of several nodes keys"
    )


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("--cp-comm-type a2b", "cp-comm-type: a2b is unknown; known: p2p, a2a, all_gather, a2a.p2p"),
        ("--cp-comm-type a2a+p2p",
         "cp-comm-type: a2a.p2p: two numbers whose product is the context-parallel size, 8, are expected"),
        ("--cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes 4 4",
         "hierarchical-context-parallel-sizes: 4 4: two numbers whose product is the context-parallel size, 8, are expected"),
    ],
)  # fmt: skip
def test_wrong_exchanges_of_context_parallelism(tmp_path, more, message):
    with pytest.raises(HolmesError, match=f"launch.sh:[0-9]+: --{message}"):
        job(tmp_path, f"{MODEL} --context-parallel-size 8 {more}")


def test_a_negative_capacity_factor_drops_no_token(tmp_path):
    """transformer_config.py replaces it by None."""
    found = job(tmp_path, f"{MODEL} --num-experts 8 --moe-expert-capacity-factor -1.0 --moe-token-drop-policy position")
    assert "capacity_factor" not in found.config
    assert found.not_modelled == ()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("--moe-expert-capacity-factor much",
         "moe-expert-capacity-factor: much: a number above 0 is expected here, such as 1.1"),
        ("--moe-pad-expert-input-to-capacity",
         "moe-pad-expert-input-to-capacity: it needs --moe-expert-capacity-factor, such as 1.1"),
    ],
)  # fmt: skip
def test_wrong_capacities(tmp_path, more, message):
    with pytest.raises(HolmesError, match=f"launch.sh:4: --{message}"):
        job(tmp_path, f"{MODEL}--num-experts 8 {more}")


def test_a_part_of_the_optimizer_state_on_the_host_is_not_modelled(tmp_path):
    text = f"{MODEL}--optimizer-cpu-offload --optimizer-offload-fraction "
    whole, part = (job(tmp_path, f"{text}{share}\n--use-precision-aware-optimizer") for share in ("1.0", "0.5"))
    assert (whole.config["offload"], whole.not_modelled) == (("optimizer",), ())
    assert "offload" not in part.config
    assert [line.split("launch.sh:")[1] for line in part.not_modelled] == [
        "4: --optimizer-cpu-offload", "4: --optimizer-offload-fraction 0.5", "5: --use-precision-aware-optimizer",
    ]  # fmt: skip


@pytest.mark.parametrize(("layers", "kept"), [(31, ("optimizer", "activations")), (30, ("optimizer",))])
def test_activations_of_all_layers_but_the_last_are_on_the_host(tmp_path, layers, kept):
    text = f"{MODEL}--optimizer-cpu-offload --use-precision-aware-optimizer --cpu-offloading-num-layers {layers}"
    found = job(tmp_path, text)
    assert found.config["offload"] == kept


@pytest.mark.parametrize(
    ("more", "precision"), [("--fp8-format hybrid", "fp8"), ("--fp8-format e4m3 --fp8-recipe mxfp8", "mxfp8")]
)
def test_narrow_precisions_are_beside_bf16(tmp_path, more, precision):
    assert job(tmp_path, MODEL + more).precision == precision


def test_scales_of_fp8_are_those_of_the_topologys_stack(tmp_path):
    delayed, current, blocks = (
        job(tmp_path, f"{MODEL} --fp8-format hybrid --fp8-recipe {recipe}") for recipe in ("delayed", "tensorwise", "blockwise")
    )
    assert (delayed.assumed, delayed.not_modelled, current.not_modelled) == (blocks.assumed, (), ())
    assert current.assumed[len(delayed.assumed) :] == (
        "--fp8-recipe tensorwise: casts read each tensor twice if the topology's stack says current_scaling, once if not",
    )
    assert [line.split("launch.sh:")[1].split(" ", 1)[1] for line in blocks.not_modelled] == ["--fp8-recipe blockwise"]


@pytest.mark.parametrize(
    ("more", "layers", "vpp"),
    [
        ("--pipeline-model-parallel-layout Et*7|t*9|t*9|t*7L", (7, 9, 9, 7), 1),
        ("--pipeline-model-parallel-layout E(tt)*2|t*4|t*4|t*4|t*4|t*4|t*4|t*4L", (4,) * 8, 2),
        ("--decoder-first-pipeline-num-layers 5 --decoder-last-pipeline-num-layers 7", (5, 10, 10, 7), 1),
        ("--num-virtual-stages-per-pipeline-rank 2", (), 2),
    ],
)
def test_stages(tmp_path, more, layers, vpp):
    found = job(tmp_path, f"{MODEL} --pipeline-model-parallel-size 4 {more}")
    assert (found.layers, found.config["vpp"]) == (layers, vpp)


def test_a_mixture_with_dense_layers_and_latent_attention(tmp_path):
    text = (
        "--num-layers 61 --hidden-size 7168 --ffn-hidden-size 18432 --num-attention-heads 128 --num-experts 256 "
        "--moe-router-topk 8 --moe-ffn-hidden-size 2048 --moe-shared-expert-intermediate-size 2048 --kv-channels 128 "
        "--moe-layer-freq ([0]*3+[1]*58) --multi-latent-attention --q-lora-rank 1536 --kv-lora-rank 512 --swiglu "
        "--mtp-num-layers 1 --position-embedding-type rope --untie-embeddings-and-output-weights --vocab-size 129280 "
        "--make-vocab-size-divisible-by 1 --seq-length 4096 --micro-batch-size 1 --tensor-model-parallel-size 1 --bf16"
    )
    found = job(tmp_path, text)
    assert found.model.name == "deepseek-v3"
    assert found.model.parameters == catalog.model("deepseek-v3").parameters
    limits = {"": (1, 1), "--moe-router-num-groups 8": (1, 1), "--moe-router-num-groups 8 --moe-router-group-topk 4": (8, 4)}
    for more, groups in limits.items():
        model, faults = (found := job(tmp_path, f"{text} {more}")).model, found.not_modelled
        assert ((model.n_group, model.topk_group), faults) == (groups, ()), "no limit without a number of chosen groups"
    assert found.global_batch_size is None


@pytest.mark.parametrize(("kind", "sinks"), [("learnable", True), ("off-by-one", False), ("vanilla", False)])
def test_a_learnable_softmax_has_sinks(tmp_path, kind, sinks):
    found = job(tmp_path, f"{MODEL} --softmax-type {kind}")
    assert (found.model.attention_sinks, found.not_modelled) == (sinks, ())


def test_an_unknown_vocabulary_is_that_of_the_same_model_in_the_catalogue(tmp_path):
    found = job(tmp_path, MODEL.replace("--vocab-size 128256", "--tokenizer-type HuggingFaceTokenizer"))
    assert (found.model.vocab, found.assumed) == (
        128256,
        ("vocabulary of 128256 tokens: that of llama-3-8b, with these layers",),
    )


def test_a_given_model_replaces_the_shape(tmp_path):
    found = job(tmp_path, MODEL.replace("--hidden-size 4096", "--hidden-size $H"), catalog.model("llama-2-7b"))
    assert (found.model.name, found.not_modelled) == ("llama-2-7b", ())


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (MODEL.replace("--micro-batch-size 2", "--micro-batch-size $MBS"),
         "launch.sh:3: --micro-batch-size: $MBS: variable MBS has no value; give it with --var MBS=VALUE"),
        (MODEL + "--tensor-model-parallel-size two",
         "launch.sh:4: --tensor-model-parallel-size: two: a whole number of at least 1 is expected here"),
        (MODEL.replace("--seq-length 4096 ", ""), "launch.sh: --seq-length is missing; write for example --seq-length 1"),
        (MODEL.replace("--vocab-size 128256", "").replace("--num-layers 32", "--num-layers 31"),
         "launch.sh: the launch does not say the vocabulary; give --vocab-size there, or the model by --model"),
        (MODEL + "--pipeline-model-parallel-size 4 --pipeline-model-parallel-layout Et*7|t*9|t*9|t*8L",
         "launch.sh:4: --pipeline-model-parallel-layout: Et*7|t*9|t*9|t*8L: 33 layers on 4 stages; expected are 32 on a "
         "multiple of pp 4"),
        (MODEL + "--use-tp-pp-dp-mapping",
         "launch.sh:4: --use-tp-pp-dp-mapping: only the default order of ranks, tp-cp-ep-dp-pp, is modelled"),
        ("sbatch other.sh # --num-layers",
         "launch.sh: no command with flags of Megatron-LM; their text alone, one flag a line, is read too"),
        ("hello", "launch.sh: no launch that is known; expected is one of: Megatron-LM arguments, alone or in a shell or Slurm "
         "script, torchtitan TOML"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_line(tmp_path, text, fault):
    with pytest.raises(HolmesError) as caught:
        job(tmp_path, text)
    assert str(caught.value) == f"{tmp_path}/{fault}"


def test_another_word_than_a_variable_is_refused():
    assert variables(["TP=8", "ARGS=--x 1"]) == {"TP": "8", "ARGS": "--x 1"}
    with pytest.raises(HolmesError, match="--var 'TP' should be NAME=VALUE, such as TP=8"):
        variables(["TP"])


@pytest.mark.parametrize(
    ("flags", "optimizer", "left"),
    [
        ("", "adam", 0),
        ("--use-precision-aware-optimizer --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16", "adam-bf16-moments", 0),
        ("--use-precision-aware-optimizer --exp-avg-dtype fp8 --exp-avg-sq-dtype fp8", "adam", 3),
    ],
)
def test_the_precision_of_moments(tmp_path, flags, optimizer, left):
    found = job(tmp_path, MODEL + flags)
    assert (found.optimizer, len(found.not_modelled)) == (optimizer, left)


def test_experts_without_grouped_products_are_told(tmp_path):
    """Eight experts on four ranks: two of them are on each rank, and run one after the other without --moe-grouped-gemm."""
    launch = f"torchrun --nproc-per-node 4 pretrain_gpt.py {MODEL.replace(chr(10), ' ')} --moe-router-topk 2 {ALLTOALL}"
    told = "no --moe-grouped-gemm: the experts of a rank run one after the other, which takes longer than is counted here"
    assert told in job(tmp_path, f"{launch} --expert-model-parallel-size 4").assumed
    assert told not in job(tmp_path, f"{launch} --expert-model-parallel-size 4 --moe-grouped-gemm").assumed
    assert told not in job(tmp_path, launch.replace(ALLTOALL, "")).assumed
