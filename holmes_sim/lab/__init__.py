"""A heterogeneous cluster on one Linux machine: real packets over links that are as fast, to one scale, as the plan's.

    with Lab(plan, smallest_scale(plan, cores)) as lab:
        said = lab.play(lambda seat: [sys.executable, "-m", "program", "plan.json"])

Reading order: goodput (how fast), wiring (what is joined to what), batches (what is typed into which namespace), namespaces,
ranks, lab; notes tells where a plan's groups would not do what the simulator supposes.
"""

from __future__ import annotations

from holmes_sim.lab.goodput import as_wired, smallest_scale
from holmes_sim.lab.lab import Lab
from holmes_sim.lab.notes import notes
from holmes_sim.lab.ranks import Said
from holmes_sim.lab.wiring import Seat, Wiring, wire

__all__ = ["Lab", "Said", "Seat", "Wiring", "as_wired", "notes", "smallest_scale", "wire"]
