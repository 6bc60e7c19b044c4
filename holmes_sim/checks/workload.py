"""A workload that is missing, whose precision devices do not have, or whose sequences are longer than its model allows."""

from __future__ import annotations

from collections.abc import Iterator

from holmes_sim.findings import Finding, Subject


def findings(subject: Subject) -> Iterator[Finding]:
    """A finding if there is no workload; else one for each cluster whose devices lack its precision, and one if a sequence has
    more tokens than the model has learned positions."""
    workload = subject.topology.workload
    if workload is None:
        yield Finding(
            ("workload",),
            "the file does not say what is trained",
            "every command needs --model, --global-batch-size and --seq-len",
            "workload: {model: llama-3-8b, global_batch_size: 512, seq_len: 4096, precision: bf16}",
        )
        return
    for cluster in subject.topology.fleet.clusters:
        has = sorted(dict(cluster.node.device.peak))
        if not cluster.node.device.runs(workload.precision):
            yield Finding(
                ("clusters", cluster.name, "node", "devices", "type"),
                f"{cluster.node.device.name} has no {workload.precision}, only {', '.join(has)}",
                "no plan uses this cluster",
                f"workload.precision: {'fp16' if 'fp16' in has else has[0]}, or another device type",
            )
    positions = workload.model.learned_positions
    if 0 < positions < workload.seq_len:
        yield Finding(
            ("workload", "seq_len"),
            f"a sequence has {workload.seq_len} tokens, and {workload.model.name} has {positions} learned positions",
            "Megatron-LM and FlagScale refuse this model, so plans may be limited to other frameworks",
            f"a model with learned_positions: {workload.seq_len}, or 0 for rotary ones",
        )
