"""Files of expert counts: what they say, and one line for each fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from sim.errors import OptionError
from sim.formats.expert_counts import ExpertCountsFacts, from_text, load

HEAD = "format: holmes-sim/expert-counts/1\norigin: drawn\nlayers:\n"


def test_shares_by_source_and_layer() -> None:
    counts = from_text(
        "c.yaml",
        HEAD + "  - {layer: 3, by_node: {ib/node0: [1, 3], roce/node1: [1, 1]}}\n"
        "  - {by_cluster: {ib: [4, 0], roce: [0, 4]}, together: [[1, 0, 2]]}\n",
    )
    assert (counts.experts, counts.origin) == (2, "drawn")
    one, other = counts.of(3), counts.of(0)
    assert one is not None
    assert other is not None
    assert (one.shares("ib", 0), one.shares("ib", 1), one.whole) == ((0.25, 0.75), None, 6.0)
    assert (other.shares("ib", 7), other.shares("roce", 0)) == ((1.0, 0.0), (0.0, 1.0))
    assert other.together == ((0, 1, 2.0),)


def test_a_layer_without_an_entry() -> None:
    counts = from_text(
        "c.json", '{"format": "holmes-sim/expert-counts/1", "origin": "", "layers": [{"layer": 1, "tokens": [1]}]}'
    )
    assert counts.of(0) is None
    assert (one := counts.of(1)) is not None
    assert one.shares("any", 5) == (1.0,)


@pytest.mark.parametrize(("text", "message"), [
    ("  []\n", "c.yaml:3: layers: at least one entry is needed"),
    ("  - {tokens: [1, 2], by_cluster: {ib: [1, 2]}}\n",
     "c.yaml:4: layers[0]: give one of tokens, by_cluster, by_node, not tokens and by_cluster"),
    ("  - {layer: 2}\n", "c.yaml:4: layers[0]: give one of tokens, by_cluster, by_node, not none"),
    ("  - tokens: [1, -2]\n", "c.yaml:4: layers[0].tokens[1]: -2 must not be negative"),
    ("  - tokens: [0, 0]\n", "c.yaml:4: layers[0].tokens: no expert was chosen; give a number of tokens for each expert"),
    ("  - by_node: {}\n", "c.yaml:4: layers[0].by_node: at least one source is needed"),
    ("  - tokens: [1, 2]\n  - {layer: 1, tokens: [1, 2, 3]}\n",
     "c.yaml:5: layers[1].tokens: 3 experts, but the first list has 2; a number for each expert"),
    ("  - tokens: [1, 2]\n  - tokens: [1, 2]\n",
     "c.yaml:5: layers[1]: layers[0] is already for all layers; one entry for each"),
    ("  - {layer: 1, tokens: [1]}\n  - {layer: 1, tokens: [1]}\n",
     "c.yaml:5: layers[1]: layers[0] is already for layer 1; one entry for each"),
    ("  - tokens: [1, 2]\n    together: [[0, 2, 5]]\n",
     "c.yaml:5: layers[0].together[0]: [0, 2, 5]: two different experts below 2 are expected, and the tokens that chose both"),
    ("  - tokens: [1, 2]\n    together: [[0, 1, 5], [1, 0, 5]]\n",
     "c.yaml:5: layers[0].together[1]: [1, 0, 5]: the pair is given twice"),
    ("  - tokns: [1, 2]\n    tokens: [1, 2]\n", "c.yaml:4: layers[0].tokns: unknown key; did you mean 'tokens'?"),
])  # fmt: skip
def test_faults_have_a_line_each(text: str, message: str) -> None:
    with pytest.raises(OptionError) as caught:
        from_text("c.yaml", HEAD + text if not text.startswith("  []") else HEAD.replace("layers:\n", "layers: []\n"))
    assert str(caught.value) == message


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="no such file"):
        load(tmp_path / "none.json")


def test_the_schema_names_the_format() -> None:
    assert ExpertCountsFacts.model_json_schema()["properties"]["format"]["const"] == "holmes-sim/expert-counts/1"


def test_entries_know_where_they_are_written() -> None:
    counts = from_text("c.yaml", HEAD + "  - {layer: 0, tokens: [1, 2]}\n  - tokens: [1, 2]\n")
    assert (counts.where, [one.where for one in counts.layers]) == (
        "c.yaml:3: layers", ["c.yaml:4: layers[0]", "c.yaml:5: layers[1]"]
    )  # fmt: skip
