"""Conditions on inputs, for exemptions: each returns a bool array of x's shape."""

from __future__ import annotations

import numpy as np

from ..._tables import Dialect


def _spread(x: np.ndarray, d: Dialect, mask: np.ndarray) -> np.ndarray:
    """Marks all elements of the blocks in which `mask` marks one."""
    rows, cols = x.shape
    height, width = (d.block[0] or rows), (d.block[1] or cols)
    out = np.zeros(x.shape, bool)
    for r in range(0, rows, height):
        for c in range(0, cols, width):
            out[r : r + height, c : c + width] = mask[r : r + height, c : c + width].any()
    return out


def nan_blocks(x: np.ndarray, d: Dialect) -> np.ndarray:
    return _spread(x, d, np.isnan(x))


def nonfinite_blocks(x: np.ndarray, d: Dialect) -> np.ndarray:
    return _spread(x, d, ~np.isfinite(x))


def nonfinite_tensor(x: np.ndarray, d: Dialect) -> np.ndarray:
    return np.full(x.shape, not np.isfinite(x).all())


def nan_tensor(x: np.ndarray, d: Dialect) -> np.ndarray:
    return np.full(x.shape, bool(np.isnan(x).any()))


def zero_tensor(x: np.ndarray, d: Dialect) -> np.ndarray:
    return np.full(x.shape, not x.any())


def zero_blocks(x: np.ndarray, d: Dialect) -> np.ndarray:
    return ~_spread(x, d, x != 0)


def blocks_below(bound: float):  # noqa: ANN201
    """Blocks that are not all zeros and whose largest magnitude is less than `bound`."""

    def where(x: np.ndarray, d: Dialect) -> np.ndarray:
        small = ~_spread(x, d, ~(np.abs(x) < np.float32(bound)))
        return small & ~zero_blocks(x, d)

    return where


def blocks_from(bound: float):  # noqa: ANN201
    """Blocks whose largest finite magnitude is `bound` or more."""

    def where(x: np.ndarray, d: Dialect) -> np.ndarray:
        return _spread(x, d, np.isfinite(x) & (np.abs(x) >= np.float32(bound)))

    return where


def negative_zeros(x: np.ndarray, d: Dialect) -> np.ndarray:
    return (x == 0) & np.signbit(x)


def vanishing_negatives(exponent: int):  # noqa: ANN201
    """-0, and negative elements of at most 2^exponent times the largest of their tensor: scaled,
    they may underflow to -0."""

    def where(x: np.ndarray, d: Dialect) -> np.ndarray:
        finite = np.abs(x[np.isfinite(x)]).astype(np.float64)
        bound = finite.max(initial=0.0) * 2.0**exponent
        return np.signbit(x) & (np.abs(x).astype(np.float64) <= bound)

    return where


def from_power(bits: int):  # noqa: ANN201
    """Blocks with NaN, Inf, or a magnitude of the float with these bits or more."""
    bound = np.array([bits], np.uint32).view(np.float32)[0]

    def where(x: np.ndarray, d: Dialect) -> np.ndarray:
        return nonfinite_blocks(x, d) | blocks_from(bound)(x, d)

    return where
