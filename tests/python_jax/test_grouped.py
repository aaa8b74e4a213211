"""Transformer Engine's grouped operators: the tokens of each expert are a tensor of their own."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import oracle
import pytest
import transformer_engine.jax.cpp_extensions as tex
from transformer_engine.jax.dense import grouped_dense
from transformer_engine.jax.quantize import QuantizeLayout, QuantizerFactory, ScalingMode, noop_quantizer_set

import fp4lab.te_jax as te
from fp4lab import _xla

_TYPES = {"float8_e4m3fn": (ml_dtypes.float8_e4m3fn, 448), "float8_e5m2": (ml_dtypes.float8_e5m2, 57344)}
_SIZES = (64, 0, 32, 96)  # rows of the groups: one is empty
_TENSOR_SCALES = [ScalingMode.DELAYED_TENSOR_SCALING, ScalingMode.CURRENT_TENSOR_SCALING]


def _data(shape, seed, sizes=None):
    """Normal numbers in bfloat16; the amax of each group is another one."""
    x = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    for i, rows in enumerate(np.split(x, np.cumsum(sizes)[:-1]) if sizes else x):
        rows *= 4.0**i
    return jnp.asarray(x, jnp.bfloat16)


def _quantize(x, sizes, mode, layout, dtype=jnp.float8_e4m3fn):
    groups = len(sizes) if sizes is not None else x.shape[0]
    quantizer = QuantizerFactory.create(scaling_mode=mode, q_dtype=dtype, q_layout=layout, n_groups=groups)
    with te.recording() as recorded:
        given = None if sizes is None else jnp.asarray(sizes, jnp.int32)
        jax.block_until_ready(tex.grouped_quantize(x, quantizer, given, flatten_axis=-1))
    (call,) = [c for c in recorded.calls if c.op.startswith("te_grouped_quantize")]
    return call


def _groups(x, sizes):
    """The matrices of the groups that have rows, float32."""
    x = np.asarray(x, np.float32)
    split = np.split(x, np.cumsum(sizes)[:-1]) if sizes is not None else list(x)
    return [g for g in split if g.size]


def _fp8(v, dtype):
    kind, largest = _TYPES[dtype]
    return np.clip(v, -largest, largest).astype(kind).view(np.uint8)


def _mx(lines, dtype):
    """Codes and E8M0 bytes of (lines, length) in MXFP8 by the rule rceil."""
    _, largest = _TYPES[dtype]
    b = np.abs(lines).reshape(lines.shape[0], -1, 32).max(-1)
    t = (b * np.float32(1 / np.float32(largest))).astype(np.float32).view(np.uint32)
    s = np.clip((t >> 23) + ((t & 0x7FFFFF) != 0), 0, 254).astype(np.uint8)
    v = lines * np.repeat(np.exp2(127.0 - s.astype(np.float32)), 32, axis=1).astype(np.float32)
    return _fp8(v, dtype), s


def _tiles(s):
    """(lines, blocks) padded to whole tiles of 128 x 4 and stored tile by tile, by the index of each scale."""
    lines, blocks = s.shape
    wide = -(-blocks // 4)
    out = np.zeros(-(-lines // 128) * wide * 512, np.uint8)
    r, c = np.meshgrid(np.arange(lines), np.arange(blocks), indexing="ij")
    out[(r // 128 * wide + c // 4) * 512 + r % 32 * 16 + r % 128 // 32 * 4 + c % 4] = s
    return out


@pytest.mark.parametrize("mode", _TENSOR_SCALES)
@pytest.mark.parametrize("sizes", [_SIZES, None])
def test_fp8_groups_equal_numpy(mode, sizes):
    shape = (sum(_SIZES), 96) if sizes else (4, 64, 96)
    x = _data(shape, 1, sizes)
    call = _quantize(x, sizes, mode, QuantizeLayout.ROWWISE_COLWISE)
    scales = call.arrays["scale"]
    if sizes:
        scales = scales[np.array(sizes) > 0]
    groups = _groups(x, sizes)
    if mode == ScalingMode.CURRENT_TENSOR_SCALING:
        assert len(set(scales.tolist())) == len(groups)
    codes = [_fp8(g * s, call.dtypes["rowwise"]) for g, s in zip(groups, scales)]
    assert np.array_equal(call.arrays["rowwise"], np.concatenate([c.reshape(-1) for c in codes]))
    assert np.array_equal(call.arrays["colwise"], np.concatenate([c.T.reshape(-1) for c in codes]))
    # Results of the groups with rows come first, as Transformer Engine's kernel writes them.
    assert np.array_equal(call.arrays["scale_inv"][: len(groups)], np.float32(1) / scales)
    assert np.array_equal(call.arrays["amax"][: len(groups)], [np.abs(g).max() for g in groups])


@pytest.mark.parametrize("sizes", [_SIZES, (128, 0, 256, 128), None])
@pytest.mark.parametrize("dtype", [jnp.float8_e4m3fn, jnp.float8_e5m2])
def test_mxfp8_groups_equal_numpy(sizes, dtype):
    """The second sizes and widths of 128 take te_grouped_quantize_v2_ffi."""
    second = sizes is not None and sizes[0] == 128
    shape = (sum(sizes), 128 if second else 96) if sizes else (4, 64, 96)
    x = _data(shape, 2, sizes)
    call = _quantize(x, sizes, ScalingMode.MXFP8_1D_SCALING, QuantizeLayout.ROWWISE_COLWISE, dtype)
    assert call.op == ("te_grouped_quantize_v2_ffi" if second else "te_grouped_quantize_ffi")
    groups = _groups(x, sizes)
    for data, scales, way in (("rowwise", "scale_inv", lambda g: g), ("colwise", "colwise_scale_inv", lambda g: g.T)):
        both = [_mx(np.ascontiguousarray(way(g)), call.dtypes[data]) for g in groups]
        codes = np.concatenate([way(c).reshape(-1) for c, _ in both])  # columnwise codes lie as x does
        assert np.array_equal(call.arrays[data], codes)
        tiles = np.concatenate([_tiles(s) for _, s in both])
        assert np.array_equal(call.arrays[scales].reshape(-1)[: tiles.size], tiles)


def _decoded(call, side, i, matrix, offsets, mode, deep_scale):
    """Group i of a product's operand in float64, (lines, depth)."""
    kind = call.dtypes[side]
    flat = call.arrays[side].reshape(-1)[offsets[0] : offsets[0] + matrix[0] * matrix[1]]
    if kind in _TYPES:
        values = flat.view(_TYPES[kind][0]).astype(np.float64)
    else:
        values = oracle.bf16(flat).astype(np.float64) if kind == "bfloat16" else flat.astype(np.float64)
    depth_first = call.attributes["lhs_is_trans"] if side == "lhs" else not call.attributes["rhs_is_trans"]
    values = values.reshape(matrix[::-1]).T if depth_first else values.reshape(matrix)
    if mode == "mxfp8":
        lines, blocks = matrix[0], matrix[1] // 32
        wide = -(-blocks // 4)
        r, c = np.meshgrid(np.arange(lines), np.arange(blocks), indexing="ij")
        place = offsets[1] + (r // 128 * wide + c // 4) * 512 + r % 32 * 16 + r % 128 // 32 * 4 + c % 4
        s = np.exp2(call.arrays[f"{side}_scale_inv"].reshape(-1)[place].astype(np.float64) - 127)
        values = values * np.repeat(s, 32, axis=1)
    elif mode == "fp8":
        values = values * np.float64(call.arrays[f"{side}_scale_inv"].reshape(-1)[deep_scale])
    return values


def _check_product(call, sizes, mode):
    """Each group's result is the product of the group's decoded operands, to a BF16 rounding."""
    a = call.attributes
    deep = call.shapes["rhs_first_dims"] != (0,) or call.shapes["rhs_last_dims"] != (0,)
    m = a["lhs_right_size"] if a["lhs_is_trans"] else a["lhs_left_size"]
    k = a["lhs_left_size"] if a["lhs_is_trans"] else a["lhs_right_size"]
    n = a["rhs_left_size"] if a["rhs_is_trans"] else a["rhs_right_size"]
    if not deep and a["rhs_is_trans"]:
        n //= len(sizes)
    out = oracle.bf16(call.arrays["out"]).reshape(-1) if call.dtypes["out"] == "bfloat16" else call.arrays["out"]
    out = out.astype(np.float64).reshape(-1)
    lhs, rhs, place, walked = [0, 0], [0, 0], 0, 0
    for i, size in enumerate(sizes):
        mi, ki = (m, size) if deep else (size, k)
        got = out[place : place + mi * n].reshape(mi, n)
        place += mi * n
        if mi * ki:
            x = _decoded(call, "lhs", i, (mi, ki), lhs, mode, walked)
            w = _decoded(call, "rhs", i, (n, ki), rhs, mode, walked)
            bound = 2.0**-8 * np.abs(x @ w.T) + ki * 2.0**-23 * (np.abs(x) @ np.abs(w).T)
            assert np.all(np.abs(got - x @ w.T) <= bound)
            walked += 1
        else:
            assert not got.any()
        lhs[0] += mi * ki
        rhs[0] += n * ki
        lhs[1] += -(-mi // 128) * 512 * -(-ki // 128)
        rhs[1] += -(-n // 128) * 512 * -(-ki // 128)
    return deep


def _layer(mode, sizes, features=128, out=96, seed=3):
    """y, gradients and recorded calls of one grouped_dense under a loss whose gradient is no constant."""
    x = _data((sum(sizes), features), seed, sizes)
    kernel = _data((len(sizes), features, out), seed + 1)
    weights = np.random.default_rng(seed + 2).standard_normal((sum(sizes), out)).astype(np.float32)
    quantizers = noop_quantizer_set if mode is None else QuantizerFactory.create_set(
        scaling_mode=mode, fwd_dtype=jnp.float8_e4m3fn, bwd_dtype=jnp.float8_e5m2, is_2x2x=True, n_groups=len(sizes))

    def loss(x, kernel, quantizers):
        y = grouped_dense(x, kernel, jnp.asarray(sizes, jnp.int32), ((1,), (1,)), quantizer_set=quantizers)
        return jnp.sum(y.astype(jnp.float32) * weights), y

    step = jax.jit(jax.grad(loss, argnums=(0, 1), has_aux=True))
    with te.recording() as recorded:
        gradients, y = jax.block_until_ready(step(x, kernel, quantizers))
    return y, gradients, recorded.calls


@pytest.mark.parametrize("mode,name", [(None, "none"), (ScalingMode.MXFP8_1D_SCALING, "mxfp8"),
                                       (ScalingMode.CURRENT_TENSOR_SCALING, "fp8"),
                                       (ScalingMode.DELAYED_TENSOR_SCALING, "fp8")])
@pytest.mark.parametrize("sizes,out", [((64, 0, 32, 96), 96), ((128, 0, 256, 128), 128)])
def test_products_equal_their_decoded_operands(mode, name, sizes, out):
    y, gradients, calls = _layer(mode, sizes, out=out)
    products = [c for c in calls if c.op.startswith("te_grouped_gemm")]
    second = mode is None or (name == "mxfp8" and out == 128)
    assert {c.op for c in products} == {"te_grouped_gemm_v2_ffi" if second else "te_grouped_gemm_ffi"}
    assert sorted(_check_product(c, sizes, name) for c in products) == [False, False, True]
    outputs = [c.arrays["out"].reshape(-1) for c in products]
    for array in (y, *gradients):  # the products, untouched
        assert any(np.array_equal(np.asarray(array).view(np.uint16).reshape(-1), o) for o in outputs)
    assert not np.asarray(gradients[1], np.float32)[1].any()  # the expert without tokens


@pytest.mark.parametrize("mode", [ScalingMode.MXFP8_1D_SCALING, ScalingMode.CURRENT_TENSOR_SCALING])
def test_outputs_are_near_those_of_bf16(mode):
    sizes = (64, 32, 32, 96)
    exact_y, exact_gradients, calls = _layer(None, sizes)
    assert not any(c.op.startswith("te_grouped_quantize") for c in calls)
    y, gradients, _ = _layer(mode, sizes)
    for got, exact in zip((y, *gradients), (exact_y, *exact_gradients)):
        got, exact = np.asarray(got, np.float32), np.asarray(exact, np.float32)
        assert 1e-3 < np.linalg.norm(got - exact) / np.linalg.norm(exact) < 0.1


@pytest.mark.parametrize("mode", [None, ScalingMode.MXFP8_1D_SCALING])
def test_a_group_is_computed_as_if_alone(mode):
    sizes = (64, 32, 32, 96)
    y, (dx, dkernel), _ = _layer(mode, sizes)
    x, kernel = _data((sum(sizes), 128), 3, sizes), _data((4, 128, 96), 4)
    alone = QuantizerFactory.create_set(scaling_mode=mode, fwd_dtype=jnp.float8_e4m3fn, bwd_dtype=jnp.float8_e5m2,
                                        is_2x2x=True, n_groups=1) if mode else noop_quantizer_set
    for i, (begin, size) in enumerate(zip(np.cumsum((0, *sizes)), sizes)):
        part = grouped_dense(x[begin : begin + size], kernel[i : i + 1], jnp.asarray([size], jnp.int32), ((1,), (1,)),
                             quantizer_set=alone)
        assert np.array_equal(np.asarray(part).view(np.uint16), np.asarray(y[begin : begin + size]).view(np.uint16))
    assert dx.shape == x.shape and dkernel.shape == kernel.shape


def test_threads_change_no_bit():
    results = []
    for threads in (1, 2):
        _xla.set_threads(threads)
        y, gradients, _ = _layer(ScalingMode.MXFP8_1D_SCALING, (128, 0, 256, 128), out=128)
        results.append([np.asarray(a).view(np.uint16) for a in (y, *gradients)])
    _xla.set_threads(None)
    for one, two in zip(*results):
        assert np.array_equal(one, two)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16, jnp.float32])
def test_types_and_biases(dtype):
    sizes = (3, 0, 5)
    x = jnp.asarray(np.random.default_rng(5).standard_normal((8, 16)), dtype)
    kernel = jnp.asarray(np.random.default_rng(6).standard_normal((3, 16, 24)), dtype)
    bias = jnp.asarray(np.random.default_rng(7).standard_normal((3, 24)), dtype)
    y = grouped_dense(x, kernel, jnp.asarray(sizes, jnp.int32), ((1,), (1,)), bias=bias)
    assert y.dtype == dtype
    w = np.repeat(np.asarray(kernel, np.float64), sizes, axis=0)
    exact = np.einsum("mk,mkn->mn", np.asarray(x, np.float64), w) + np.repeat(np.asarray(bias, np.float64), sizes, 0)
    unit = {jnp.bfloat16: 2.0**-8, jnp.float16: 2.0**-11, jnp.float32: 2.0**-20}[dtype]
    assert np.all(np.abs(np.asarray(y, np.float64) - exact) <= unit * np.abs(exact) + 1e-5)


def test_calls_are_counted():
    te.clear_calls()
    _layer(ScalingMode.MXFP8_1D_SCALING, (128, 0, 256, 128), out=128)
    calls = te.calls()
    assert sum(n for c, n in calls.items() if c.startswith("te_grouped_gemm_v2_ffi scaling=mxfp8 groups=4")) == 3
    assert any(c.startswith("te_grouped_quantize_v2_ffi scaling=mxfp8 rows columns groups=4") for c in calls)


def test_bad_groups_are_errors_of_one_line():
    x, kernel = jnp.ones((96, 64), jnp.bfloat16), jnp.ones((2, 64, 32), jnp.bfloat16)
    with pytest.raises(Exception, match=r"fp4lab: te_grouped_quantize_ffi: groups of 128 rows do not fit x \(96, 64\)"):
        _quantize(x, (64, 64), ScalingMode.CURRENT_TENSOR_SCALING, QuantizeLayout.ROWWISE)
    with pytest.raises(Exception, match="fp4lab: te_grouped_quantize_ffi: MXFP8 takes groups with rows and columns in"):
        _quantize(x, (48, 48), ScalingMode.MXFP8_1D_SCALING, QuantizeLayout.ROWWISE)
    with pytest.raises(Exception, match="fp4lab: te_grouped_gemm_v2_ffi: groups of 128 do not fit an axis of 96"):
        jax.block_until_ready(grouped_dense(x, kernel, jnp.asarray((64, 64), jnp.int32), ((1,), (1,))))
    with pytest.raises(Exception, match="fp4lab: te_grouped_gemm_v2_ffi: group 1 has -32 rows: a size is 0 or more"):
        jax.block_until_ready(grouped_dense(x, kernel, jnp.asarray((128, -32), jnp.int32), ((1,), (1,))))
