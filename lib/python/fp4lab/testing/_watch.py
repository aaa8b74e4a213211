"""Arguments of a callable under test: copies of its own, compared after the call."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import _ieee
from .._arrays import raw


class Mutated(Exception):
    """A kernel that changed what it was given; the text says what."""


class Watched:
    """Copies of arrays for one call, and the bytes that they had before it."""

    def __init__(self, **arrays: Any) -> None:
        """Copies each array (numpy, torch, JAX, a list ...) that is not None."""
        self.given = {name: _copy(a) for name, a in arrays.items()}
        self._before = {name: _bytes(a, name) for name, a in self.given.items() if a is not None}

    def call(self, fn: Callable[..., Any], *names: str) -> Any:
        """fn on the copies of these names, in this order, in the caller's arithmetic.

        Raises what fn raises; Mutated if it changed an array, also one that it was not expected to
        read, and if it declines by NotImplementedError after the change.
        """
        try:
            result = _ieee.as_caller(fn, *(self.given[name] for name in names))
        except NotImplementedError:
            self.check()
            raise
        self.check()
        return result

    def check(self) -> None:
        """Raises Mutated if an array is no longer what it was."""
        for name, (before, values) in self._before.items():
            difference = _difference(name, before, values, self.given[name])
            if difference:
                raise Mutated(f"the kernel changed its argument {difference}")


def _copy(array: Any) -> Any:
    if array is None or isinstance(array, np.ndarray):
        return None if array is None else array.copy()
    try:
        return copy.deepcopy(array)
    except Exception:  # an object of DLPack that cannot be copied: its numbers, as numpy has them
        return raw(array, "x")[0].copy()


def _bytes(array: Any, name: str) -> tuple[np.ndarray, np.ndarray]:
    """(bits, values) of an array, both copies."""
    values = _values(array, name)
    return _bits(values), values


def _values(array: Any, name: str) -> np.ndarray:
    """A copy of an array's numbers; bfloat16 as float32, other types that numpy lacks as their bits."""
    bits, kind = raw(array, name)
    if kind == "bfloat16":
        return (bits.astype(np.uint32) << 16).view(np.float32)
    return np.array(bits)


def _bits(values: np.ndarray) -> np.ndarray:
    flat = np.ascontiguousarray(values)
    return flat.view(f"u{flat.dtype.itemsize}") if flat.dtype.itemsize in (1, 2, 4, 8) else flat


def _difference(name: str, before: np.ndarray, values: np.ndarray, after: Any) -> str:
    """"x: 12 of 256 elements, the first at [0, 3]: 1.5 became 0.0"; "" if nothing changed."""
    now = _values(after, name)
    if now.shape != values.shape or now.dtype != values.dtype:
        return f"{name}: {values.dtype} of shape {values.shape} became {now.dtype} of shape {now.shape}"
    where = np.argwhere(_bits(now) != before)
    if not len(where):
        return ""
    at = tuple(int(i) for i in where[0])
    place = f" at [{', '.join(map(str, at))}]" if at else ""
    return (f"{name}: {len(where)} of {values.size} elements, the first{place}: {values[at]!s} became "
            f"{now[at]!s}")  # fmt: skip
