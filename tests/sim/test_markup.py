"""What a notebook shows of topologies, plans and explanations."""

from __future__ import annotations

from sim import markup
from sim.engine import engine
from sim.results import explain
from tests import builders
from tests.builders import cluster, fleet


def cells(html: str) -> list[list[str]]:
    """The cells of a table, row by row, its head first."""
    rows = html.partition("<table>")[2].replace("th>", "td>").split("<tr>")[1:]
    return [[cell.partition("</td>")[0] for cell in row.split("<td>")[1:]] for row in rows]


def test_a_line_and_a_table():
    assert markup.table("a < b", [{"x": 1, "y": "&"}]) == (
        "<p>a &lt; b</p><table><thead><tr><th>x</th><th>y</th></tr></thead>"
        "<tbody><tr><td>1</td><td>&amp;</td></tr></tbody></table>"
    )
    assert markup.table("none", []) == "<p>none</p><table><thead><tr></tr></thead><tbody></tbody></table>"


def test_a_topology_a_plan_and_an_explanation_show_themselves():
    plan = builders.plan(fleet(cluster("a", 2, 2)), tp=2, pp=2, microbatches=2)
    assert plan.topology._repr_html_().startswith(f"<p>{plan.topology!r}</p>")
    node = plan.fleet.cluster("a").node
    assert [row[:4] for row in cells(plan.topology._repr_html_())] == [
        ["cluster", "nodes", "devices of a node", "inside"],
        ["a", "2", f"2 x {node.device.name}", node.intra_node.name],
    ]
    layers = [str(stage.layers) for stage in plan.stages]
    assert cells(plan._repr_html_()) == [
        ["pipeline rank", "clusters", "ranks", "layers"], ["0", "a", "0-1", layers[0]], ["1", "a", "2-3", layers[1]],
    ]  # fmt: skip
    found = explain.explain(plan, engine.simulate(plan))
    shown = cells(found._repr_html_())
    assert shown[0] == ["pipeline rank", "ranks", *(f"{kind} (s)" for kind, _ in found.mean)]
    assert sum(int(row[1]) for row in shown[1:]) == 4
    for row in shown[1:]:
        assert abs(sum(map(float, row[2:])) - found.step_s) <= 1e-3 * found.step_s
