"""libfp4lab's FFI calls as operations on matrices that JAX maps (vmap) and partitions over devices.

A partitioned call gives the bytes of the call on one device: quantization and transform run on each device's
part, the amax is that of the whole matrix, and a product keeps its reduction axis whole on every device, so
that no sum is split. Stochastic rounding takes its random words by an element's place in the whole matrix; each
device then computes the whole.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import sequential_vmap
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import NamedSharding, PartitionSpec

try:
    from fp4lab import _xla
except ImportError as error:
    raise ImportError(
        "fp4lab.jax: this build has no module of XLA FFI handlers: install with "
        "--config-settings=cmake.define.FP4LAB_PYTHON_XLA=ON (fp4lab/te_jax/README.md)"
    ) from error

SIGN_MASK = 0xD7E8
FP4, E4M3, BF16, F32 = jnp.float4_e2m1fn, jnp.float8_e4m3fn, jnp.bfloat16, jnp.float32

Axes = Any  # of a dimension: None, the name of a mesh axis, or a tuple of names
Result = tuple[tuple[int, ...], Any]


@functools.cache
def _register() -> None:
    for name, target in _xla.registrations().items():
        jax.ffi.register_ffi_target(f"fp4lab_{name}", target, platform="cpu")


def _call(name: str, results: Sequence[Result], *operands: Any, **attributes: Any) -> Any:
    _register()
    call = jax.ffi.ffi_call(f"fp4lab_{name}", [jax.ShapeDtypeStruct(*r) for r in results])
    return call(*operands, **attributes)


def pad(n: int, multiple: int) -> int:
    return -(-n // multiple) * multiple


# ---- Partitioning ----------------------------------------------------------------------------------


def _spec(array: jax.ShapeDtypeStruct) -> list[Axes]:
    """The mesh axes of each dimension; all None for a sharding without names."""
    spec = list(getattr(array.sharding, "spec", ()))
    return spec + [None] * (len(array.shape) - len(spec))


def _names(axes: Axes) -> tuple[str, ...]:
    return () if axes is None else (axes,) if isinstance(axes, str) else tuple(axes)


def _kept(mesh: Any, size: int, axes: Axes, multiple: int) -> Axes:
    """The axes over which `size` is split, None where a part would be no multiple of `multiple`."""
    parts = math.prod(mesh.shape[name] for name in _names(axes))
    return axes if size % (parts * multiple) == 0 else None


# The sharding of operands and results from what the partitioner found, and the program of a device.
Plan = Callable[[Any, Sequence[Any], Sequence[Any]], tuple[Callable[..., Any], list[list[Axes]], list[list[Axes]]]]


def _partitioned(function: Callable[..., Any], plan: Plan, rule: Callable[..., tuple[str, dict[str, Any]]]) -> Any:
    """`function` of arrays, a tuple of arrays out, with its rule for Shardy and its plan for a device."""

    def shard(mesh: Any, specs: Sequence[Sequence[Axes]]) -> tuple[NamedSharding, ...]:
        return tuple(NamedSharding(mesh, PartitionSpec(*spec)) for spec in specs)

    def partition(mesh: Any, operands: Sequence[Any], results: Sequence[Any]) -> Any:
        if mesh.empty:
            raise ValueError("fp4lab.jax: operands on several devices need a named mesh: jax.set_mesh(mesh)")
        local, operand_specs, result_specs = plan(mesh, operands, results)
        return mesh, local, shard(mesh, result_specs), shard(mesh, operand_specs)

    operation = custom_partitioning(lambda *arrays: function(*arrays))  # it takes no keywords
    operation.def_partition(
        partition, sharding_rule=lambda mesh, operands, results: rule([o.shape for o in operands])
    )
    return sequential_vmap(operation)


def _rule(text: str, *, whole: Sequence[str] = (), **sizes: int) -> tuple[str, dict[str, Any]]:
    """Shardy's rule; dimensions named in `whole` are not split. It wants them in the order of the text."""
    order = re.findall(r"\w+", text)
    return text, dict(need_replication_factors=tuple(sorted(whole, key=order.index)), **sizes)


