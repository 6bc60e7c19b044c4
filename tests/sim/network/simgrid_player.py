"""Plays flows on links in SimGrid: scenes as JSON on standard input, arrival times of their flows as JSON on standard output.

A program of its own, because SimGrid's Python module belongs to the interpreter it was built for, and because an engine lives
once in a process: every scene is played by a child. SimGrid's CM02 network model (Casanova and Marchal, A Network Model for
Simulation of Grid Application, LIP report 2002-40) is max-min sharing once latency, TCP window and cross traffic are off. A
link that is named twice in a route is used twice; so whole weights are said.
"""

import json
import os
import sys
import tempfile

import simgrid

SETTINGS = (
    "network/model:CM02",
    "network/bandwidth-factor:1",
    "network/latency-factor:1",
    "network/weight-S:0",
    "network/TCP-gamma:0",
    "network/crosstraffic:0",
    "maxmin/precision:1e-12",
    "surf/precision:1e-12",
)


def platform(capacities, flows):
    """Links, and two hosts for each flow with a route of its own between them, in SimGrid's XML, which outlives its API."""
    links = "".join(f'<link id="link-{i}" bandwidth="{capacity}Bps" latency="0s"/>' for i, capacity in enumerate(capacities))
    hosts, routes = "", ""
    for index, (_, use, _) in enumerate(flows):
        hosts += f'<host id="source-{index}" speed="1f"/><host id="target-{index}" speed="1f"/>'
        crossed = "".join(f'<link_ctn id="link-{link}"/>' * int(weight) for link, weight in use)
        routes += f'<route src="source-{index}" dst="target-{index}" symmetrical="NO">{crossed}</route>'
    doctype = '<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">'
    zone = f'<zone id="zone" routing="Full">{hosts}{links}{routes}</zone>'
    return f'<?xml version="1.0"?>{doctype}<platform version="4.1">{zone}</platform>'


def play(capacities, flows):
    """Arrival times of flows (start, [[link, whole weight], ...], whole bytes)."""
    engine = simgrid.Engine(["player", "--log=root.thres:critical", *(f"--cfg={setting}" for setting in SETTINGS)])
    with tempfile.NamedTemporaryFile("w", suffix=".xml") as file:
        file.write(platform(capacities, flows))
        file.flush()
        engine.load_platform(file.name)
    arrivals = [None] * len(flows)

    def send(index, source, target):
        start, _, nbytes = flows[index]
        simgrid.this_actor.sleep_until(start)
        simgrid.Comm.sendto(source, target, nbytes)
        arrivals[index] = simgrid.Engine.clock

    for index in range(len(flows)):
        source, target = (simgrid.Host.by_name(f"{end}-{index}") for end in ("source", "target"))
        simgrid.Actor.create(f"flow-{index}", source, send, index, source, target)
    engine.run()
    return arrivals


def in_a_child(scene):
    """What `play` says of a scene, from a process of its own."""
    inlet, outlet = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(inlet)
        with os.fdopen(outlet, "w") as pipe:
            json.dump(play(*scene), pipe)
        os._exit(0)
    os.close(outlet)
    with os.fdopen(inlet) as pipe:
        said = pipe.read()
    if os.waitpid(child, 0)[1] != 0:
        raise SystemExit(f"SimGrid failed on {scene}")
    return json.loads(said)


if __name__ == "__main__":
    json.dump([in_a_child(scene) for scene in json.load(sys.stdin)], sys.stdout)
