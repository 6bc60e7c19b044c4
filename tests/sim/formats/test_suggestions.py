"""What a wrong name may mean, for the names of the catalogue and for keys."""

from __future__ import annotations

import pytest

from sim.formats import catalog
from sim.formats.suggestions import suggestion

MODELS = catalog.names("models")
DEVICES = catalog.names("devices")
LLAMAS = "; similar names: " + ", ".join(name for name in MODELS if name.startswith("llama"))
GPTS = "; similar names: " + ", ".join(name for name in MODELS if name.startswith("gpt"))


@pytest.mark.parametrize(
    ("word", "known", "said"),
    [
        ("lama-2-7b", MODELS, "; did you mean 'llama-2-7b'?"),
        ("LLaMA_3_8B", MODELS, "; did you mean 'llama-3-8b'?"),
        ("llama2-7b", MODELS, "; did you mean 'llama-2-7b'?"),
        ("llama-7b", MODELS, "; did you mean 'llama-2-7b'?"),
        ("mixtral", MODELS, "; did you mean 'mixtral-8x22b' or 'mixtral-8x7b'?"),
        ("gpt5", MODELS, GPTS),
        ("llama-3-7b", MODELS, LLAMAS),
        ("phi-5", MODELS, "; similar names: phi-3-mini, phi-4"),
        ("bert", MODELS, f"; known: {', '.join(MODELS)}"),
        ("", ("a", "b"), "; known: a, b"),
        ("x", (), ""),
        ("4090", DEVICES, "; did you mean 'rtx-4090'?"),
        ("rtx-6090", DEVICES, f"; similar names: {', '.join(name for name in DEVICES if name.startswith('rtx'))}"),
        ("v100", DEVICES, f"; similar names: {', '.join(name for name in DEVICES if name.startswith('v100'))}"),
        ("h100", DEVICES, "; did you mean 'h100-nvl-94gb', 'h100-pcie-80gb' or 'h100-sxm5-80gb'?"),
        ("h100-80gb", DEVICES, "; did you mean 'h100-pcie-80gb' or 'h100-sxm5-80gb'?"),
        ("infinband", catalog.names("nics"), "; did you mean 'infiniband'?"),
        ("nvlink6", ("nvlink4", "nvlink5", "pcie5"), "; similar names: nvlink4, nvlink5"),
        ("globl_batch_size", ("global_batch_size", "model", "seq_len"), "; did you mean 'global_batch_size'?"),
    ],
)
def test_a_name_with_another_number_is_no_misspelling(word, known, said):
    assert suggestion(word, known) == said
