"""QTensor: quantized matrices of torch, and functions on them."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .. import _qtensor, _tables
from . import _ops

_SCALES = {
    "float8_e4m3fn": torch.float8_e4m3fn,
    "float8_e8m0fnu": getattr(torch, "float8_e8m0fnu", None),
}


@torch.compiler.assume_constant_result
def _canonical(dialect: str) -> str:
    """The name of a dialect's row, for a name or an alias."""
    return _tables.dialect(dialect).name


class QTensor(NamedTuple):
    """A quantized matrix; a pytree of three tensors for torch.compile.

    Attributes:
        data: uint8, the codes: (lines, bytes of a line), two 4-bit codes a byte, the even one in
            the low nibble.
        scale_inv: uint8, the block scales, with the padding of scale_layout; float32, or uint16 with
            the bits of bfloat16, where the dialect's scales are numbers.
        amax: float32, one number, one a row for dialects that are scaled by rows, or none.
        shape: (rows, columns) of the tensor.
        dialect, columnwise, scale_layout: as fp4lab.QTensor has them.
    """

    data: Tensor
    scale_inv: Tensor
    amax: Tensor
    shape: tuple[int, int]
    dialect: str = "nvfp4.te"
    columnwise: bool = False
    scale_layout: str = "linear"

    @property
    def codes(self) -> Tensor:
        """data as torch.float4_e2m1fn_x2, as F.scaled_mm takes it; a view. 4-bit dialects only."""
        if _tables.dialect(self.dialect).element != "float4_e2m1fn":
            raise TypeError(f"{self.dialect} has no float4_e2m1fn elements")
        return self.data.view(torch.float4_e2m1fn_x2)

    @property
    def scales(self) -> Tensor:
        """scale_inv as torch.float8_e4m3fn or float8_e8m0fnu, or as numbers; a view."""
        if self.scale_inv.dtype != torch.uint8:
            return self.scale_inv if self.scale_inv.dtype == torch.float32 else self.scale_inv.view(torch.bfloat16)
        return self.scale_inv.view(_SCALES[_tables.dialect(self.dialect).scale])

    def dequantize(self, dtype: torch.dtype = torch.float32) -> Tensor:
        """The values, (rows, columns), rounded to `dtype`."""
        return _ops.dequantize(
            self.data,
            self.scale_inv,
            self.amax,
            self.shape,
            self.dialect,
            self.columnwise,
            self.scale_layout,
            dtype,
        )

    def numpy(self) -> _qtensor.QTensor:
        """The same memory as an fp4lab.QTensor, for verify, explain, save and the like."""
        d = _tables.dialect(self.dialect)
        amax = self.amax.numpy()
        return _qtensor.QTensor(
            self.data.numpy(),
            self.scale_inv.numpy(),
            None if amax.size == 0 else amax if d.row_scaled else amax.reshape(-1)[0],
            tuple(self.shape),
            d.name,
            self.columnwise,
            self.scale_layout,
            _qtensor.default_nibbles(d),
        )


def quantize(
    x: Tensor,
    dialect: str | _tables.Dialect = "nvfp4.te",
    *,
    amax: Tensor | None = None,
    columnwise: bool = False,
    rht: bool | int = False,
    rounding: str = "nearest",
    seed: int | None = None,
    step: int = 0,
    tensor: int = 0,
    scale_layout: str = "linear",
) -> QTensor:
    """The bytes of torch.ops.fp4lab.quantize as a QTensor; arguments as fp4lab.quantize has them.

    x: (..., columns) of float32, bfloat16 or float16 on the CPU; leading dimensions are rows.
    """
    if not isinstance(rht, int):
        raise TypeError(f"rht is {rht!r}: True, False or a size is taken")
    if seed is None and (step or tensor):
        raise ValueError("step and tensor are of the stream of random bits that seed starts: give seed, or leave them out")
    size = 16 if rht is True else int(rht)
    data, scales, numbers = _ops.quantize(
        x,
        str(dialect),
        amax,
        columnwise,
        size,
        rounding=rounding,
        seed=seed,
        step=step,
        tensor=tensor,
        scale_layout=scale_layout,
    )
    rows, cols = data.shape[0], x.shape[-1]
    if columnwise:
        rows, cols = x.numel() // cols if cols else 0, data.shape[0]
    return QTensor(
        data, scales, numbers, (rows, cols), _canonical(str(dialect)), columnwise, scale_layout
    )


def scaled_mm(
    a: QTensor,
    b: QTensor,
    *,
    alpha: float | str | None = None,
    bias: Tensor | None = None,
    accumulation: str = "block",
    dtype: torch.dtype = torch.bfloat16,
) -> Tensor:
    """a b^T of two QTensors, as fp4lab.scaled_mm computes it: the arguments are its."""
    k = a.shape[0] if a.columnwise else a.shape[1]
    if k != (b.shape[0] if b.columnwise else b.shape[1]):
        raise ValueError(
            f"a is {tuple(a.shape)}, b {tuple(b.shape)}: both need the same reduction axis"
        )
    return _ops.scaled_mm(
        a.data,
        a.scale_inv,
        a.amax,
        b.data,
        b.scale_inv,
        b.amax,
        k,
        a.dialect,
        b.dialect,
        a.scale_layout,
        b.scale_layout,
        None if isinstance(alpha, str) else alpha,
        alpha if isinstance(alpha, str) else "",
        bias,
        accumulation,
        dtype,
    )
