"""Casts: the codes of a format for all BF16 numbers, as values, against the types of packages."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from .._quantize import decode, encode
from .compare import first_difference, values_differ
from .report import Comparison


def _all_bf16() -> np.ndarray:
    return (np.arange(65536, dtype=np.uint32) << 16).view(np.float32)


def _cast_of_ml_dtypes(module: Any, name: str, x: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return x.astype(getattr(module, name)).astype(np.float32)


def _cast_of_torch(module: Any, name: str, x: np.ndarray) -> np.ndarray:
    dtype = getattr(module, name)
    return module.from_numpy(x.copy()).to(dtype).to(module.float32).numpy()


def _cast_of_gfloat(module: Any, name: str, x: np.ndarray) -> np.ndarray:
    formats = importlib.import_module("gfloat.formats")
    info = getattr(formats, "format_info_ocp_" + {
        "float4_e2m1fn": "e2m1", "float6_e2m3fn": "e2m3", "float6_e3m2fn": "e3m2",
        "float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2",
    }[name])  # fmt: skip
    with np.errstate(all="ignore"):
        saturates = name.startswith(("float4", "float6"))  # neither infinity nor NaN to overflow to
        return module.round_ndarray(info, x.astype(np.float64), sat=saturates).astype(np.float32)


CASTS: tuple[tuple[str, Callable[..., np.ndarray], tuple[str, ...]], ...] = (
    ("ml_dtypes", _cast_of_ml_dtypes, ("float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn",
                                       "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu")),
    ("torch", _cast_of_torch, ("float8_e4m3fn", "float8_e5m2")),
    ("gfloat", _cast_of_gfloat, ("float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn",
                                 "float8_e4m3fn", "float8_e5m2")),
)  # fmt: skip
"""Package, the function that casts by it, and the formats."""


def check_cast(package: str, version: str, module: Any, fn: Any, name: str) -> Comparison:
    """Compares one cast for all BF16 numbers that the format's packages agree to specify."""
    subject = f"cast {name}"
    if package != "gfloat" and not hasattr(module, name):
        return Comparison(subject, package, version, note="lacks the type")
    x = _all_bf16()
    if name == "float8_e8m0fnu":
        x = x[x > 0]  # the format has no sign and no zero; packages treat these numbers as they like
    elif name.startswith(("float4", "float6")):
        x = x[np.isfinite(x)]  # the format has neither infinities nor NaN
    theirs = fn(module, name, x)
    # Releases differ in the value of numbers beyond the largest: one of them tells which rule holds.
    saturates = np.isfinite(fn(module, name, np.array([3.4e38], np.float32))[0])
    subject += ", saturating" if saturates and package == "torch" else ""
    ours = decode(encode(x, name, overflow="saturate" if saturates else "special"), name)
    where = values_differ(ours, theirs)
    note = first_difference("value", x, ours, theirs, where) if where.any() else ""
    return Comparison(subject, package, version, x.size, int(where.sum()), note, cases=1)
