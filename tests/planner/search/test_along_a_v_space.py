"""The stated space of plans along a V."""

from __future__ import annotations

from planner.request import Wishes
from planner.search.along_a_v_space import ALONG, along, axes, left_out, without
from sim.plan import schedules
from tests.planner.builders import on_one_cluster, shape


def test_every_searched_value_and_what_is_left_out_are_said() -> None:
    question = on_one_cluster(wishes=Wishes(schedule="dualpipev", pp=2))
    degrees = ((1, 1, "none"), (2, 2, "full"))
    shapes = [shape(dp=dp, ep=ep, schedule="dualpipev", vpp=2, recompute=kind) for dp, ep, kind in degrees]
    found = {axis.name: axis.values for axis in axes(question, shapes)}
    assert (found["dp"], found["ep"], found["recompute"], found["pp"]) == ((1, 2), (1, 2), ("full", "none"), (2,))
    assert (found["schedule"], found["vpp"]) == (("dualpipev",), (2,))
    assert (found["overlap_grad_reduce"], found["overlap_param_gather"]) == (("on",), ("on", "off"))
    others = [name for name in schedules.names() if name != "dualpipev"]
    assert left_out(question)[0] == f"schedule {', '.join(others)}"
    assert "ZeRO 0" in left_out(question) and "stages across clusters" in left_out(question)


def test_beside_another_space_the_schedule_is_no_longer_outside() -> None:
    assert without(("schedule dualpipev, gpipe, zb-h1", "recompute selective"), "dualpipev") == (
        "schedule gpipe, zb-h1", "recompute selective",
    )  # fmt: skip
    assert (along("dualpipev").name, str(along("dualpipev").values[0]).split(",")[:2]) == (
        ALONG,
        ["schedule dualpipev", " vpp 2"],
    )
