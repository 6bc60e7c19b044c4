"""Payloads of communication: bytes of messages between stages, and payload and count of the collectives of a stage.

Bytes are those of one rank unless a docstring says otherwise. `layers`, `first` and `last` describe a stage: its number of
layers, and whether it holds the input embedding or the head.
"""

from __future__ import annotations

from sim.kernels import key_gathers, memory
from sim.kernels.casts import GATHERED
from sim.kernels.input_sums import further_scatters, further_sums
from sim.kernels.recomputation import stops_early
from sim.kernels.ring_copies import SINGLE
from sim.kernels.sequence_copies import scatters_sums
from sim.plan.amax import shares_amax
from sim.plan.context_parallelism import head_ranks, ring_ranks
from sim.plan.expert_parallelism import EXPOSED
from sim.plan.parallel_config import GRADIENT_BYTES, ParallelConfig
from sim.units import Bytes
from sim.workload.workload import Workload

BUCKET_PARAMETERS = 40e6
"""Parameters of one gradient bucket: Megatron-LM's default, max(40 million, 1 million x dp) (megatron/core/distributed)."""

SCATTERED_PARTS = 4
"""Parts into which a product of a forward and the scatter of its result are cut, where they overlap: a part is scattered while
the next one is computed, the last one after all (Transformer Engine, initialize_ub of pytorch/module/base.py: method "pipeline"
of proj_fprop and fc2_fprop, num_splits 4)."""
GATHERED_TWICE = ("mxfp8", "nvfp4")
"""Precisions with a copy along rows and one along columns. Of the gradient of a result both are gathered, for the gradients of
the input and of the weight (grad_output_preprocess of pytorch/module/base.py; _all_gather_mxfp8 and _all_gather_nvfp4); beside
products one after the other (pytorch/module/linear.py, bulk_overlap_ag_with_external_gemm). Of an input, a forward gathers one
and a backward the other; of fp8 there is one, which is transposed."""
LARGEST_BYTES = 4
"""Bytes of the largest value of a part of a tensor. With current scaling, ranks that gather a tensor in fp8 find the largest of
these before they cast: of inputs of products, and of gradients of results (NVIDIA/TransformerEngine d0067d0d
pytorch/module/linear.py and layernorm_linear.py, set_quantizer_amax_reduction_group)."""
AMAX_BYTES = (4.0 * 3 * 4, 4.0 * 4)
"""Bytes of the largest values of a layer's tensors that a (forward, backward) shares."""
TAKEN = 0.15
"""Seconds that a product takes longer for each second of a collective beside it that needs multiprocessors, as for gradients
over NVLink (calculon-ai/calculon systems/a100_80g.json); NeMo's configurations give it 2 to 32 of 132 (NVIDIA/NeMo 0594a700,
recipes/tp_overlap_configs/userbuffers.py). Gathers around a ring need none: copy engines do them (use_ce)."""


def message_bytes(workload: Workload, config: ParallelConfig, parts: int = 0) -> Bytes:
    """Activations that one tensor-parallel rank sends to one peer of the next stage: 1/tp of the activations.

    parts: where stages differ, the larger tp of both, times the larger number of ranks that divide the samples of a microbatch
    (`ParallelConfig.split_of`). A rank of a narrower stage has several peers (`ParallelConfig.peers`), each of which gets its
    own slice of its own samples. With sequence parallelism that is all the rank has; without it, the receivers gather the
    slices (`gathered_bytes`), or each rank sends all of them to its peer (`ParallelConfig.whole_messages`).
    """
    copies = config.tp if config.whole_messages and not config.sequence_parallel else 1
    return activation_bytes(workload, config) * copies / (parts or config.tp)


def activation_bytes(workload: Workload, config: ParallelConfig) -> Bytes:
    """Activations of one microbatch between two layers for one cp rank's part of the sequence, all tp ranks together."""
    tokens = config.microbatch_size * workload.seq_len / config.cp
    return tokens * workload.model.hidden * workload.bytes_per_value


def gathered_bytes(workload: Workload, config: ParallelConfig) -> Bytes:
    """Payload of the all_gather of tensor-parallel ranks after each received message; 0 where no gather is needed.

    All ranks of a tensor-parallel group hold the same activations, so each sends 1/tp of them, and the receivers gather them
    inside the node (Narayanan et al., arXiv 2104.04473, section 4.1; DeepSpeed's PartitionedTensor).
    """
    sliced = config.tp > 1 and config.pp > 1 and not config.sequence_parallel and not config.whole_messages
    return activation_bytes(workload, config) if sliced else 0.0


