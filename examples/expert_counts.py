"""Print synthetic expert counts for `holmes-sim place-experts`: each cluster has popular experts of its own, by Zipf's law."""

from __future__ import annotations

import json
import sys

import numpy as np

EXPERTS, EXPONENT, SEED, TOKENS = 128, 0.8, 1, 1_000_000
"""The r-th most popular expert gets tokens in proportion to r ** -EXPONENT; each cluster has an order of its own."""


def main(*clusters: str) -> None:
    """Print counts for all layers with experts, by cluster."""
    random = np.random.default_rng(SEED)
    shares = np.arange(1.0, EXPERTS + 1) ** -EXPONENT
    counts = {name: random.permutation(TOKENS * shares / shares.sum()).round().astype(int).tolist() for name in clusters}
    document = {
        "format": "holmes-sim/expert-counts/1",
        "origin": f"synthetic, Zipf with exponent {EXPONENT}, seed {SEED}, an order of experts for each cluster",
        "layers": [{"by_cluster": counts}],
    }
    print(json.dumps(document))


if __name__ == "__main__":
    main(*(sys.argv[1:] or ("ib", "roce")))
