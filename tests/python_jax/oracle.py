"""Transformer Engine's NVFP4 formulas in numpy, written apart from libfp4lab (finite BF16 data).

quantize() states the cast of its kernels: K = S / 6 is folded into the tensor scale first, the factor is
1 / (s * (1 / S)). Random words are Philox4x32-10 at the counters of its kernels' threads.
"""

import ml_dtypes
import numpy as np

FLT_MAX = np.float32(np.finfo(np.float32).max)
_GRID = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def bf16(words):
    return (words.astype(np.uint32) << 16).view(np.float32)


def tensor_scale(amax):
    with np.errstate(divide="ignore", over="ignore"):
        s = np.minimum(np.float32(2688) / np.float32(amax), FLT_MAX)
    s = np.float32(1) if amax == 0 or s == 0 else s
    return s, np.float32(1) / s


def scales_and_factors(b, amax):
    """Scale bytes and factors of blocks with amaxes b."""
    encode, decode = tensor_scale(amax)
    t = np.minimum(b * np.float32(encode * np.float32(1 / 6)), np.float32(448))
    s = t.astype(ml_dtypes.float8_e4m3fn)
    with np.errstate(divide="ignore", over="ignore"):
        e = np.minimum(np.float32(1) / (s.astype(np.float32) * decode), FLT_MAX)
    return s.view(np.uint8), e


def codes_of(v):
    a = np.minimum(np.abs(v), np.float32(6)).astype(ml_dtypes.float4_e2m1fn).view(np.uint8) & 7
    return a | (np.signbit(v).astype(np.uint8) << 3)


def stochastic_codes(v, bits):
    a = np.abs(v)
    step = np.where(a < 2, np.float32(0.5), np.where(a < 4, np.float32(1), np.float32(2)))
    t = bits.astype(np.float32) / np.float32(256) * step + a
    code = np.searchsorted(_GRID, t, side="right") - 1
    return code.astype(np.uint8) | (np.signbit(v).astype(np.uint8) << 3)


def quantize(x, amax, *, square=False, bits=None):
    """Codes (one a byte) and scale bytes of x (lines, length) float32."""
    lines, length = x.shape
    b = np.abs(x).reshape(lines, length // 16, 16).max(-1)
    if square:
        b = np.repeat(b.reshape(lines // 16, 16, -1).max(1), 16, axis=0)
    s, e = scales_and_factors(b, amax)
    v = (x * np.repeat(e, 16, axis=1)).astype(np.float32)
    return (codes_of(v) if bits is None else stochastic_codes(v, bits)), s


def rht(x, signs=0xD7E8):
    """The 16-point transform of the lines of x, rounded to BF16 (exact before, for ordinary data)."""
    h = np.array([[(-1) ** bin(i & j).count("1") for j in range(16)] for i in range(16)], np.float64)
    s = np.array([-1.0 if signs >> i & 1 else 1.0 for i in range(16)])
    y = x.reshape(x.shape[0], -1, 16).astype(np.float64) @ (s[:, None] * h * 0.25)
    return y.reshape(x.shape).astype(np.float32).astype(ml_dtypes.bfloat16).astype(np.float32)


def philox(low, high, seed):
    """The four words of Philox4x32-10 at 128-bit counters high * 2^64 + low."""
    low, high = np.broadcast_arrays(np.asarray(low, np.uint64), np.asarray(high, np.uint64))
    m = np.uint64(0xFFFFFFFF)
    w = [low & m, low >> np.uint64(32), high & m, high >> np.uint64(32)]
    k0, k1 = seed & 0xFFFFFFFF, seed >> 32
    for _ in range(10):
        p0, p1 = w[0] * np.uint64(0xD2511F53), w[2] * np.uint64(0xCD9E8D57)
        w = [(p1 >> np.uint64(32)) ^ w[1] ^ np.uint64(k0), p1 & m,
             (p0 >> np.uint64(32)) ^ w[3] ^ np.uint64(k1), p0 & m]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return np.stack(w, -1).astype(np.uint32)


def _bits(words):
    """Byte i of word g serves element 4 g + i: (lines, blocks, 4) words -> (lines, 16 blocks)."""
    fields = words[..., None] >> (8 * np.arange(4, dtype=np.uint32)) & 255
    return fields.reshape(words.shape[0], -1).astype(np.uint8)


def tuned_row_bits(rows, cols, seed, offset):
    """Random bytes of the rowwise output of the tuned 1D kernel, launched for that output alone."""
    r, c = np.meshgrid(np.arange(rows), np.arange(0, cols, 16), indexing="ij")
    tile = r // 128 * -(-cols // 128) + c // 128
    stage = r % 128 // 64 * 2 + c % 128 // 64
    thread = r % 32 * 4 + c % 64 // 16
    block = 2 * stage + r % 64 // 32
    words = philox(offset + block, 128 * tile + thread, seed)
    late = (thread % 32 >= 16)[..., None]  # these threads begin with the block's second half
    return _bits(np.where(late, words[..., [2, 3, 0, 1]], words))


def rht_column_bits(rows, cols, seed, offset):
    """Random bytes of the fused transform and cast, columns of x as lines (rows, cols < 1024)."""
    c, r = np.meshgrid(np.arange(cols), np.arange(0, rows, 16), indexing="ij")
    slices = min(rows, 512) // 64
    tile = c // 128 + r // 512 * -(-cols // 128)
    subsequence = c % 128 + 256 * (r % 512 // 64) + 256 * slices * tile
    return _bits(philox(offset + r % 64 // 16, subsequence, seed))


def square_bits(rows, cols, seed, offset):
    """Random bytes of both outputs of the 2D kernel: in each stage of 32 rows, columns are drawn before rows."""
    r, c = np.meshgrid(np.arange(rows), np.arange(0, cols, 16), indexing="ij")
    tile = r // 128 * -(-cols // 128) + c // 128
    thread = r % 16 * 8 + c % 128 // 16
    words = philox(offset + r % 128 // 32 * 4 + 2 + r % 32 // 16, 128 * tile + thread, seed)
    late = (thread % 32 >= 16)[..., None]
    row_bits = _bits(np.where(late, words[..., [2, 3, 0, 1]], words))
    c, r = np.meshgrid(np.arange(cols), np.arange(0, rows, 16), indexing="ij")
    tile = r // 128 * -(-cols // 128) + c // 128
    words = philox(offset + r % 128 // 32 * 4 + r % 32 // 16, 128 * tile + c % 128, seed)
    return row_bits, _bits(words)


def unpack(codes):
    return np.stack([codes & 15, codes >> 4], -1).reshape(*codes.shape[:-1], -1)


def gemm(a_codes, a_scales, b_codes, b_scales, alpha):
    """bf16(alpha * sum) with the blocks of 16 added in order, binary32."""
    value = np.concatenate([_GRID, -_GRID]).astype(np.float32)
    e4m3 = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float32)
    a, b = value[a_codes], value[b_codes]
    y = np.zeros((a.shape[0], b.shape[0]), np.float32)
    for k in range(a.shape[1] // 16):
        dot = a[:, 16 * k:16 * k + 16] @ b[:, 16 * k:16 * k + 16].T  # exact
        y = y + e4m3[a_scales[:, k]][:, None] * e4m3[b_scales[:, k]][None] * dot
    return (y * np.float32(alpha)).astype(ml_dtypes.bfloat16)
