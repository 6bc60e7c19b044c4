"""Guesses of holmes-sim init: the NICs of a node by its device."""

from __future__ import annotations

import pytest

from holmes_sim.describing import defaults
from sim.formats import catalog


@pytest.mark.parametrize(("device", "nics"), [
    ("rtx-4090", ("ethernet", "1 Gbit/s", 1)),
    ("titan-rtx", ("ethernet", "1 Gbit/s", 1)),
    ("l40s", ("ethernet", "25 Gbit/s", 1)),
    ("rtx-pro-6000", ("ethernet", "25 Gbit/s", 1)),
    ("h100-sxm5-80gb", ("infiniband", "400 Gbit/s", 8)),
])  # fmt: skip
def test_gaming_cards_are_in_pcs_with_slow_ethernet(device: str, nics: tuple[str, str, int]) -> None:
    found = defaults.nic(catalog.device(device), 8)
    assert (found.type, found.bandwidth, found.count) == nics


@pytest.mark.parametrize(("device", "devices"), [("rtx-4090", "1"), ("titan-rtx", "1"), ("l40s", "8"), ("h100-sxm5-80gb", "8")])
def test_a_pc_has_one_gaming_card(device: str, devices: str) -> None:
    assert defaults.count(catalog.device(device)) == devices
