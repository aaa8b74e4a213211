"""fp4lab.jax: quantize, scaled_mm and dense, by the oracle and by Transformer Engine's own layer."""

import importlib.util
import itertools
import sys

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import oracle
import pytest

import fp4lab
import fp4lab.jax as fj


def _normal(seed, *shape):
    return jax.random.normal(jax.random.PRNGKey(seed), shape, jnp.bfloat16)


def _codes(q):
    return np.asarray(q.data).astype(np.float32)


def _values(codes):
    return codes.astype(np.uint8).view(ml_dtypes.float4_e2m1fn).astype(np.float32)


@pytest.mark.parametrize("dialect", ["nvfp4.te", "nvfp4.te.2d"])
def test_quantize_equals_the_oracle(dialect):
    x = _normal(0, 64, 128)
    rows, columns = jax.jit(lambda x: fj.quantize(x, dialect, both=True))(x)
    f = np.asarray(x, np.float32)
    for q, lines in ((rows, f), (columns, np.ascontiguousarray(f.T))):
        codes, scales = oracle.quantize(lines, np.abs(f).max(), square=dialect.endswith("2d"))
        assert np.array_equal(_codes(q), _values(codes))
        got = np.asarray(q.scale_inv)[: scales.shape[0], : scales.shape[1]].view(np.uint8)
        assert np.array_equal(got, scales)


def test_square_blocks_round_stochastically_with_the_words_of_the_2d_kernel():
    """Transformer Engine's kernel takes them so, though none of its recipes does."""
    x = _normal(3, 160, 192)
    state = jnp.asarray([7, 1, 0xFFFFFFFE, 0], jnp.uint32)
    rows, columns = fj.quantize(x, "nvfp4.te.2d", both=True, rng_state=state)
    f = np.asarray(x, np.float32)
    bits = oracle.square_bits(160, 192, 7 | 1 << 32, 0xFFFFFFFE)
    for q, lines, bits in zip((rows, columns), (f, np.ascontiguousarray(f.T)), bits):
        codes, scales = oracle.quantize(lines, np.abs(f).max(), square=True, bits=bits)
        assert np.array_equal(_codes(q), _values(codes))
        got = np.asarray(q.scale_inv)[: scales.shape[0], : scales.shape[1]].view(np.uint8)
        assert np.array_equal(got, scales)


def test_rht_equals_the_oracle():
    x = _normal(1, 32, 64)
    assert np.array_equal(np.asarray(fj.rht(x), np.float32), oracle.rht(np.asarray(x, np.float32)))


def test_rht_sums_exactly():
    """2^30 + 1 - 2^30 in any order, of which binary32 loses the 1 in some; and numbers of wide range."""
    orders = np.zeros((6, 16), np.float32)  # elements 0 to 2 are not negated
    orders[:, :3] = list(itertools.permutations([2.0**30, 1.0, -(2.0**30)]))
    assert np.all(np.asarray(fj.rht(jnp.asarray(orders, jnp.bfloat16)), np.float32)[:, 0] == 0.25)
    scale = jnp.exp2(jnp.round(20 * jax.random.normal(jax.random.PRNGKey(2), (64, 64))))
    x = _normal(1, 64, 64) * scale.astype(jnp.bfloat16)
    assert np.array_equal(np.asarray(fj.rht(x), np.float32), fp4lab.rht(np.asarray(x).view(np.uint16)))


def test_scaled_mm_is_near_the_product_and_takes_a_bias():
    x, w = _normal(2, 64, 256), _normal(3, 96, 256)
    a, b = fj.quantize(x), fj.quantize(w)
    y = fj.scaled_mm(a, b, out_dtype=jnp.float32)
    exact = a.dequantize() @ b.dequantize().T
    assert np.allclose(y, exact, rtol=1e-4, atol=1e-3)
    bias = jnp.arange(96.0)
    assert np.allclose(fj.scaled_mm(a, b, bias=bias, out_dtype=jnp.float32), y + bias)


def test_dense_has_gradients_of_all_operands():
    x, w = _normal(4, 2, 64, 128), _normal(5, 128, 256)
    state = jnp.arange(4, dtype=jnp.uint32)
    g = _normal(6, 2, 64, 256)

    def loss(x, w):
        return jnp.sum((fj.dense(x, w, rng_state=state) * g).astype(jnp.float32))

    dx, dw = jax.jit(jax.grad(loss, argnums=(0, 1)))(x, w)
    exact_x, exact_w = jax.grad(lambda x, w: jnp.sum(((x @ w) * g).astype(jnp.float32)), argnums=(0, 1))(x, w)
    for got, exact in ((dx, exact_x), (dw, exact_w)):
        got, exact = np.asarray(got, np.float32), np.asarray(exact, np.float32)
        error = np.linalg.norm(got - exact) / np.linalg.norm(exact)
        assert 0.02 < error < 0.3


def test_vmap_is_a_loop():
    x, w = _normal(7, 3, 32, 64), _normal(8, 64, 32)
    mapped = jax.vmap(lambda x: fj.dense(x, w))(x)
    one_by_one = jnp.stack([fj.dense(x[i], w) for i in range(3)])
    assert np.array_equal(np.asarray(mapped, np.float32), np.asarray(one_by_one, np.float32))


def test_bad_arguments_are_refused():
    with pytest.raises(ValueError, match="multiples of 16"):
        fj.quantize(_normal(0, 17, 16))
    with pytest.raises(ValueError, match=r"the last axis must be a multiple of 16, not \(16, 17\)"):
        fj.rht(_normal(0, 16, 17))
    with pytest.raises(ValueError, match="blocks of 16x16 take no transform"):
        fj.quantize(_normal(0, 16, 16), "nvfp4.te.2d", rht=True)
    with pytest.raises(TypeError, match="rng_state has dtype float64: four uint32"):
        fj.quantize(jnp.zeros((16, 16)), rng_state=[1.7, 0, 0, 0])
    with pytest.raises(ValueError, match="dialect 'mxfp4' is none of"):
        fj.quantize(_normal(0, 16, 16), "mxfp4")


def test_a_build_without_handlers_says_how_to_get_them(monkeypatch):
    spec = importlib.util.find_spec("fp4lab.jax._calls")
    monkeypatch.delattr(fp4lab, "_xla")
    monkeypatch.setitem(sys.modules, "fp4lab._xla", None)
    with pytest.raises(ImportError, match="no module of XLA FFI handlers: install with .*FP4LAB_PYTHON_XLA=ON"):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
