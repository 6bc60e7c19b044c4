"""How much faster is training with more bandwidth between two sites? Edit the topology, plan again, compare tokens/s."""

from __future__ import annotations

import holmes_sim as hs

WORKLOAD = {"workload.model": "gpt-3.6b", "workload.global_batch_size": 64, "workload.seq_len": 2048}
"""Replaces the workload of the topology, which is too small to need both sites."""


def main(topology: str = "lab/lab-slow-trunk", widths: tuple[str, ...] = ("1 Gbit/s", "2 Gbit/s", "5 Gbit/s")) -> None:
    """Plan the topology once for each bandwidth of its first link between clusters."""
    first = 0.0
    for width in widths:
        wider = hs.edited(hs.load(topology), {**WORKLOAD, "links[0].bandwidth": width})
        plan = hs.plan(wider, time_limit=3.0).plan
        prediction, config, certificate = plan.prediction, plan.config, plan.certificate
        assert prediction is not None
        assert certificate is not None
        first = first or prediction.tokens_per_s
        print(
            f"{width}: {prediction.tokens_per_s:,.0f} tokens/s ({prediction.tokens_per_s / first - 1:+.1%}), "
            f"pp {config.pp}, dp {config.dp}, {config.schedule}, at most {certificate.gap:.1%} from the best"
        )


if __name__ == "__main__":
    main()