def tensor_collectives(
    workload: Workload, config: ParallelConfig, layers: int, first: bool, last: bool, backward: bool
) -> tuple[tuple[str, Bytes, float], ...]:
    """(operation, payload, count) of the tensor-parallel collectives of one microbatch on one stage.

    Two all_reduces a layer and direction (Shoeybi et al., arXiv 1909.08053, section 3), and `further_sums`, or an all_gather
    and a reduce_scatter in place of each with sequence parallelism (arXiv 2205.05198, section 4.2.2; the second gather of its
    backward hides behind the product for the input gradient), and `further_scatters`. Embedding and head add one each.
    Recomputation repeats the forward's (of the MLP alone, too), without a layer's last reduction if it stops early.
    With `tp_overlap` those of the layers run beside products (`sim.kernels.tensor_overlap`). Listed here is the last of
    `SCATTERED_PARTS` of each scatter of a forward, what others take from the products (`TAKEN`), and all of those of input
    gradients where they are sums (`sim.kernels.sequence_copies`). With `tp_backward_overlap`
    alone the scatters of input gradients do, and what they take is listed. With `current_scaling` ranks look for the largest
    value of what they gather in fp8, one tensor after the other. Experts have collectives
    of their own (`expert_collectives`) in place of the MLP's; those over the tp group are listed here, and do not overlap."""
    if config.tp == 1:
        return ()
    payload = activation_bytes(workload, config)
    heads = 1 + workload.model.mtp_layers
    ends = int(first and not backward) + heads * int(last and backward)
    rounds, own_rounds, left_out, further = 0, 0, 0, 0
    routed: list[tuple[str, Bytes, float]] = []
    for number, alike in workload.of_stage(layers, first, last).alike(layers):
        again, mlp = repeated(alike, config, number, backward)
        left_out += mlp if stops_early(alike, config) else 0
        further += number * (further_sums(alike, config) + sum(further_scatters(alike, config))) if backward else 0
        once, mlp = number + again, number + mlp
        own = alike.model.experts and not alike.model.shared_ffn_hidden and config.sequence_parallel
        rounds += once if own else once + mlp
        own_rounds += number if own else 2 * number
        if alike.model.experts and not config.etp:
            routed += _gathered_tokens(alike, config, mlp)
    if not config.sequence_parallel:
        return (("all_reduce", payload, float(rounds + ends - left_out + further)),)
    twice = own_rounds if backward and workload.precision in GATHERED_TWICE else 0
    gathers, scattered = float(rounds + twice), float(rounds - left_out + further)
    if backward and scatters_beside_weights(config):
        scattered -= (1 - TAKEN) * own_rounds
    if config.tp_overlap:
        gathers, of_backward = (own_rounds * TAKEN, own_rounds) if backward else (0.0, 0)
        alone = of_backward if scatters_sums(config) else 0
        last_parts = (scattered - of_backward) / SCATTERED_PARTS
        scattered = alone + last_parts + TAKEN * (scattered - alone - last_parts)
    scatters = ("reduce_scatter", payload, scattered + ends)
    others = float(heads * int(last and not backward) + int(first and backward))
    narrow = gathered_activations(workload, config)
    if narrow == payload:
        return (("all_gather", payload, gathers + others), scatters, *routed)
    if config.current_scaling and workload.precision == "fp8":
        routed.append(("all_reduce", LARGEST_BYTES, float(rounds)))
    return (("all_gather", narrow, gathers), *((("all_gather", payload, others),) if others else ()), scatters, *routed)


def scatters_beside_weights(config: ParallelConfig) -> bool:
    """Whether each input gradient of a layer that tensor-parallel ranks sum is scattered beside the product of the weight
    gradient that follows (`tp_backward_overlap`), which needs sequence parallelism. Where a schedule defers weight gradients,
    it is taken to find one of another microbatch, so that no schedule costs less than those (`planner.space.shape`)."""
    return config.tp_backward_overlap and not config.tp_overlap and config.sequence_parallel and config.tp > 1


def gathered_activations(workload: Workload, config: ParallelConfig) -> Bytes:
    """`activation_bytes` as tensor-parallel ranks gather them for the products of layers: under fp8 and less they are quantised
    before (`GATHERED`). Results are scattered as they are."""
    whole = activation_bytes(workload, config)
    return whole / workload.bytes_per_value * GATHERED.get(workload.precision, workload.bytes_per_value)


def repeated(workload: Workload, config: ParallelConfig, layers: int, backward: bool) -> tuple[int, int]:
    """(attentions, MLPs) of layers that are alike whose forward, with its collectives, runs again in a backward."""
    again = config.recomputed(layers) if backward else 0
    return again, layers if backward and config.repeats_mlp(workload.model.experts) else again


