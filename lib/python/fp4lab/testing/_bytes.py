"""Assertions on bytes that are there already."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import _ieee, _tables
from .._arrays import amaxes
from .._arrays import codes as _codes
from .._arrays import scales as _scales
from .._judge import Verdict, verify
from .._qtensor import QTensor


def assert_matches(
    x: Any,
    codes: Any,
    scales: Any = None,
    dialect: _tables.DialectLike | None = None,
    *,
    layout: str = "auto",
    sr: Any = None,
    max_shown: int = 3,
    **options: Any,
) -> Verdict:
    """Raises AssertionError unless bytes are an answer of the dialect; its message has the reasons.

    Args:
        x, codes, scales, dialect, **options: as fp4lab.verify takes them.
        layout: the scale layout; "auto" finds it by the number of bytes.
        sr: the uint16 fields of random bits that the kernel took, for stochastic rounding.
        max_shown: the differences to list.

    Returns:
        The verdict.

    >>> import numpy as np, fp4lab, fp4lab.testing
    >>> x = np.ones((4, 32), np.float32)
    >>> verdict = fp4lab.testing.assert_matches(x, fp4lab.quantize(x))
    """
    if sr is not None:
        options.setdefault("rounding", "stochastic")
        options["random"] = sr
    verdict = verify(x, codes, scales, dialect, scale_layout=layout, first=max_shown, **options)
    if not verdict:
        raise AssertionError(
            verdict.headline.rstrip() + "\n" + verdict.text + "\n" + verdict.explain().text
        )
    return verdict


def _bits(numbers: Any) -> list[int]:
    return np.asarray(amaxes(numbers), np.float32).view(np.uint32).tolist()


def assert_same_bytes(a: QTensor, b: QTensor) -> None:
    """Raises AssertionError unless two QTensors are equal: shape, dialect, layout and every byte."""
    for name, q in (("a", a), ("b", b)):
        if not isinstance(q, QTensor):
            raise TypeError(f"{name} is {type(q).__name__}: two QTensors are compared")
    for name in ("shape", "dialect", "columnwise", "scale_layout", "nibbles", "expanded_scales"):
        if getattr(a, name) != getattr(b, name):
            raise AssertionError(f"{name}: {getattr(a, name)!r} and {getattr(b, name)!r}")
    for name in ("data", "scale_inv"):
        read = _codes if name == "data" else _scales
        left, right = read(getattr(a, name), name)[0], read(getattr(b, name), name)[0]
        if left.size != right.size:
            raise AssertionError(f"{name}: {left.size} and {right.size} bytes")
        where = np.flatnonzero(left != right)
        if where.size:
            i = int(where[0])
            raise AssertionError(
                f"{name}: {where.size} of {left.size} bytes differ; the first at byte {i}: "
                f"0x{left[i]:02x} and 0x{right[i]:02x}"
            )
    if _bits(a.amax) != _bits(b.amax):
        raise AssertionError(f"amax: {a.amax!r} and {b.amax!r}")


_ieee.guard(globals())
