"""The model in headings."""

from __future__ import annotations

from dataclasses import replace

from holmes_sim.printing.workloads import model_text
from sim.formats import catalog
from sim.workload.adapter import Adapter
from sim.workload.workload import Workload


def test_the_heading_says_what_is_trained() -> None:
    whole = Workload(catalog.model("llama-2-7b"), 64, 4096)
    assert model_text(whole) == "llama-2-7b (6.74 B parameters)"
    own = replace(whole, adapter=Adapter(64))
    assert model_text(own) == "llama-2-7b (6.74 B parameters, frozen; 0.16 B trained in adapters of rank 64)"
    packed = replace(whole, adapter=Adapter(8, ("q_proj", "v_proj"), "nf4"))
    assert model_text(packed) == "llama-2-7b (6.74 B parameters, frozen in nf4; 0.0042 B trained in adapters of rank 8)"
