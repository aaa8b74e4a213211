"""FP8 with one scale a tensor, and MXFP8, in one Transformer Engine dense layer."""

import ml_dtypes
import numpy as np
import oracle
import pytest
import te_layer
from transformer_engine.common.recipe import DelayedScaling, Float8CurrentScaling, MXFP8BlockScaling

_TYPES = {"float8_e4m3fn": (ml_dtypes.float8_e4m3fn, 448), "float8_e5m2": (ml_dtypes.float8_e5m2, 57344)}


def _x(call):
    axis = call.attributes["flatten_axis"] % len(call.shapes["x"])
    rows = int(np.prod(call.shapes["x"][:axis]))
    return oracle.bf16(call.arrays["x"]).reshape(rows, -1)


@pytest.mark.parametrize("recipe", [Float8CurrentScaling(), DelayedScaling()])
def test_tensor_scaling_equals_numpy(recipe):
    _, _, calls = te_layer.run(recipe)
    quantized = [c for c in calls if c.op == "te_dbias_quantize_ffi"]
    assert len(quantized) == 3
    for call in quantized:
        x, scale = _x(call), call.arrays["scale"][0]
        kind, largest = _TYPES[call.dtypes["rowwise"]]
        expected = np.clip(x * scale, -largest, largest).astype(kind).view(np.uint8)
        assert np.array_equal(call.arrays["rowwise"].reshape(x.shape), expected)
        assert call.arrays["scale_inv"].reshape(-1)[0] == np.float32(1) / scale


def _mx_scale(b, largest):
    """E8M0 bytes by the rule rceil: 2^ceil(log2(b / largest)), exact by the exponent field."""
    t = (b * np.float32(1 / np.float32(largest))).astype(np.float32).view(np.uint32)
    return np.clip((t >> 23) + ((t & 0x7FFFFF) != 0), 0, 254).astype(np.uint8)


def test_mxfp8_equals_numpy():
    _, _, calls = te_layer.run(MXFP8BlockScaling(), tokens=128)
    quantized = [c for c in calls if c.op == "te_dbias_quantize_ffi"]
    assert len(quantized) == 3
    for call in quantized:
        x = _x(call)
        for name, scale_name, lines in (("rowwise", "scale_inv", x), ("colwise", "colwise_scale_inv", x.T)):
            kind, largest = _TYPES[call.dtypes[name]]
            b = np.abs(lines).reshape(lines.shape[0], -1, 32).max(-1)
            s = _mx_scale(b, largest)
            v = lines * np.repeat(np.exp2(127.0 - s.astype(np.float32)), 32, axis=1).astype(np.float32)
            codes = np.clip(v, -largest, largest).astype(kind).view(np.uint8)
            got = call.arrays[name].reshape(x.shape)
            assert np.array_equal(got if name == "rowwise" else got.T, codes)
            padded = call.arrays[scale_name]
            if name == "rowwise":
                padded = padded.reshape(-(-lines.shape[0] // 128) * 128, -1)[: s.shape[0], : s.shape[1]]
            else:
                padded = padded.reshape(-(-s.shape[1] // 4) * 4, -1)[: s.shape[1], : s.shape[0]].T
            assert np.array_equal(padded, s)


@pytest.mark.parametrize("recipe", [Float8CurrentScaling(), DelayedScaling(), MXFP8BlockScaling()])
def test_outputs_are_near_those_of_bf16(recipe):
    y, gradients, _ = te_layer.run(recipe, tokens=128)
    exact_y, exact_gradients, calls = te_layer.run(None, tokens=128)
    assert not any(c.op == "te_dbias_quantize_ffi" for c in calls)
    for got, exact in zip((y, *gradients), (exact_y, *exact_gradients)):
        got, exact = np.asarray(got, np.float32), np.asarray(exact, np.float32)
        assert 1e-3 < np.linalg.norm(got - exact) / np.linalg.norm(exact) < 0.1
