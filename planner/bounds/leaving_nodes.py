"""What must leave the nodes of a fleet in a step of unlike pipelines: messages between stages, or gradients.

A node that computes a layer for some of the samples of a step either shares the layer with another node, and then sends at
least half of its gradients and weights, or computes it for all samples, and then sends messages where its run of layers ends.

Of one node, w[l] is the number of samples that it passes through layer l, most is the largest of them, and W is their sum over
all layers. A sample that has layer l on the node and layer l + 1 on another one leaves it forward; one that has them the other
way leaves it backward. So with a bytes of activations for a sample and g bytes of gradients and weights for a layer, which
leave every node that shares a layer at least by half (`planner.bounds.unlike_pipelines`), the node sends at least

    g / 2 (layers that it shares) + a (sum over l of |w[l + 1] - w[l]|)
        >= g / 2 (layers that it shares) + 2 a most - a (w[first] + w[last])

If it shares all its layers, there are W / most of them at least, so the first two terms are 2 sqrt(a g W) at least, whatever
`most` is. Else `most` is the batch, and they are 2 a batch at least. Let c(W) be the smaller of both. In T seconds a node with
NICs of B bytes a second has c(W) <= B T + u, with credits u = a (w[first] + w[last]), which are 2 a batch for all nodes
together, since each sample passes the first and the last layer once. Without credits a node completes (B T)^2 / (4 a g) units,
and c(W) - B T credits buy it all that it can compute. What lies between is convex, so that all nodes together complete at most
what a fractional knapsack with 2 a batch credits says. T is at least such that this is all samples times all layers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sim.units import Bytes, BytesPerSecond, Seconds

HALVINGS = 60
"""Halvings of the interval of the bound: more digits than a float has."""


@dataclass(frozen=True, slots=True)
class NodeRates:
    """What nodes that are alike do at most: `computes` layers of one sample a second, and `sends` bytes a second over all NICs.

    has_several: whether a node can have all replicas of a layer, as it has several devices."""

    number: int
    computes: float
    sends: BytesPerSecond
    has_several: bool


@dataclass(frozen=True, slots=True)
class Traffic:
    """A step of `layers` and `batch` samples: `message` bytes of activations of a sample between two layers, and `gradients`
    bytes of the gradients and the weights of a layer."""

    layers: int
    batch: int
    message: Bytes
    gradients: Bytes

    def least(self, work: float, has_several: bool) -> Bytes:
        """c(W): least bytes that leave a node which passes `work` samples through a layer, before credits."""
        shared = 2 * math.sqrt(self.message * self.gradients * work)
        return min(shared, self.credits) if has_several else shared

    @property
    def credits(self) -> Bytes:
        """Credits of all nodes together: messages that the first and the last layer of a sample do not send."""
        return 2 * self.message * self.batch

    def completed(self, nodes: Sequence[NodeRates], seconds: Seconds) -> float:
        """The most samples times layers that all nodes complete within so many seconds."""
        total, offers = 0.0, []
        for one in nodes:
            most, sent = one.computes * seconds, one.sends * seconds
            missing = self.least(most, one.has_several) - sent
            if missing <= 0:
                total += one.number * most
                continue
            free = sent**2 / (4 * self.message * self.gradients)
            total += one.number * free
            offers.append(((most - free) / missing, one.number * missing))
        left = self.credits
        for worth, price in sorted(offers, reverse=True):
            total += worth * min(price, left)
            left -= min(price, left)
        return total


def least_seconds(nodes: Sequence[NodeRates], traffic: Traffic) -> Seconds:
    """A lower bound in seconds on a step; infinite where there are no nodes."""
    if not any(one.number and one.computes for one in nodes):
        return math.inf
    work = traffic.layers * traffic.batch
    low, high = 0.0, 1.0
    while traffic.completed(nodes, high) < work:
        if math.isinf(high):
            return high
        low, high = high, 2 * high
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if traffic.completed(nodes, middle) >= work else (middle, high)
    return low
