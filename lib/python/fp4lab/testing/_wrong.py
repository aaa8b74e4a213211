"""The library's wrong kernels as callables: tests of tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import _core, _ieee, _tables
from .._arguments import TE_SIGN_MASK, hadamard, one_of, rounding_label
from .._arrays import matrix
from .._judge import KERNEL_TRANSFORMS
from .._qtensor import NIBBLES, scale_order
from .._quantize import random_fields


@dataclass(frozen=True)
class WrongKernel:
    """A kernel of the library with one deviation, as a callable for tests of tests.

    Attributes:
        name: "ties-away"; the name by which reports call the cause.
        what: what it does wrong.
        stage: "input", "tensor scale", "scale", "element", "layout" or "nothing".
    """

    name: str
    what: str
    stage: str
    _kernel: Any

    def __call__(self, x: Any, random: Any = None) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """(codes, scales, tensor_scale); the tensor scale is None where the dialect has none."""
        array = matrix(x)
        codes, scales, number = _core.run_wrong_kernel(
            self._kernel, array, [self.name], [], random_fields(random, array.shape)
        )
        return codes, scales, number if number.size else None


def wrong_kernels(
    dialect: _tables.DialectLike = "nvfp4.te",
    *,
    rht: bool | int = False,
    sign_mask: int = TE_SIGN_MASK,
    rounding: str = "nearest",
    random_bits: int = 16,
    scale_layout: str = "swizzled_32_4_4",
    nibbles: str = "low-first",
) -> list[WrongKernel]:
    """The library's wrong kernels that change some byte of a dialect in a layout, as callables:
    each must fail assert_kernel.

    >>> import fp4lab.testing
    >>> kernel = next(k for k in fp4lab.testing.wrong_kernels() if k.name == "ties-away")
    >>> kernel.what
    'rounds ties away from zero'
    """
    d = _tables.dialect(dialect)
    number = "amax" if d.tensor_scale else "none"
    order = one_of(nibbles, "nibbles", NIBBLES) if d.element_bits == 4 else "bytes"
    layout = (order, scale_order(scale_layout), False, False, number)
    kernel = (d.name, rounding_label(rounding, random_bits), layout,
              *hadamard(rht, sign_mask, KERNEL_TRANSFORMS))  # fmt: skip
    return [WrongKernel(*row, kernel) for row in _core.wrong_kernels(kernel)]


_ieee.guard(globals())
