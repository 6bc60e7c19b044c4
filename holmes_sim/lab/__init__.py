"""The lab: a heterogeneous cluster emulated on one Linux machine, with real packets over links shaped to the plan's scaled
rates.

    with Lab(plan, smallest_scale(plan, cores)) as lab:
        outputs = lab.run(lambda rank: [sys.executable, "-m", "program", "plan.json"])

Reading order: payload_rates (rates of links), wiring (hosts, bridges and links), batches (commands for each namespace),
namespaces, ranks, lab. notes lists where the communication of a plan differs from the model.
"""

from __future__ import annotations

from holmes_sim.lab.lab import Lab
from holmes_sim.lab.notes import notes
from holmes_sim.lab.payload_rates import as_wired, smallest_scale
from holmes_sim.lab.ranks import RankOutput
from holmes_sim.lab.wiring import RankLocation, Wiring, wire

__all__ = ["Lab", "RankLocation", "RankOutput", "Wiring", "as_wired", "notes", "smallest_scale", "wire"]