def ring_exchanges(
    workload: Workload, config: ParallelConfig, layers: int, backward: bool
) -> tuple[tuple[str, Bytes, float], ...]:
    """("F", "B" or "R", payload, count) of the exchanges among cp ranks of one microbatch on one stage.

    In a forward every rank's keys and values pass once around the ring (Liu et al., arXiv 2310.01889), in a backward their
    gradients as well. The payload is that of all cp ranks together. Full recomputation repeats the forward's exchange ("R").
    With `gathered_keys` there is a head of keys and values for each of queries, and gradients travel once more, in fp32
    (`sim.kernels.ring_copies`); a gather sends as many bytes as a ring. Ranks that divide heads have rings of
    their own.
    """
    if (ranks := ring_ranks(config)) == 1:
        return ()
    model, tokens, back = workload.model, config.microbatch_size * workload.seq_len, 1.0
    width = max(model.key_value_size / config.tp / head_ranks(config), model.head_dim + model.v_head_dim)
    if config.gathered_keys:
        width = model.heads / config.tp * (model.head_dim + model.v_head_dim)
        back = SINGLE / workload.bytes_per_value * ranks / (ranks - 1)
    payload = tokens * width * workload.bytes_per_value
    layers = sum(number for number, _ in workload.alike(layers))
    if not backward:
        return (("F", payload, float(layers)),)
    again = config.recomputed(layers)
    recomputed = (("R", payload, float(again)),) if again else ()
    return (*recomputed, ("B", (1 + back) * payload, float(layers)))


def layer_collectives(
    workload: Workload, config: ParallelConfig, layers: int, backward: bool, stages: int = 1
) -> tuple[tuple[str, str, Bytes, float], ...]:
    """(kind of group, operation, payload, count) of the collectives of one microbatch on one stage that its layers wait for,
    other than those of tensor parallelism.

    Under Ulysses four all_to_alls a layer and direction (queries, keys, values, results) give a rank all tokens of its share of
    the heads (arXiv 2309.14509, section 3.2); key and value heads are copied where there are fewer of them than ranks. They
    are counted as two of half the bytes of all four.

    With `amax_reduction` and one scale for each tensor (fp8), a pass of a stage ends with an all_reduce of the largest values
    of its tensors (reduce_and_update_fp8_tensors of Transformer Engine v2.2.1, pytorch/fp8.py, after an autocast and in a
    backward): 4 bytes each of input, weight and result of four products a layer, in a backward of gradients of results. The
    step inside nodes among tensor-parallel ranks is left out. Counted by layers: a rank has one for each of its stages,
    `stages` times as many as `config` says."""
    experts = expert_collectives(workload, config, layers, backward)
    if shares_amax(config) and workload.precision == "fp8":
        share = layers * config.num_stages * stages / workload.model.layers
        experts = (("dp", "all_reduce", AMAX_BYTES[backward] * layers / share, share), *experts) if layers else experts
    if (ranks := head_ranks(config)) == 1:
        return (*key_gathers.collectives(workload, config, layers, backward), *experts)
    model, tokens = workload.model, config.microbatch_size * workload.seq_len / config.cp
    copied = max(model.key_value_size / config.tp, ranks * (model.head_dim + model.v_head_dim))
    width = (model.query_size + model.value_size) / config.tp + copied
    times = sum(number + repeated(one, config, number, backward)[0] for number, one in workload.alike(layers))
    return (("cp", "all_to_all", tokens * width * workload.bytes_per_value / 2, 2.0 * times), *experts)


def expert_collectives(
    workload: Workload, config: ParallelConfig, layers: int, backward: bool
) -> tuple[tuple[str, str, Bytes, float], ...]:
    """(kind of group, operation, payload, count) of the collectives of one microbatch on one stage around routed experts.

    A rank's tokens go to the experts they chose and come back: two all_to_all a layer and direction of tokens x experts per
    token x hidden values (Lepikhin et al., arXiv 2006.16668, section 3; the alltoall dispatcher of Megatron-Core). Other
    dispatchers send fewer copies (`ParallelConfig.copies`), or gather all tokens and scatter the sums. The rank with most
    tokens decides how long an all_to_all takes (`load`: padding travels like tokens), or the busiest link under a placement of
    the experts (`exchange`). With sequence parallelism the tokens are this rank's slice of the sequence. The ranks that divide
    an expert gather the tokens that were dispatched to them, and scatter the sums; where etp is tp, that is part of
    `tensor_collectives`. Recomputation repeats the forward's. What `sim.kernels.beside` has is not listed here.
    """
    exposed = EXPOSED if config.overlap_expert_communication else 1.0
    found: list[tuple[str, str, Bytes, float]] = []
    for number, alike in workload.alike(layers):
        if not alike.model.experts:
            continue
        mlp = number + repeated(alike, config, number, backward)[1]
        sent = routed_bytes(alike, config)
        if config.ep > 1 and config.dispatcher == "allgather":
            found += [("ep", operation, sent, exposed * mlp) for operation in ("all_gather", "reduce_scatter")]
        elif config.ep > 1 and not hides_exchange(alike, config) and not config.overlaps_from_host:
            found.append(("ep", "all_to_all", sent * config.exchange_factor, 2.0 * exposed * mlp))
        if config.etp and config.etp > 1:
            found += [("etp", *one) for one in _gathered_tokens(alike, config, mlp)]
    return tuple(found)


