"""Devices without a price where a requirement limits the rent or the cost of a token."""

from __future__ import annotations

from collections.abc import Iterator

from holmes_sim.findings import Finding, Subject
from holmes_sim.requirements import written


def findings(subject: Subject) -> Iterator[Finding]:
    """One finding for each cluster whose devices have no price."""
    limited = [key for key in ("rent", "cost") if key in written(subject.topology)]
    for cluster in subject.topology.fleet.clusters if limited else ():
        if cluster.node.device.price is None:
            yield Finding(
                ("clusters", cluster.name, "node", "devices"),
                f"require.{limited[0]} limits money, but no price of {cluster.node.device.name} is known",
                "every plan ends with an error",
                "price: 2.50 USD/h beside type, with the rent of one device",
            )
