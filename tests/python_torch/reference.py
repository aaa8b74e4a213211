"""A linear layer under NVFP4 and MXFP4 recipes in numpy: operands by the numpy functions of fp4lab,
sums here.

Formulas that need no library (bf16, cast to E2M1 and E4M3, Hadamard transform) are written out in
`nvfp4` and `transform`; stochastic codes come from fp4lab.quantize, which the linear does not use.
"""

import fp4lab
import ml_dtypes
import numpy as np

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
SCALES = {"float8_e4m3fn": ml_dtypes.float8_e4m3fn, "float8_e8m0fnu": ml_dtypes.float8_e8m0fnu}


def bf16(x):
    return np.asarray(x, np.float32).astype(ml_dtypes.bfloat16).astype(np.float32)


def transform(x, size, signs=0xD7E8):
    """The random Hadamard transform of groups of 16 along the rows of x."""
    assert size == 16
    h = np.array(
        [[(-1) ** bin(i & j).count("1") for j in range(16)] for i in range(16)], np.float64
    )
    s = np.array([-1.0 if signs >> i & 1 else 1.0 for i in range(16)])
    y = x.reshape(x.shape[0], -1, 16).astype(np.float64) @ (s[:, None] * h * 0.25)
    return bf16(y.reshape(x.shape))


def nvfp4(x, square=False):
    """(codes, scales, amax) of nvfp4.te or, with `square`, nvfp4.te.2d; x has whole blocks and is
    finite."""
    lines, length = x.shape
    amax = np.abs(x).max()
    b = np.abs(x).reshape(lines, length // 16, 16).max(-1)
    if square:
        b = np.repeat(b.reshape(lines // 16, 16, -1).max(1), 16, axis=0)
    encode = np.float32(2688) / amax
    t = np.minimum(b * np.float32(encode * np.float32(1 / 6)), np.float32(448))
    s = t.astype(ml_dtypes.float8_e4m3fn).astype(np.float32)
    with np.errstate(divide="ignore"):
        e = np.minimum(np.float32(1) / (s * (np.float32(1) / encode)), np.finfo(np.float32).max)
    v = (x * np.repeat(e, 16, axis=1)).astype(np.float32)
    codes = np.clip(v, -6, 6).astype(ml_dtypes.float4_e2m1fn).astype(np.float32)
    return codes, s, amax


def library(x, operand, seed, step, tensor, columnwise):
    """(values of the codes, scales a line and block, amax) by fp4lab.quantize, blocks along x's
    rows."""
    stochastic = operand["rounding"] == "stochastic"
    source = dict(rounding="stochastic", seed=seed, step=step, tensor=tensor) if stochastic else {}
    turned = np.ascontiguousarray(x.T) if columnwise else x
    q = fp4lab.quantize(
        turned, operand["format"], columnwise=columnwise, expanded_scales=True, **source
    )
    codes = np.stack([q.data & 15, q.data >> 4], -1).reshape(x.shape)
    scale = SCALES[fp4lab.dialect(operand["format"]).scale]
    return E2M1[codes], q.scale_inv.view(scale).astype(np.float32), q.amax


def operand(x, operand, seed, step, tensor, columnwise=False):
    if operand["hadamard"]:
        x = transform(x, operand["hadamard"])
    if operand["format"] == "none":
        return x, None, None
    if operand["format"].startswith("nvfp4.te") and operand["rounding"] == "nearest_even":
        return nvfp4(x, operand["format"].endswith("2d"))
    return library(x, operand, seed, step, tensor, columnwise)


def product(a, b):
    """a b^T: the block sums, which are exact, added in ascending order in float32; then alpha."""
    (a, scale_a, amax_a), (b, scale_b, amax_b) = a, b
    size = a.shape[1] // scale_a.shape[1]
    y = np.zeros((a.shape[0], b.shape[0]), np.float32)
    for k in range(scale_a.shape[1]):
        block = slice(size * k, size * (k + 1))
        exact = a[:, block].astype(np.float64) @ b[:, block].T.astype(np.float64)
        scales = scale_a[:, k, None].astype(np.float64) * scale_b[None, :, k]
        y = (y + exact * scales).astype(np.float32)  # the float64 sum is exact for ordinary data
    if amax_a is None:
        return y
    return y * np.float32(np.float32(amax_a * amax_b) / np.float32(2688 * 2688))


def linear(x, w, dy, recipe, seed=0, step=0, index=0):
    """(y, dx, dw) of one use of a linear."""
    x, w, dy = bf16(x), bf16(w), bf16(dy)
    f, d, g = recipe["fprop"], recipe["dgrad"], recipe["wgrad"]
    t = 6 * index
    y = product(operand(x, f["input"], seed, step, t), operand(w, f["weight"], seed, step, t + 1))
    dx = product(
        operand(dy, d["grad"], seed, step, t + 2),
        operand(w.T.copy(), d["weight"], seed, step, t + 3, True),
    )
    dw = product(
        operand(dy.T.copy(), g["grad"], seed, step, t + 4, True),
        operand(x.T.copy(), g["input"], seed, step, t + 5, True),
    )
    return y, dx, dw
