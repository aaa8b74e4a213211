"""The tensors of the sweep: 200 for each row and input type, of the hazards of block formats."""

import numpy as np

from fp4lab import cases
from fp4lab.check.dialects import as_bf16

MAGNITUDES = (0x00000001, 0x00400000, 0x007FFFFF, 0x00800000, 0x05280001, 0x05280000, 0x0527FFFF,
              0x00A80000, 0x20000000, 0x7E800000, 0x7F5FFFFF, 0x7F600000, 0x7F77FFFF, 0x7F780000,
              0x7F7FFFFF)  # fmt: skip
"""Bits of tensor maxima: subnormals, scales that overflow, and bounds at which rules round up."""


def floats(bits):
    return np.asarray(bits, np.uint32).view(np.float32)


def signs(r, shape):
    return r.integers(0, 2, shape, np.uint32) << np.uint32(31)


def families(r, rows, width):
    """(family, matrix of 4 blocks in a row) for one draw of each family."""
    shape = (rows, 4 * width)
    normal = r.standard_normal(shape).astype(np.float32)
    blocks = lambda low, high: (2.0 ** r.integers(low, high, (rows, 4))).repeat(width, 1)  # noqa: E731
    yield "normal", normal * np.float32(2.0) ** r.integers(-20, 20)
    yield "lognormal", normal * np.exp(2 * r.standard_normal(shape))
    yield "blocks of many magnitudes", normal * blocks(-40, 1)
    yield "rows of many magnitudes", normal * 2.0 ** r.integers(-60, 60, (rows, 1))
    yield "ties", r.integers(-24, 25, shape) / 4 * 2.0 ** r.integers(-40, 40, (rows, 1))
    eighths = r.integers(8, 16, (rows, 1)) / 8
    yield "ties of scaled elements", r.integers(-240, 241, shape) / 8 * eighths
    near = floats((r.integers(60, 200, shape) << 23) + r.integers(-3, 4, shape))
    yield "maxima near powers of two", np.where(r.random(shape) < 0.1, near, 0)
    fraction = r.choice([0x400000, 0x600000, 0x700000, 0x780000, 0x7FFFFF], shape)
    near = floats((r.integers(90, 160, shape) << 23) + fraction + r.integers(-2, 3, shape))
    yield "maxima near bounds of rules", np.where(r.random(shape) < 0.1, near, 0) * r.choice([-1, 1], shape)
    yield "random bits", floats(r.integers(0, 0x7F800000, shape, np.uint32) | signs(r, shape))
    yield "subnormal", floats(r.integers(0, 0x1800000, shape, np.uint32) | signs(r, shape))
    zeros = np.where(blocks(0, 2) == 1, np.float32(0), normal)
    yield "zero blocks", np.where(r.random(shape) < 0.1, np.float32(-0.0), zeros)
    bad = normal.copy()
    bad[r.integers(rows), r.integers(4 * width)] = r.choice([np.inf, -np.inf, np.nan])
    yield "non-finite", bad


def fixed(rows, width):
    """(family, matrix): one tensor of each magnitude, and all zeros of both signs."""
    for bits in MAGNITUDES:
        x = np.zeros((rows, 4 * width), np.float32)
        x[0, 0], x[0, 1], x[-1, width] = floats(bits), -floats(bits) / 3, floats(bits) / 2
        yield "one magnitude", x
    yield "zeros", np.zeros((rows, 4 * width), np.float32)
    yield "negative zeros", -np.zeros((rows, 4 * width), np.float32)
    x = np.zeros((rows, 4 * width), np.float32)
    x[0, :2] = 5.9999995, -0.24999999
    yield "a quotient that two roundings move", x


def shaped(r, width):
    """(family, matrix): few rows of whole blocks, and rows whose last block is a part."""
    few = [("few rows", shape) for shape in ((1, 4 * width), (2, 2 * width), (3, 4 * width))]
    parts = [(1, width + width // 2), (2, width - 2), (5, 4 * width + 8), (3, 2 * width + 5)]
    for family, shape in few + [("ragged", shape) for shape in parts]:
        normal = r.standard_normal(shape)
        yield family, normal
        yield family, normal * 2.0 ** r.integers(-60, 60, (shape[0], 1))
        yield family, floats(r.integers(0, 0x7F800000, shape, np.uint32) | signs(r, shape))
        yield family, np.where(r.random(shape) < 0.5, 0, r.integers(-24, 25, shape) / 4)


def tensors(dialect, draws=12):
    """(family, float32 matrix) of 160 tensors and more; of whole blocks but for "ragged"."""
    rows, width = max(dialect.block[0], 16), max(dialect.block[1], 16)
    r = np.random.default_rng(20261125)
    for case in cases(dialect.name):
        cols = case.x.shape[1] // width * width
        height = case.x.shape[0] // 16 * 16 or (case.x.shape[0] if dialect.block[0] <= 1 else 0)
        if cols and height and case.x.size <= 8192:
            yield "directed", np.ascontiguousarray(case.x[:height, :cols])
    yield from fixed(rows, width)
    for family, x in shaped(np.random.default_rng(20261126), width):
        yield family, np.ascontiguousarray(x, np.float32)
    for _ in range(draws):
        for family, x in families(r, rows, width):
            with np.errstate(over="ignore"):
                yield family, np.ascontiguousarray(x, np.float32)


def typed(adapter, dialect):
    """(family, matrix, whether it goes to the package as bfloat16)."""
    for family, x in tensors(dialect):
        if "float32" in adapter.types:
            yield family, x, False
        if "bfloat16" in adapter.types:
            yield family, as_bf16(x), True
