"""The operators torch.ops.fp4lab.*: quantizers, transforms and products as torch.library ops.

Every operator has a fake for torch.compile, and the number of threads is torch's. Bytes are uint8
tensors; `view` gives them the types that torch's own functions take, without a copy.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .. import _arrays, _core, _ieee, _products, _tables
from .._arguments import TE_SIGN_MASK, rounding_label
from .._quantize import check_amax
from . import _eager, _sizes, _tensors

_OUTPUTS = {torch.float32: "float32", torch.bfloat16: "bfloat16", torch.float16: "float16"}


def _source(seed: int | None, step: int, tensor: int, columnwise: bool):
    return None if seed is None else (seed, step, tensor, "philox", columnwise)


def _amaxes(amax: Tensor | None, array, d: _tables.Dialect, rht: int, sign_mask: int, columnwise: bool) -> list[float]:
    """The numbers of a given amax, which must be magnitudes; fp4lab.AmaxWarning where x has larger ones."""
    numbers = _tensors.floats(amax, "amax")
    if numbers:
        check_amax(_arrays.magnitudes(numbers), array, d, rht, sign_mask, columnwise)
    return numbers


@torch.library.custom_op("fp4lab::quantize", mutates_args=())
@_ieee.ieee
def quantize(
    x: Tensor,
    dialect: str = "nvfp4.te",
    amax: Tensor | None = None,
    columnwise: bool = False,
    rht: int = 0,
    sign_mask: int = TE_SIGN_MASK,
    rounding: str = "nearest",
    seed: int | None = None,
    step: int = 0,
    tensor: int = 0,
    scale_layout: str = "linear",
) -> tuple[Tensor, Tensor, Tensor]:
    """(data, scale_inv, amax) of x, the arrays of fp4lab.quantize: uint8, uint8 and float32. Scales that are
    numbers are float32, or uint16 with the bits of bfloat16.

    x: (..., columns) of float32, bfloat16 or float16; leading dimensions are rows of one matrix.
    amax: None, or the tensor scale's amax. rht: 0, or the size of the Hadamard transform along the
    blocks. The others are fp4lab.quantize's.
    """
    d = _tables.dialect(dialect)
    array = _tensors.matrix(x)
    data, scales, numbers = _core.quantize(
        array,
        d.name,
        rounding_label(rounding),
        columnwise,
        _amaxes(amax, array, d, rht, sign_mask, columnwise),
        None,
        _source(seed, step, tensor, columnwise),
        rht,
        sign_mask,
        _sizes.layout_of(d, scale_layout),
        _tensors.threads(),
    )
    return _tensors.tensor(data), _tensors.tensor(scales), _tensors.tensor(numbers)


@quantize.register_fake
def _(
    x,
    dialect="nvfp4.te",
    amax=None,
    columnwise=False,
    rht=0,
    sign_mask=TE_SIGN_MASK,
    rounding="nearest",
    seed=None,
    step=0,
    tensor=0,
    scale_layout="linear",
):
    _tensors.check_numbers(x, "x")
    rows, cols = _tensors.rows_and_columns(x)
    if columnwise:
        rows, cols = cols, rows
    d = _tables.dialect(dialect)
    data, scales, amaxes = _sizes.sizes_of(d, rows, cols, scale_layout)
    return (
        x.new_empty(data, dtype=torch.uint8),
        x.new_empty(scales, dtype=_sizes.scale_type(d.name)),
        x.new_empty((amaxes,), dtype=torch.float32),
    )


@torch.library.custom_op("fp4lab::dequantize", mutates_args=())
@_ieee.ieee
def dequantize(
    data: Tensor,
    scale_inv: Tensor,
    amax: Tensor,
    shape: Sequence[int],
    dialect: str = "nvfp4.te",
    columnwise: bool = False,
    scale_layout: str = "linear",
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """The values of quantized bytes, (rows, columns) as `shape` says, rounded to `dtype`.

    shape: of the tensor before it was quantized. columnwise: data is of the transposed tensor.
    """
    d = _tables.dialect(dialect)
    rows, cols = reversed(shape) if columnwise else shape
    parts = (
        _tensors.codes(data, "data"),
        _tensors.scale_bytes(scale_inv, "scale_inv"),
        _tensors.floats(amax, "amax"),
    )
    values = _tensors.tensor(
        _core.dequantize(d.name, rows, cols, _sizes.layout_of(d, scale_layout), parts)
    ).to(dtype)
    return values.T.contiguous() if columnwise else values


@dequantize.register_fake
def _(
    data,
    scale_inv,
    amax,
    shape,
    dialect="nvfp4.te",
    columnwise=False,
    scale_layout="linear",
    dtype=torch.float32,
):
    _tensors.check_cpu(data, "data")
    rows, cols = shape
    return data.new_empty((rows, cols), dtype=dtype)


@torch.library.custom_op("fp4lab::qdq", mutates_args=())
@_ieee.ieee
def qdq(
    x: Tensor,
    dialect: str = "nvfp4.te",
    amax: Tensor | None = None,
    rounding: str = "nearest",
    seed: int | None = None,
    step: int = 0,
    tensor: int = 0,
) -> Tensor:
    """x quantized and decoded (fake quantization), of x's shape and type.

    Blocks lie along the last dimension. Values in bfloat16 and float16 are the float32 values,
    rounded. The gradient passes straight through.
    """
    d = _tables.dialect(dialect)
    array = _tensors.matrix(x)
    out = torch.empty(x.shape, dtype=torch.float32)
    _core.qdq(
        array,
        out.numpy().reshape(array.shape),
        d.name,
        rounding_label(rounding),
        _amaxes(amax, array, d, 0, TE_SIGN_MASK, False),
        None,
        _source(seed, step, tensor, False),
        _tensors.threads(),
    )
    return out.to(x.dtype)


@qdq.register_fake
def _(x, dialect="nvfp4.te", amax=None, rounding="nearest", seed=None, step=0, tensor=0):
    _tensors.check_numbers(x, "x")
    _tensors.rows_and_columns(x)
    _tables.dialect(dialect)
    return x.new_empty(x.shape)


qdq.register_autograd(lambda ctx, gradient: (gradient,) + (None,) * 6)


@torch.library.custom_op("fp4lab::amax", mutates_args=())
@_ieee.ieee
def amax(
    x: Tensor, rht: int = 0, sign_mask: int = TE_SIGN_MASK, columnwise: bool = False
) -> Tensor:
    """max |x| as a float32 tensor without dimensions; NaN is ignored, an empty tensor gives 0.

    rht: 0, or the size of the Hadamard transform whose result is measured.
    """
    numbers = _core.amax(_tensors.matrix(x), "nvfp4.te", rht, sign_mask, columnwise)
    return _tensors.tensor(numbers).reshape(())


@amax.register_fake
def _(x, rht=0, sign_mask=TE_SIGN_MASK, columnwise=False):
    _tensors.check_numbers(x, "x")
    _tensors.rows_and_columns(x)
    return x.new_empty((), dtype=torch.float32)


@torch.library.custom_op("fp4lab::rht", mutates_args=())
@_ieee.ieee
def rht(x: Tensor, size: int = 16, sign_mask: int = TE_SIGN_MASK, axis: int = -1) -> Tensor:
    """The random Hadamard transform of groups of `size` along an axis, of x's shape and type.

    x holds bfloat16 values, and so does the result. sign_mask: bit i negates element i of a group.
    """
    turned = x.movedim(axis, -1)
    out = _tensors.tensor(_core.rht(_tensors.matrix(turned), size, sign_mask, False))
    return out.reshape(turned.shape).movedim(-1, axis).to(x.dtype).contiguous()


@rht.register_fake
def _(x, size=16, sign_mask=TE_SIGN_MASK, axis=-1):
    _tensors.check_numbers(x, "x")
    _tensors.rows_and_columns(x)
    return x.new_empty(x.shape)


def _keep_transform(ctx, inputs, output) -> None:
    _, ctx.size, ctx.sign_mask, ctx.axis = inputs


@_eager.ieee
def _undo_transform(ctx, gradient):
    """dx = dy H^T for y = x H; H is taken from the operator itself, and the product is torch's."""
    n = ctx.size
    h = rht(torch.eye(n), n, ctx.sign_mask)
    turned = gradient.movedim(ctx.axis, -1)
    groups = turned.reshape(*turned.shape[:-1], -1, n).float()
    dx = (groups @ h.T).reshape(turned.shape).movedim(-1, ctx.axis)
    return dx.to(gradient.dtype), None, None, None