def hides_exchange(workload: Workload, config: ParallelConfig) -> bool:
    """Whether layers like those of a workload compute shared experts beside the exchange of tokens (`sim.kernels.beside`)."""
    return config.overlap_shared_experts and config.ep > 1 and workload.model.shared_ffn_hidden > 0


def routed_bytes(workload: Workload, config: ParallelConfig) -> Bytes:
    """Activations of the tokens that one rank routes, as many copies as it sends; with one ep rank, one for each expert."""
    slices, model = config.tp if config.sequence_parallel else 1, workload.model
    chosen = model.experts_per_token
    copies = config.copies(model.experts, chosen, model.n_group, model.topk_group) if config.ep > 1 else chosen
    return activation_bytes(workload, config) / slices * copies


def _gathered_tokens(workload: Workload, config: ParallelConfig, times: int) -> tuple[tuple[str, Bytes, float], ...]:
    """(operation, payload, count) of the gathers and scatters of tokens among the ranks that divide an expert."""
    payload = routed_bytes(workload, config) * config.expert_tp * config.load
    return ("all_gather", payload, float(times)), ("reduce_scatter", payload, float(times))


def buckets(workload: Workload, config: ParallelConfig, layers: int, first: bool, last: bool) -> int:
    """Number of gradient buckets of one stage: at most one a layer, so that each follows a layer's backward; FSDP: one each."""
    return buckets_of(memory.stage_parameters(workload, config, layers, first, last), config, layers)


def buckets_of(parameters: float, config: ParallelConfig, layers: int) -> int:
    """`buckets` of a stage with so many parameters that have gradients."""
    if config.shards_parameters:
        return max(1, layers)
    return max(1, min(layers, round(parameters / max(BUCKET_PARAMETERS, 1e6 * config.gradient_ranks))))


def gradient_bytes(
    workload: Workload, config: ParallelConfig, layers: int, first: bool, last: bool
) -> tuple[tuple[str, Bytes], ...]:
    """(kind of group, bytes) of the gradients of a stage that one rank reduces over each group."""
    width = GRADIENT_BYTES[config.gradient_precision]
    held = memory.by_sharing(workload, config, layers, first, last)
    return tuple((group, parameters * width) for group, parameters, sharing in held if sharing > 1 and parameters)


def parameter_bytes(
    workload: Workload, config: ParallelConfig, layers: int, first: bool, last: bool
) -> tuple[tuple[str, Bytes], ...]:
    """(kind of group, bytes) of the weights of a stage that one rank gathers over each group: 1 byte for each weight that is
    gathered in fp8 (`memory.fp8_parameters`), and the bytes of a value for each other one. Frozen weights are gathered by
    ZeRO 3 only, as they are stored."""
    held = memory.by_sharing(workload, config, layers, first, last)
    narrow = memory.fp8_parameters(workload.of_stage(layers, first, last), config, layers)
    width = workload.bytes_per_value
    frozen = memory.frozen_bytes(workload, config, layers, first, last) if config.shards_parameters else 0.0
    return tuple(
        (group, parameters * width - narrow.get(group, 0.0) * (width - 1) + frozen)
        for group, parameters, sharing in held
        if sharing > 1 and (parameters or frozen)
    )


def tied_bytes(workload: Workload, config: ParallelConfig, head: int = -1) -> Bytes:
    """Gradient of a tied embedding that a rank of the first stage and one of the head's stage all_reduce: all that both hold,
    or the rank's shard (`ParallelConfig.tied_shards`); 0 with one stage, or an untied or frozen embedding. `head`: the head's
    stage."""
    if config.pp == 1 or not workload.model.tied_embeddings or workload.adapter is not None:
        return 0.0
    parameters = (
        workload.model.vocab
        * workload.model.hidden
        / max(config.tp_of(0), config.tp_of(config.rank_of(head) if head >= 0 else config.pp - 1))
    )
    shards = config.zero_shard_size or config.dp_cp_of(0)
    return parameters / (shards if config.tied_shards else 1) * GRADIENT_BYTES[config.gradient_precision]
