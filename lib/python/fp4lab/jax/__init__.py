"""NVFP4 quantization, products and a dense layer for JAX on the CPU, computed by libfp4lab through XLA's FFI.

All functions work under jit, vmap, and on arrays that are sharded over the devices of a mesh, where they return the
bytes of one device: no result depends on the sharding. Leading axes are batch axes: they run as rows of one matrix
(quantize, rht, dense), and under vmap one after the other, each with an amax of its own.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .. import _ieee
from . import _calls

__all__ = ["QArray", "QwixProvider", "RECIPES", "amax", "dense", "quantize", "rht", "scaled_mm"]

SIGN_MASK = _calls.SIGN_MASK
# The recipes of QwixProvider: whether both operands of the kernel's gradient take the transform.
RECIPES = {"te_nvfp4": True, "te_nvfp4_no_rht": False}
_SQUARE = {"nvfp4.te": False, "nvfp4.te.2d": True}


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
    return _calls.amaxes(_matrix(x))[1 if rht else 0]


def rht(x, *, sign_mask: int = SIGN_MASK) -> jax.Array:
    """The 16-point random Hadamard transform of groups along the last axis: exact sums, rounded to bfloat16."""
    if x.ndim < 1 or x.shape[-1] % 16:
        raise ValueError(f"fp4lab.jax: the last axis must be a multiple of 16, not {x.shape}")
    matrix = x.reshape(-1, x.shape[-1]).astype(jnp.bfloat16)
    return _calls.rht(sign_mask)(matrix)[0].reshape(x.shape)


def _padded(data, scale, amax) -> QArray:
    lines, blocks = scale.shape
    padding = (0, _calls.pad(lines, 128) - lines), (0, _calls.pad(blocks, 4) - blocks)
    return QArray(data, jnp.pad(scale, padding), amax)


def _words(rng_state) -> jax.Array:
    """rng_state as uint32; TypeError for floats and bools, which would be cut to integers."""
    state = rng_state if hasattr(rng_state, "dtype") else np.asarray(rng_state)
    if not np.issubdtype(state.dtype, np.integer):
        raise TypeError(f"fp4lab.jax: rng_state has dtype {state.dtype}: four uint32 are taken")
    return jnp.asarray(state, jnp.uint32)


def quantize(x, dialect: str = "nvfp4.te", *, both: bool = False, rht: bool = False, rng_state=None):
    """x (..., features) bfloat16 as a QArray of its rows, or (rows, columns) with `both`.

    dialect: "nvfp4.te" (1x16 blocks) or "nvfp4.te.2d" (16x16).
    rht: the columns take the random Hadamard transform, and the amax of its result.
    rng_state: four uint32 for stochastic rounding (seed and offset, low words first); None: nearest even.
    """
    if dialect not in _SQUARE:
        raise ValueError(f"fp4lab.jax: dialect {dialect!r} is none of {sorted(_SQUARE)}")
    square, stochastic = _SQUARE[dialect], rng_state is not None
    if square and rht:
        raise ValueError("fp4lab.jax: blocks of 16x16 take no transform")
    x = _matrix(x).astype(jnp.bfloat16)
    rows, cols = x.shape
    if rows % 16 or cols % 16:
        raise ValueError(f"fp4lab.jax: rows and columns must be multiples of 16, not {x.shape}")
    plain, transformed = _calls.amaxes(x)
    of_columns = transformed if rht else plain
    words = [_words(rng_state)] if stochastic else []
    call = _calls.quantize(square=square, both=both, use_rht=rht, stochastic=stochastic)
    parts = call(x, plain, of_columns, jnp.asarray(_calls.hadamard(SIGN_MASK)), *words)
    of_rows = _padded(*parts[:2], plain)
    return (of_rows, _padded(*parts[2:], of_columns)) if both else of_rows


def scaled_mm(a: QArray, b: QArray, *, bias=None, out_dtype=jnp.bfloat16) -> jax.Array:
    """a b^T, (lines of a, lines of b): block sums added in ascending order, one rounding to out_dtype at the end.

    alpha = fl(fl(amax_a / 2688) * fl(amax_b / 2688)), which XLA compiles to products with fl(1/2688).
    """
    if a.data.shape[1] != b.data.shape[1]:
        raise ValueError(f"fp4lab.jax: operands of different depth, {a.data.shape} and {b.data.shape}")
    alpha = (a.amax / 2688) * (b.amax / 2688)
    bias = jnp.zeros(0, out_dtype) if bias is None else bias.astype(out_dtype)
    return _calls.matmul(jnp.dtype(out_dtype))(*_scaled(a), *_scaled(b), bias, alpha)[0]


def _scaled(q: QArray) -> tuple[jax.Array, jax.Array]:
    lines, length = q.data.shape
    return q.data, q.scale_inv[:lines, : length // 16]


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


def __getattr__(name: str) -> Any:
    if name == "QwixProvider":  # qwix and flax are imported where it is used
        from ._qwix import QwixProvider

        return QwixProvider
    raise AttributeError(f"module 'fp4lab.jax' has no attribute {name!r}")


_ieee.guard(globals())