rht.register_autograd(_undo_transform, setup_context=_keep_transform)


@torch.library.custom_op("fp4lab::scaled_mm", mutates_args=())
@_ieee.ieee
def scaled_mm(
    a_data: Tensor,
    a_scale_inv: Tensor,
    a_amax: Tensor | None,
    b_data: Tensor,
    b_scale_inv: Tensor,
    b_amax: Tensor | None,
    k: int,
    a_dialect: str = "nvfp4.te",
    b_dialect: str = "nvfp4.te",
    a_scale_layout: str = "linear",
    b_scale_layout: str = "linear",
    alpha: float | None = None,
    alpha_rule: str = "",
    bias: Tensor | None = None,
    accumulation: str = "block",
    dtype: torch.dtype = torch.bfloat16,
) -> Tensor:
    """a b^T of quantized bytes, (lines of a, lines of b) of `dtype`, as fp4lab.scaled_mm adds.

    a_data, b_data: (lines, bytes of k elements). alpha: the factor of the tensor scales; None: made
    of the amaxes by `alpha_rule` ("": Transformer Engine's reference).
    """
    operands = []
    for name, data, scales, numbers, dialect, layout in (
        ("a", a_data, a_scale_inv, a_amax, a_dialect, a_scale_layout),
        ("b", b_data, b_scale_inv, b_amax, b_dialect, b_scale_layout),
    ):
        d = _tables.dialect(dialect)
        parts = (
            _tensors.codes(data, f"{name}_data"),
            _tensors.scale_bytes(scales, f"{name}_scale_inv"),
            _tensors.floats(numbers, f"{name}_amax"),
        )
        _sizes.check_scales(scales, f"{name}_scale_inv", d, _lines(data, f"{name}_data"), k, layout)
        operands.append((d.name, _lines(data, f"{name}_data"), k, _sizes.layout_of(d, layout), parts))
    if dtype not in _OUTPUTS:
        raise TypeError(f"dtype {dtype} is not one of: float32, bfloat16, float16")
    values = _core.product(
        *operands,
        alpha,
        alpha_rule,
        _tensors.floats(bias, "bias"),
        _products._NAMES.get(accumulation, accumulation),
        _products.output_name(_OUTPUTS[dtype]),
        _tensors.threads(),
    )
    return _tensors.tensor(values).to(dtype)


