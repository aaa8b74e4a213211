"""Operators and the linear give the same bytes in every floating-point state of the calling thread."""

import os
import sys

import numpy as np
import pytest
import torch

import fp4lab.torch as ft

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../python"))
import host_state  # noqa: E402

pytestmark = pytest.mark.skipif(not host_state.HERE, reason="states are set as x86-64 has them")
ops = torch.ops.fp4lab


def _random(first, exponents, seed, shape):
    bits = np.random.default_rng(seed).integers(0, 2**32, shape, np.uint32)
    exponent = first + (np.arange(bits.size, dtype=np.uint32).reshape(shape) // 16 * 7 + (bits >> 29)) % exponents
    return torch.from_numpy((bits & 0x807FFFFF | exponent.astype(np.uint32) << 23).view(np.float32))


X = _random(0, 150, 1, (32, 64))
TINY = _random(0, 6, 2, (32, 64))
BF16 = torch.from_numpy((X.numpy().view(np.uint32) & 0xFFFF0000).view(np.float32))


def linear():
    torch.manual_seed(0)
    layer = ft.Linear(64, 48, recipe="te_nvfp4_no_rht", seed=1)
    with torch.no_grad():
        layer.weight.copy_(_random(100, 30, 3, (48, 64)))
        layer.bias.copy_(_random(0, 4, 4, (1, 48))[0])
    return layer


def forward_and_backward(layer):
    x = X.clone().requires_grad_()
    y = layer(x)
    y.backward(_random(0, 140, 5, (32, 48)))
    return y.detach(), x.grad, layer.weight.grad


def scaled_fp4_mm():
    from torch.nn.functional import ScalingType, SwizzleType, scaled_mm

    q = ft.quantize(X)
    scale = torch.tensor(_random(20, 10, 6, (1, 1)).item())
    recipe = [ScalingType.BlockWise1x16, ScalingType.TensorWise]
    swizzle = [SwizzleType.NO_SWIZZLE, SwizzleType.NO_SWIZZLE]
    with ft.enable_scaled_mm_on_cpu():
        return scaled_mm(q.codes, q.codes.t(), [q.scales, scale], recipe, [q.scales, scale], recipe, swizzle, swizzle,
                         output_dtype=torch.float32)  # fmt: skip


class Experts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(_random(100, 30, 7, (64, 64)).reshape(2, 32, 64))

    def forward(self, x):
        return torch.cat([x[:16] @ self.w[0].T, x[16:] @ self.w[1].T])


def experts():
    module = ft.convert(Experts(), "te_nvfp4", seed=1)
    module(X).backward(_random(0, 140, 5, (32, 32)))
    return module.w.grad


def observed():
    layer = plain_linear()
    with ft.observe(layer, "te_nvfp4", seed=1) as seen:
        layer(X).backward(_random(0, 140, 5, (32, 48)))
    return [repr(row) for row in seen.rows]


def attributed():
    found = ft.attribute(plain_linear(), [X, BF16, TINY], lambda m, x: m(x)[0, 0], "te_nvfp4_no_rht", by="operand",
                         shapley="exact")  # fmt: skip
    return repr(found) + repr(found.shares)


def plain_linear():
    layer = torch.nn.Linear(64, 48)
    with torch.no_grad():
        layer.weight.copy_(_random(100, 30, 3, (48, 64)))
        layer.bias.zero_()
    return layer


CALLS = {
    "experts": experts,
    "observe": observed,
    "attribute": attributed,
    "quantize": lambda: [ft.quantize(x, d) for x in (X, TINY) for d in ("nvfp4.te", "mxfp4.rceil")],
    "given amax": lambda: ft.quantize(TINY, amax=torch.tensor([1 << 12], dtype=torch.int32).view(torch.float32)),
    "dequantize": lambda: [ft.quantize(x).dequantize(t) for x in (X, TINY) for t in (torch.float32, torch.bfloat16)],
    "qdq": lambda: [ft.qdq(x) for x in (X, TINY, X.bfloat16())],
    "amax": lambda: ft.amax(TINY),
    "rht": lambda: ft.rht(BF16),
    "scaled_mm": lambda: [ft.scaled_mm(ft.quantize(x), ft.quantize(X), dtype=torch.float32) for x in (X, TINY)],
    "torch's scaled_mm": scaled_fp4_mm,
}


def plain(value):
    if isinstance(value, torch.Tensor):
        return value.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return repr(value) if isinstance(value, Exception) else value


@pytest.mark.parametrize("name", CALLS)
def test_bytes(name):
    if name == "torch's scaled_mm" and not hasattr(torch.nn.functional, "scaled_mm"):
        pytest.skip("this torch lacks torch.nn.functional.scaled_mm")
    got = {}
    for state in host_state.STATES:
        got[state], after = host_state.under(state, CALLS[name])
        assert after == host_state.expected(state)
    right = plain(CALLS[name]())
    assert [s for s, value in got.items() if plain(value) != right] == []


def test_the_linear():
    layers = {state: linear() for state in (*host_state.STATES, "plain")}
    right = plain(forward_and_backward(layers["plain"]))
    for state in host_state.STATES:
        value, after = host_state.under(state, lambda state=state: forward_and_backward(layers[state]))
        assert after == host_state.expected(state)
        assert plain(value) == right, state
