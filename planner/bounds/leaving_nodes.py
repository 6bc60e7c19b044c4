"""What must leave the nodes of a fleet in a step of unlike pipelines: messages between stages, or gradients.

A node that computes a layer for some of the samples of a step either shares the layer with other nodes, and then sends its part
of gradients and weights, or computes it for all samples, and then sends messages where its run of layers ends.

Of one node, w[l] is the number of samples that it passes through layer l, M is the largest of them, W is their sum over all
layers, and y the number of layers that it passes any through. A sample that has layer l on the node and layer l + 1 on another
one leaves it forward; one that has them the other way leaves it backward. With a bytes of activations for a sample, the node
sends

    a (sum over l of |w[l + 1] - w[l]|) >= 2 a M - u,    u = a (w[first] + w[last])

bytes of messages. The credits u of all nodes are 2 a batch together, since each sample passes the first and the last layer
once. A ring over n nodes sends (n - 1) / n of its payload out of each of them, so with g bytes of gradients and weights for a
layer, and NICs of B bytes a second, there are two bounds on a step of T seconds.

halves  A node sends at least g / 2 for each layer that it shares. If it shares all its layers, there are W / M of them at
        least, and it has c(W) <= B T + u, where c(W) = 2 sqrt(a g W) <= g y / 2 + 2 a M whatever M is. Else it has a layer of
        its own for all samples, and 2 a batch <= B T + u. Of several such nodes each has none of the others' layers: their
        layers are in an order, the first of these nodes has no credit for the last layer, the last one none for the first
        layer, and those between have neither. So at most two of them may have 2 a batch > B T, and if there are two, each of
        them lacks a batch at most.
rings   Of a layer on n nodes, all of them together send g (n - 1), which is g for each but one of them, also where n is 1. So
        if each node sent g for each of its layers, g L bytes more would leave all nodes than do, L being the number of layers.
        What a node would send then is g y + 2 a M - u with y >= W / M, at least c(W) - u with c(W) the least of
        g W / M + 2 a M over all M of at most the batch and at least W / L. It sends at most B T, and no less than nothing of
        the rest, so that c(W) <= B T + u + e, where the credits e are g L for all nodes together.

Without credits a node completes as much as costs B T, and c(W) - B T credits buy it all that it can compute. c is concave, so
what lies between is convex, and all nodes together complete at most what a fractional knapsack with all credits says. T is at
least such that this is all samples times all layers, under both."""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace

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

    @property
    def messages(self) -> Bytes:
        """Messages of all samples on both sides of a run of layers, which are the credits of the first and the last layer."""
        return 2 * self.message * self.batch


class _Account(ABC):
    """What leaves nodes for the work that they complete, and by how much it may exceed what their NICs send."""

    def __init__(self, traffic: Traffic):
        self.traffic = traffic

    @abstractmethod
    def least(self, work: float) -> Bytes:
        """c(W): least bytes that leave a node which passes `work` samples through a layer, before credits."""

    @abstractmethod
    def free(self, sent: Bytes) -> float:
        """The work for which so many bytes leave a node: the inverse of `least`."""

    @abstractmethod
    def completed(self, nodes: Sequence[NodeRates], seconds: Seconds) -> float:
        """The most samples times layers that all nodes complete within so many seconds."""

    def bought(self, nodes: Sequence[NodeRates], seconds: Seconds, left: Bytes) -> float:
        """What nodes complete with so many credits, of which each has as many as are worth most."""
        total, offers = 0.0, []
        for one in nodes:
            most, sent = one.computes * seconds, one.sends * seconds
            missing = self.least(most) - sent
            if missing <= 0:
                total += one.number * most
                continue
            free = self.free(sent)
            total += one.number * free
            offers.append(((most - free) / missing, one.number * missing))
        for worth, price in sorted(offers, reverse=True):
            total += worth * min(price, left)
            left -= min(price, left)
        return total


class _Halves(_Account):
    """Half of its gradients leaves a node that shares a layer."""

    def least(self, work: float) -> Bytes:
        """With all layers shared."""
        return 2 * math.sqrt(self.traffic.message * self.traffic.gradients * work)

    def free(self, sent: Bytes) -> float:
        """With all layers shared."""
        return sent**2 / (4 * self.traffic.message * self.traffic.gradients)

    def completed(self, nodes: Sequence[NodeRates], seconds: Seconds) -> float:
        """With the best choice of up to two nodes that have layers of their own, and lack credits for it."""
        whole = self.traffic.messages
        alone, shared, lacks = 0.0, list[NodeRates](), list[Bytes]()
        for one in nodes:
            lack = whole - one.sends * seconds if one.has_several else math.inf
            if lack <= 0:
                alone += one.number * one.computes * seconds
            else:
                shared.append(one)
                lacks.append(lack)
        found = [self.bought(shared, seconds, whole)]
        for size in (1, 2):
            for some in itertools.combinations_with_replacement(range(len(shared)), size):
                rest = [replace(one, number=one.number - some.count(index)) for index, one in enumerate(shared)]
                if all(lacks[index] <= whole / size for index in some) and all(one.number >= 0 for one in rest):
                    own = sum(shared[index].computes * seconds for index in some)
                    found.append(own + self.bought(rest, seconds, whole - sum(lacks[index] for index in some)))
        return alone + max(found)


class _Rings(_Account):
    """All gradients of its layers leave a node, but for those of one node for each layer."""

    def least(self, work: float) -> Bytes:
        """The least of g W / M + 2 a M, with the allowed M that is nearest to the best."""
        if not work:
            return 0.0
        traffic = self.traffic
        best = math.sqrt(traffic.gradients * work / (2 * traffic.message))
        samples = min(max(best, work / traffic.layers), traffic.batch)
        return traffic.gradients * work / samples + 2 * traffic.message * samples

    def free(self, sent: Bytes) -> float:
        """`least` is linear where M is the batch, or all layers are on the node."""
        traffic, gradients = self.traffic, self.traffic.gradients * self.traffic.layers
        if sent > 2 * traffic.messages:
            return (sent - traffic.messages) * traffic.batch / traffic.gradients
        if sent > 2 * gradients:
            return (sent - gradients) * traffic.layers / (2 * traffic.message)
        return sent**2 / (8 * traffic.message * traffic.gradients)

    def completed(self, nodes: Sequence[NodeRates], seconds: Seconds) -> float:
        """With the credits of messages, and of each layer's gradients once."""
        return self.bought(nodes, seconds, self.traffic.messages + self.traffic.gradients * self.traffic.layers)


def least_seconds(nodes: Sequence[NodeRates], traffic: Traffic) -> Seconds:
    """A lower bound in seconds on a step; infinite where there are no nodes."""
    if not any(one.number and one.computes for one in nodes):
        return math.inf
    work = traffic.layers * traffic.batch
    return max(_least_seconds(nodes, account, work) for account in (_Halves(traffic), _Rings(traffic)))


def _least_seconds(nodes: Sequence[NodeRates], account: _Account, work: float) -> Seconds:
    low, high = 0.0, 1.0
    while account.completed(nodes, high) < work:
        if math.isinf(high):
            return high
        low, high = high, 2 * high
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if account.completed(nodes, middle) >= work else (middle, high)
    return low
