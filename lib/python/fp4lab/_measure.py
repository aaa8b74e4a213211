"""Diagnostics of quantized matrices: the table of the library, and its numbers of an array."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from . import _arrays, _core, _ieee, _tables
from ._arguments import flag, rounding_label, threads as _threads
from ._quantize import _source


@dataclass(frozen=True)
class Diagnostic:
    """A number that says what quantization did to a tensor: a row of the library's table.

    Attributes:
        key: its name in results: "sqnr_db".
        log_key: its name in the logs of training; Transformer Engine's debug statistic of the same
            meaning, where there is one.
        name, label, unit: for heads and axes; the unit is empty for numbers in the tensor's own.
        definition: over the elements x and their quantized values q.
        reading: how to read the number.
        digits: after the point, in tables; 0: three significant ones.
    """

    key: str
    log_key: str
    name: str
    label: str
    unit: str
    definition: str
    reading: str
    digits: int

    def __str__(self) -> str:
        return self.key

    def text(self, value: float) -> str:
        """The number as tables show it."""
        return f"{value:.{self.digits}f}" if self.digits else f"{value:.3g}"


@lru_cache(maxsize=None)
def _diagnostics() -> tuple[Diagnostic, ...]:
    return tuple(Diagnostic(**row) for row in json.loads(_core.diagnostics()))


def diagnostics() -> list[Diagnostic]:
    """All diagnostics of a quantized tensor, in the order of the library's table.

    >>> import fp4lab
    >>> [d.key for d in fp4lab.diagnostics()][:4]
    ['amax', 'underflow_percent', 'clip_percent', 'sqnr_db']
    """
    return list(_diagnostics())


def named(numbers: Sequence[float]) -> dict[str, float]:
    """{key of a diagnostic: number} of numbers in the order of the table."""
    return {d.key: float(n) for d, n in zip(_diagnostics(), numbers, strict=True)}


def measure(
    x: Any,
    dialect: _tables.DialectLike = "nvfp4.te",
    *,
    columnwise: bool = False,
    amax: Any = None,
    rounding: str = "nearest",
    random_bits: int = 16,
    seed: int | None = None,
    step: int = 0,
    tensor: int = 0,
    generator: str = "philox",
    threads: int | None = None,
) -> dict[str, float]:
    """What quantizing a matrix does to it: a number for each of diagnostics().

    Elements that are not finite, or are not after decoding, are left out of every number. The
    arguments are those of fp4lab.quantize.

    Returns:
        {key: number}, and "elements", how many were measured.

    Raises:
        TypeError, fp4lab.Error: as fp4lab.quantize.

    >>> import numpy as np, fp4lab
    >>> x = np.random.default_rng(0).standard_normal((64, 64), np.float32)
    >>> x[3, 5] = 60
    >>> seen = fp4lab.measure(x, "nvfp4.te")
    >>> round(seen["sqnr_db"], 1), round(seen["kurtosis"]), round(seen["outlier_percent"], 3)
    (21.4, 894, 0.024)
    """
    d = _tables.dialect(dialect)
    columnwise = flag(columnwise, "columnwise")
    numbers, elements = _core.measure(
        _arrays.matrix(x),
        d.name,
        rounding_label(rounding, random_bits),
        columnwise,
        _arrays.magnitudes(amax),
        _source(seed, step, tensor, generator, None, columnwise),
        _threads(threads),
    )
    return {**named(numbers), "elements": elements}


_ieee.guard(globals())
