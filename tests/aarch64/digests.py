"""Prints what the installed package fp4lab computes, a line per thing: the SHA-256 of codes, scales, amax and decoded
values of each dialect, of transforms and of a product. Two machines that compute the same bits print the same lines."""

import hashlib
import sys
import warnings

import fp4lab
import numpy as np


def line(name, *arrays):
    digest = hashlib.sha256()
    for array in arrays:
        if array is not None:
            digest.update(np.ascontiguousarray(array).tobytes())
    print(name, digest.hexdigest()[:16])
    sys.stdout.flush()


def matrix(rows, cols):
    """Numbers of 40 binades, with zeros of both signs, from integers alone: no machine's libm has a part in them."""
    n = np.arange(rows * cols, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    significand = (n >> np.uint64(41)).astype(np.uint32)
    exponent = (107 + (n >> np.uint64(20)).astype(np.uint32) % 40) << np.uint32(23)
    sign = (n >> np.uint64(63)).astype(np.uint32) << np.uint32(31)
    bits = np.where(n % np.uint64(97) == 0, sign, sign | exponent | significand)
    return bits.astype(np.uint32).view(np.float32).reshape(rows, cols)


x = matrix(64, 256)
short = (x.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)  # BF16
for dialect in fp4lab.dialects():
    options = {"seed": 7} if dialect.takes_random_bits else {}
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        q = fp4lab.quantize(x, dialect.name, **options)
        line(dialect.name, q.data, q.scale_inv, q.amax, q.dequantize())
for size in 16, 32, 128:
    line(f"rht {size}", fp4lab.rht(short, size=size))
a, b = (fp4lab.quantize(short, "nvfp4.te") for _ in range(2))
line("scaled_mm", fp4lab.scaled_mm(a, b))
