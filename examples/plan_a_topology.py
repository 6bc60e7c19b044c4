"""Plan a topology and print the plan, its simulated step, the lower bound of its certificate, and the searched space."""

from __future__ import annotations

import sys

import holmes_sim as hs


def main(topology: str = "holmes-infiniband-4", seconds: float = 10.0) -> None:
    """Plan a shipped topology or a topology file, with a time limit in seconds."""
    answer = hs.plan(hs.load(topology), time_limit=seconds)
    prediction, certificate = answer.plan.prediction, answer.plan.certificate
    assert prediction is not None
    assert certificate is not None

    print(answer)
    print(f"Simulated step: {prediction.step_s:.3f} s, {prediction.tokens_per_s:,.0f} tokens/s, MFU {prediction.mfu:.1%}")
    print(f"Lower bound:    {certificate.lower_bound_s:.3f} s; the plan is at most {certificate.gap:.1%} from the best")
    print("Searched:")
    for axis in certificate.space:
        print(f"  {axis.name}: {', '.join(map(str, axis.values))}")


if __name__ == "__main__":
    main(*sys.argv[1:2])
