"""Hashes of 64 bits: of arrays element by element, and of single facts; equal in every process."""

from __future__ import annotations

import functools
import hashlib
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Hashes: TypeAlias = NDArray[np.uint64]


def hash_arrays(*values: NDArray[np.generic]) -> Hashes:
    """One hash of several arrays, element by element (the finaliser of SplitMix64)."""
    total = np.zeros(1, np.uint64)
    for value in values:
        total = (total ^ value.astype(np.uint64)) + np.uint64(0x9E3779B97F4A7C15)
        total = (total ^ (total >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        total = (total ^ (total >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        total = total ^ (total >> np.uint64(31))
    return total


@functools.lru_cache(maxsize=4096)
def hash_facts(*facts: object) -> np.uint64:
    """The hash of a few facts, by their `repr`."""
    return np.uint64(int.from_bytes(hashlib.blake2b(repr(facts).encode(), digest_size=8).digest(), "big"))
