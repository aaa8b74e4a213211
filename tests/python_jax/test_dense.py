"""The operands and products of one Transformer Engine dense layer, bit for bit."""

import dataclasses

import ml_dtypes
import numpy as np
import oracle
import pytest
import te_layer
from transformer_engine.common.recipe import NVFP4BlockScaling

import fp4lab.te_jax as te
from fp4lab import _xla


def _flat(call, name, lines):
    return call.arrays[name].reshape(lines, -1)


def _quantize_calls(calls):
    return [c for c in calls if c.op == "te_dbias_quantize_ffi"]


def _x(call):
    axis = call.attributes["flatten_axis"] % len(call.shapes["x"])
    rows = int(np.prod(call.shapes["x"][:axis]))
    return oracle.bf16(call.arrays["x"]).reshape(rows, -1)


def _seed(call):
    w = call.arrays["sr_rng_state"].reshape(-1).astype(np.uint64)
    return int(w[0] | w[1] << np.uint64(32)), int(w[2] | w[3] << np.uint64(32))


def _check_output(call, codes, scales, expected_codes, expected_scales):
    lines, blocks = expected_scales.shape
    assert np.array_equal(oracle.unpack(_flat(call, codes, lines)), expected_codes)
    padded = _flat(call, scales, -(-lines // 128) * 128)
    assert np.array_equal(padded[:lines, :blocks], expected_scales)


@pytest.mark.parametrize("disable_rht", [False, True])
def test_operands_equal_the_oracle(disable_rht):
    recipe = NVFP4BlockScaling(disable_rht=disable_rht)
    _, _, calls = te_layer.run(recipe, tokens=128)
    quantized = _quantize_calls(calls)
    assert sorted(c.attributes["scaling_mode"] for c in quantized) == [4, 4, 5]
    assert sum(c.attributes["stochastic_rounding"] for c in quantized) == 1
    for call in quantized:
        x = _x(call)
        rows, cols = x.shape
        amax = call.arrays["amax"][0]
        assert amax == np.abs(x).max()
        square = call.attributes["scaling_mode"] == 5
        rht = bool(call.attributes["use_rht"])
        assert rht == (not square and not disable_rht)
        row_bits = column_bits = None
        if call.attributes["stochastic_rounding"] and rht:
            row_bits = oracle.tuned_row_bits(rows, cols, *_seed(call))
            column_bits = oracle.rht_column_bits(rows, cols, *_seed(call))
        elif call.attributes["stochastic_rounding"]:
            continue  # both outputs of one launch: tests/te
        _check_output(call, "rowwise", "scale_inv", *oracle.quantize(x, amax, square=square, bits=row_bits))
        lines = np.ascontiguousarray(x.T)
        if rht:
            lines = oracle.rht(lines)
            assert call.arrays["post_rht_amax"][0] == np.abs(lines).max()
            amax = call.arrays["post_rht_amax"][0]
        _check_output(
            call, "colwise", "colwise_scale_inv", *oracle.quantize(lines, amax, square=square, bits=column_bits)
        )


def test_products_equal_the_oracle():
    y, gradients, calls = te_layer.run(NVFP4BlockScaling(), tokens=128)
    results = []
    for call in calls:
        if call.op != "te_gemm_v2_ffi":
            continue
        sides = []
        for side in ("lhs", "rhs"):
            axis = call.attributes[f"{side}_axis_boundary"]
            rows = int(np.prod(call.shapes[side][:axis]))
            codes = oracle.unpack(_flat(call, side, rows))
            scale = f"{side}_scale_inv"
            folded = call.arrays[scale].reshape(int(np.prod(call.shapes[scale][:axis])), -1)
            sides += [codes, folded[:rows, : codes.shape[1] // 16]]
        results.append(oracle.gemm(*sides, call.arrays["alpha"][0]))
        assert np.array_equal(call.arrays["out"].reshape(-1), results[-1].view(np.uint16).reshape(-1))
    outputs = [np.asarray(a).view(np.uint16).reshape(-1) for a in (y, *gradients)]
    assert len(results) == 3
    for output in outputs:  # y, dkernel and dx are these products, untouched
        assert any(np.array_equal(output, r.view(np.uint16).reshape(-1)) for r in results)


def test_alpha_is_the_product_of_both_decode_scales():
    """fl(fl(a * r) * fl(b * r)): XLA makes Transformer Engine's divisions by 2688 products with r = fl(1/2688)."""
    r = np.float32(1) / np.float32(2688)
    for seed in range(3):
        _, _, calls = te_layer.run(NVFP4BlockScaling(), tokens=128, seed=seed)
        amaxes = {c.arrays[n][0] for c in _quantize_calls(calls) for n in ("amax", "post_rht_amax")}
        alphas = {(a * r) * (b * r) for a in amaxes for b in amaxes}
        products = [c for c in calls if c.op == "te_gemm_v2_ffi"]
        assert len(products) == 3
        assert all(c.arrays["alpha"][0] in alphas for c in products)


def test_threads_change_no_bit():
    results = []
    for threads in (1, 2):
        _xla.set_threads(threads)
        y, gradients, _ = te_layer.run(NVFP4BlockScaling(), tokens=256, out=384)
        results.append([np.asarray(a).view(np.uint16) for a in (y, *gradients)])
    _xla.set_threads(None)
    for one, two in zip(*results):
        assert np.array_equal(one, two)


def test_calls_are_counted():
    te.clear_calls()
    te_layer.run(NVFP4BlockScaling())
    calls = te.calls()
    assert any("scaling=nvfp4.2d rows columns" in c for c in calls)
    assert any("rht sr" in c for c in calls)
    assert sum(n for c, n in calls.items() if c.startswith("te_gemm_v2_ffi scaling=nvfp4")) >= 3


def test_subnormal_tensors_survive_xla_threads():
    """XLA flushes subnormals to zero in its own code; the handlers do not."""
    import jax
    import jax.numpy as jnp

    x = np.full((16, 16), 1e-39, ml_dtypes.bfloat16)

    def quantize(x, amax):
        shapes = [((16, 16), jnp.float4_e2m1fn), ((1,), jnp.float4_e2m1fn), ((128, 4), jnp.float8_e4m3fn),
                  ((1,), jnp.float8_e4m3fn), ((1,), jnp.float32), ((1,), jnp.bfloat16), ((1,), jnp.float32)]
        call = jax.ffi.ffi_call("te_dbias_quantize_ffi", [jax.ShapeDtypeStruct(*s) for s in shapes])
        return call(x, jnp.ones(1), amax, jnp.zeros(0, jnp.uint32), jnp.zeros(1), jnp.zeros((1, 1), jnp.bfloat16),
                    scaling_mode=np.int64(4), q_layout=np.int64(0), is_dbias=False, flatten_axis=np.int64(1),
                    stochastic_rounding=False, use_rht=False)

    amax = np.abs(x).max().astype(np.float32).reshape(1)
    with te.recording() as recorded:
        jax.block_until_ready(jax.jit(quantize)(x, amax))
    (call,) = recorded.calls
    codes, scales = oracle.quantize(x.astype(np.float32), amax[0])
    assert scales.max() > 0
    assert np.array_equal(oracle.unpack(call.arrays["rowwise"]), codes)


def test_bad_shapes_are_errors_of_one_line():
    import jax
    import jax.numpy as jnp

    call = jax.ffi.ffi_call("te_rht_amax_ffi", [jax.ShapeDtypeStruct((1,), jnp.float32)] * 2)
    with pytest.raises(Exception, match="fp4lab: te_rht_amax_ffi: x is bfloat16 with rows in multiples of 16"):
        jax.block_until_ready(
            call(jnp.zeros((17, 16), jnp.bfloat16), rht_matrix_random_sign_mask_t=np.int64(0xD7E8),
                 produce_regular_amax=True, flatten_axis=np.int64(1)))


def test_unknown_versions_are_refused(monkeypatch):
    monkeypatch.setattr(te, "VERSIONS", ("1.0",))
    with pytest.raises(RuntimeError, match=r"Transformer Engine .* is unknown \(known: 1.0\)"):
        te._check_version(strict=True)
    with pytest.warns(UserWarning, match="is unknown"):
        te._check_version(strict=False)


def test_recorded_calls_are_immutable():
    assert dataclasses.is_dataclass(te.Call) and te.Call.__dataclass_params__.frozen