# ---- amax ------------------------------------------------------------------------------------------


def _amaxes_of(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    return tuple(
        _call(
            "te_rht_amax_ffi", [((1,), F32)] * 2, x, rht_matrix_random_sign_mask_t=np.int64(SIGN_MASK),
            produce_regular_amax=True, flatten_axis=np.int64(1),
        )
    )  # fmt: skip


def _amaxes_plan(mesh: Any, operands: Sequence[Any], results: Sequence[Any]) -> Any:
    (x,) = operands
    rows, cols = _spec(x)
    spec = [_kept(mesh, x.shape[0], rows, 16), cols]
    names = _names(spec[0]) + _names(spec[1])

    def local(x: jax.Array) -> tuple[jax.Array, ...]:
        # The maximum by the bits: these order numbers >= 0, and XLA flushes subnormal ones.
        bits = [jax.lax.bitcast_convert_type(amax, jnp.int32) for amax in _amaxes_of(x)]
        return tuple(jax.lax.bitcast_convert_type(jax.lax.pmax(b, names) if names else b, F32) for b in bits)

    return local, [spec], [[None], [None]]


# (amax of x, amax of the transform of its columns), (1,) float32 each; NaN ignored. x (rows, cols) bfloat16,
# rows a multiple of 16.
amaxes = _partitioned(_amaxes_of, _amaxes_plan, lambda shapes: _rule("i j -> k, k", whole="k"))


# ---- The random Hadamard transform -----------------------------------------------------------------


def _rht(x: jax.Array, *, sign_mask: int) -> tuple[jax.Array, ...]:
    return (_call("rht_ffi", [(x.shape, BF16)], x, sign_mask=np.int64(sign_mask))[0],)


@functools.cache
def rht(sign_mask: int) -> Callable[[jax.Array], tuple[jax.Array]]:
    """The transform of groups of 16 along the rows of x (rows, cols) bfloat16."""
    function = functools.partial(_rht, sign_mask=sign_mask)

    def plan(mesh: Any, operands: Sequence[Any], results: Sequence[Any]) -> Any:
        (x,) = operands
        rows, cols = _spec(x)
        spec = [rows, _kept(mesh, x.shape[1], cols, 16)]
        return function, [spec], [spec]

    return _partitioned(
        function, plan, lambda shapes: _rule("i (cb c) -> i (cb c)", cb=shapes[0][1] // 16, c=16)
    )


def hadamard(sign_mask: int) -> np.ndarray:
    """Transformer Engine's matrix diag(signs) H / 4, (16, 16) bfloat16."""
    i = np.arange(16)
    parity = np.array([[bin(a & b).count("1") & 1 for b in i] for a in i])
    signs = np.where(sign_mask >> i & 1, -1.0, 1.0)
    return (signs[:, None] * np.where(parity, -0.25, 0.25)).astype(BF16)


# ---- Quantization ----------------------------------------------------------------------------------


def _quantize(
    x: jax.Array, plain: jax.Array, of_columns: jax.Array, matrix: jax.Array, *words: jax.Array,
    square: bool, both: bool, use_rht: bool,
) -> tuple[jax.Array, ...]:
    rows, cols = x.shape
    one = ((1,), F32)
    row_data, column_data, row_scale, column_scale, *_ = _call(
        "te_dbias_quantize_ffi",
        [((rows, cols), FP4), ((cols, rows) if both else (1,), FP4),
         ((pad(rows, 128), pad(cols // 16, 4)), E4M3),
         ((pad(cols, 128), pad(rows // 16, 4)) if both else (1,), E4M3), one, ((1,), BF16), one],
        x, jnp.ones(1), plain, words[0] if words else jnp.zeros(0, jnp.uint32), of_columns, matrix,
        scaling_mode=np.int64(5 if square else 4), q_layout=np.int64(2 if both else 0), is_dbias=False,
        flatten_axis=np.int64(1), stochastic_rounding=bool(words), use_rht=use_rht,
    )  # fmt: skip
    of_rows = row_data, row_scale[:rows, : cols // 16]
    return (*of_rows, column_data, column_scale[:cols, : rows // 16]) if both else of_rows


@functools.cache
def quantize(*, square: bool, both: bool, use_rht: bool, stochastic: bool) -> Callable[..., tuple[jax.Array, ...]]:
    """(codes (rows, cols), scales (rows, cols / 16)) of x, and with `both` those of its columns.

    Operands: x (rows, cols) bfloat16 in multiples of 16, its amax, that of what the columns quantize,
    hadamard(), and if `stochastic` four uint32. `square`: blocks of 16x16, whose scale is repeated a line.
    """
    function = functools.partial(_quantize, square=square, both=both, use_rht=use_rht)

    def plan(mesh: Any, operands: Sequence[Any], results: Sequence[Any]) -> Any:
        rows, cols = [
            None if stochastic else _kept(mesh, size, axes, 16)
            for size, axes in zip(operands[0].shape, _spec(operands[0]))
        ]
        outputs = [[rows, cols]] * 2 + ([[cols, rows]] * 2 if both else [])
        return function, [[rows, cols], *([None] * len(o.shape) for o in operands[1:])], outputs

    def rule(shapes: Sequence[Sequence[int]]) -> tuple[str, dict[str, Any]]:
        rows, cols = shapes[0]
        text = "(rb r) (cb c), k, k, m n" + (", w" if stochastic else "") + " -> (rb r) (cb c), (rb r) cb"
        text += ", (cb c) (rb r), (cb c) rb" if both else ""
        sizes = dict(r=16, c=16) | ({} if both else dict(rb=rows // 16))
        return _rule(text, whole=("k", "m", "n", *(["w"] if stochastic else [])), **sizes)

    return _partitioned(function, plan, rule)


# ---- Products --------------------------------------------------------------------------------------


def _matmul(
    a: jax.Array, a_scale: jax.Array, b: jax.Array, b_scale: jax.Array, bias: jax.Array, alpha: jax.Array, *, dtype: Any
) -> tuple[jax.Array, ...]:
    config = dict(
        scaling_mode=np.int64(4), collective_op=np.int64(0), lhs_axis_boundary=np.int64(1),
        rhs_axis_boundary=np.int64(1), lhs_transposed=False, rhs_transposed=True, use_split_accumulator=False,
    )  # fmt: skip
    out, _ = _call(
        "te_gemm_v2_ffi", [((a.shape[0], b.shape[0]), dtype), ((1,), jnp.uint8)],
        a, a_scale, b, b_scale, bias, alpha, jnp.zeros(1), config=config,
    )  # fmt: skip
    return (out,)


@functools.cache
def matmul(dtype: Any) -> Callable[..., tuple[jax.Array]]:
    """dtype(alpha * a b^T + bias) of codes (lines, depth) and scales (lines, depth / 16); bias (lines of b,)
    of that type or (0,), alpha (1,) float32."""
    function = functools.partial(_matmul, dtype=dtype)

    def plan(mesh: Any, operands: Sequence[Any], results: Sequence[Any]) -> Any:
        m, n = [_kept(mesh, size, axes, 1) for size, axes in zip(results[0].shape, _spec(results[0]))]
        bias = [n] if operands[4].shape[0] else [None]
        return function, [[m, None], [m, None], [n, None], [n, None], bias, [None]], [[m, n]]

    def rule(shapes: Sequence[Sequence[int]]) -> tuple[str, dict[str, Any]]:
        bias = "n" if shapes[4][0] else "z"
        whole = ("k", "kb", "one") + (() if shapes[4][0] else ("z",))
        return _rule(f"m k, m kb, n k, n kb, {bias}, one -> m n", whole=whole)

    return _partitioned(function, plan, rule)
