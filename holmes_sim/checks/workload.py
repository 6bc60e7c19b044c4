"""A workload that is missing, or whose precision devices do not have."""

from __future__ import annotations

from collections.abc import Iterator

from holmes_sim.findings import Finding, Subject


def findings(subject: Subject) -> Iterator[Finding]:
    """A finding if there is no workload, and one for each cluster whose devices lack its precision."""
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
