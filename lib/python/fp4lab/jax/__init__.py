"""NVFP4 quantization, products and a dense layer for JAX on the CPU, computed by libfp4lab through XLA's FFI.

All functions work under jit. Leading axes are batch axes: they run as rows of one matrix (quantize, rht, dense)
and under vmap one after the other.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fp4lab import _xla

__all__ = ["QArray", "amax", "dense", "quantize", "rht", "scaled_mm"]

SIGN_MASK = 0xD7E8
_MODES = {"nvfp4.te": 4, "nvfp4.te.2d": 5}


@functools.cache
def _register() -> None:
    for name, target in _xla.registrations().items():
        jax.ffi.register_ffi_target(f"fp4lab_{name}", target, platform="cpu")


def _call(name, results, *operands, **attributes):
    _register()
    call = jax.ffi.ffi_call(
        f"fp4lab_{name}", [jax.ShapeDtypeStruct(*r) for r in results], vmap_method="sequential"
    )
    return call(*operands, **attributes)


def _pad(n: int, multiple: int) -> int:
    return -(-n // multiple) * multiple


class QArray(NamedTuple):
    """A quantized matrix (lines, length), its reduction axis last.

    data: (lines, length) float4_e2m1fn. scale_inv: (lines rounded up to 128, length / 16 rounded up to 4)
    float8_e4m3fn, row-major; blocks of 16x16 repeat theirs a line. amax: (1,) float32. A product divides
    by 2688 / amax, so that value = data * scale_inv * amax / 2688.
    """

    data: jax.Array
    scale_inv: jax.Array
    amax: jax.Array

    def dequantize(self, dtype=jnp.float32) -> jax.Array:
        lines, length = self.data.shape
        scale = self.scale_inv[:lines, : length // 16].astype(jnp.float32)
        factor = scale * self.amax[0] * np.float32(1 / 2688)
        return (self.data.astype(jnp.float32) * jnp.repeat(factor, 16, axis=1)).astype(dtype)


def _matrix(x) -> jax.Array:
    if x.ndim < 2:
        raise ValueError(f"fp4lab.jax: a matrix or more is needed, not shape {x.shape}")
    return x.reshape(-1, x.shape[-1])


def amax(x, *, rht: bool = False) -> jax.Array:
    """(1,) float32: max |x| of bfloat16 x, NaN ignored; with `rht` that of the transformed columns."""
    x = _matrix(x)
    plain, transformed = _call(
        "te_rht_amax_ffi", [((1,), jnp.float32)] * 2, x, rht_matrix_random_sign_mask_t=np.int64(SIGN_MASK),
        produce_regular_amax=True, flatten_axis=np.int64(1),
    )
    return transformed if rht else plain


def _hadamard(sign_mask: int) -> np.ndarray:
    i = np.arange(16)
    parity = np.array([[bin(a & b).count("1") & 1 for b in i] for a in i])
    signs = np.where(sign_mask >> i & 1, -1.0, 1.0)
    return (signs[:, None] * np.where(parity, -0.25, 0.25)).astype(jnp.bfloat16)


def rht(x, *, sign_mask: int = SIGN_MASK) -> jax.Array:
    """The 16-point random Hadamard transform of groups along the last axis, in float32, rounded to bfloat16."""
    groups = x.reshape(*x.shape[:-1], -1, 16).astype(jnp.float32)
    y = jnp.matmul(groups, jnp.asarray(_hadamard(sign_mask), jnp.float32), precision="highest")
    return y.astype(jnp.bfloat16).reshape(x.shape)


def quantize(x, dialect: str = "nvfp4.te", *, both: bool = False, rht: bool = False, rng_state=None):
    """x (..., features) bfloat16 as a QArray of its rows, or (rows, columns) with `both`.

    dialect: "nvfp4.te" (1x16 blocks) or "nvfp4.te.2d" (16x16).
    rht: the columns take the random Hadamard transform, and the amax of its result.
    rng_state: four uint32 for stochastic rounding (seed and offset, low words first); None: nearest even.
    """
    if dialect not in _MODES:
        raise ValueError(f"fp4lab.jax: dialect {dialect!r} is none of {sorted(_MODES)}")
    if dialect == "nvfp4.te.2d" and (rht or rng_state is not None):
        raise ValueError("fp4lab.jax: blocks of 16x16 take no transform and no stochastic rounding")
    x = _matrix(x).astype(jnp.bfloat16)
    rows, cols = x.shape
    if rows % 16 or cols % 16:
        raise ValueError(f"fp4lab.jax: rows and columns must be multiples of 16, not {x.shape}")
    plain = amax(x)
    of_columns = amax(x, rht=True) if rht else plain
    one = ((1,), jnp.float32)
    fp4, scale = jnp.float4_e2m1fn, jnp.float8_e4m3fn
    row_data, column_data, row_scale, column_scale, *_ = _call(
        "te_dbias_quantize_ffi",
        [((rows, cols), fp4), ((cols, rows) if both else (1,), fp4),
         ((_pad(rows, 128), _pad(cols // 16, 4)), scale),
         ((_pad(cols, 128), _pad(rows // 16, 4)) if both else (1,), scale), one, ((1,), jnp.bfloat16), one],
        x, jnp.ones(1), plain, jnp.zeros(0, jnp.uint32) if rng_state is None else jnp.asarray(rng_state, jnp.uint32),
        of_columns, jnp.asarray(_hadamard(SIGN_MASK)),
        scaling_mode=np.int64(_MODES[dialect]), q_layout=np.int64(2 if both else 0), is_dbias=False,
        flatten_axis=np.int64(1), stochastic_rounding=rng_state is not None, use_rht=rht,
    )
    of_rows = QArray(row_data, row_scale, plain)
    return (of_rows, QArray(column_data, column_scale, of_columns)) if both else of_rows


def scaled_mm(a: QArray, b: QArray, *, bias=None, out_dtype=jnp.bfloat16) -> jax.Array:
    """a b^T, (lines of a, lines of b): block sums added in ascending order, one rounding to out_dtype at the end.

    alpha = fl(fl(amax_a / 2688) * fl(amax_b / 2688)), which XLA compiles to products with fl(1/2688).
    """
    if a.data.shape[1] != b.data.shape[1]:
        raise ValueError(f"fp4lab.jax: operands of different depth, {a.data.shape} and {b.data.shape}")
    alpha = (a.amax / 2688) * (b.amax / 2688)
    bias = jnp.zeros(0, out_dtype) if bias is None else bias.astype(out_dtype)
    config = dict(
        scaling_mode=np.int64(4), collective_op=np.int64(0), lhs_axis_boundary=np.int64(1),
        rhs_axis_boundary=np.int64(1), lhs_transposed=False, rhs_transposed=True, use_split_accumulator=False,
    )
    out, _ = _call(
        "te_gemm_v2_ffi", [((a.data.shape[0], b.data.shape[0]), out_dtype), ((1,), jnp.uint8)],
        a.data, a.scale_inv, b.data, b.scale_inv, bias, alpha, jnp.zeros(1), config=config,
    )
    return out


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def _dense(x, kernel, rng_state, rht):
    return _dense_forward(x, kernel, rng_state, rht)[0]


def _dense_forward(x, kernel, rng_state, rht):
    x_rows, x_columns = quantize(x, both=True, rht=rht)
    kernel_rows, kernel_columns = quantize(kernel, "nvfp4.te.2d", both=True)
    y = scaled_mm(x_rows, kernel_columns).reshape(*x.shape[:-1], kernel.shape[1])
    return y, (x_columns, kernel_rows, rng_state, jnp.zeros((0, *x.shape), x.dtype), jnp.zeros(0, kernel.dtype))


def _dense_backward(rht, kept, dy):
    x_columns, kernel_rows, rng_state, x, kernel = kept
    dy_rows, dy_columns = quantize(dy, both=True, rht=rht, rng_state=rng_state)
    dx = scaled_mm(dy_rows, kernel_rows).reshape(x.shape[1:]).astype(x.dtype)
    dkernel = scaled_mm(x_columns, dy_columns).astype(kernel.dtype)
    no_gradient = None if rng_state is None else np.zeros(rng_state.shape, jax.dtypes.float0)
    return dx, dkernel, no_gradient


_dense.defvjp(_dense_forward, _dense_backward)


def dense(x, kernel, *, rng_state=None, rht: bool = True) -> jax.Array:
    """y = x kernel with Transformer Engine's NVFP4 recipe in all three products, bfloat16.

    x (..., in), kernel (in, out); the product of x's leading axes, in and out are multiples of 16.
    rng_state: four uint32, fresh for each use, for the stochastic rounding of the gradient; None: nearest even.
    rht: the random Hadamard transform on both operands of the kernel's gradient.
    """
    return _dense(x, kernel, rng_state, rht)