def _lines(data: Tensor, name: str):
    if data.dim() != 2:
        raise ValueError(f"{name} has the shape {tuple(data.shape)}: an operand is (lines, bytes)")
    return data.shape[0]


@scaled_mm.register_fake
def _(
    a_data,
    a_scale_inv,
    a_amax,
    b_data,
    b_scale_inv,
    b_amax,
    k,
    a_dialect="nvfp4.te",
    b_dialect="nvfp4.te",
    a_scale_layout="linear",
    b_scale_layout="linear",
    alpha=None,
    alpha_rule="",
    bias=None,
    accumulation="block",
    dtype=torch.bfloat16,
):
    _tensors.check_cpu(a_data, "a_data")
    return a_data.new_empty((_lines(a_data, "a_data"), _lines(b_data, "b_data")), dtype=dtype)


def _typed(dialect: str, scale: str) -> None:
    d = _tables.dialect(dialect)
    if (d.element, d.scale) != ("float4_e2m1fn", scale):
        raise ValueError(
            f"{d.name} has {d.element} elements and {d.scale} scales, not float4_e2m1fn and {scale}"
        )


@torch.library.custom_op("fp4lab::nvfp4_quantize", mutates_args=())
@_ieee.ieee
def nvfp4_quantize(
    x: Tensor, amax: Tensor | None = None, dialect: str = "nvfp4.te", scale_layout: str = "linear"
) -> tuple[Tensor, Tensor, Tensor]:
    """quantize in torch's types: (float4_e2m1fn_x2 codes, float8_e4m3fn scales, amax)."""
    _typed(dialect, "float8_e4m3fn")
    data, scales, numbers = quantize(x, dialect, amax, scale_layout=scale_layout)
    return data.view(torch.float4_e2m1fn_x2), scales.view(torch.float8_e4m3fn), numbers


@nvfp4_quantize.register_fake
def _(x, amax=None, dialect="nvfp4.te", scale_layout="linear"):
    _typed(dialect, "float8_e4m3fn")
    data, scales, numbers = quantize(x, dialect, amax, scale_layout=scale_layout)
    return (
        data.new_empty(data.shape, dtype=torch.float4_e2m1fn_x2),
        scales.new_empty(scales.shape, dtype=torch.float8_e4m3fn),
        numbers,
    )


@torch.library.custom_op("fp4lab::mxfp4_quantize", mutates_args=())
@_ieee.ieee
def mxfp4_quantize(
    x: Tensor, dialect: str = "mxfp4.rceil", scale_layout: str = "linear"
) -> tuple[Tensor, Tensor]:
    """quantize in torch's types: (float4_e2m1fn_x2 codes, float8_e8m0fnu scales)."""
    _typed(dialect, "float8_e8m0fnu")
    data, scales, _ = quantize(x, dialect, scale_layout=scale_layout)
    return data.view(torch.float4_e2m1fn_x2), scales.view(torch.float8_e8m0fnu)


@mxfp4_quantize.register_fake
def _(x, dialect="mxfp4.rceil", scale_layout="linear"):
    _typed(dialect, "float8_e8m0fnu")
    data, scales, _ = quantize(x, dialect, scale_layout=scale_layout)
    return (
        data.new_empty(data.shape, dtype=torch.float4_e2m1fn_x2),
        scales.new_empty(scales.shape, dtype=torch.float8_e8m0fnu),
    )
