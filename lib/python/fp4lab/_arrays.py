"""Arrays of numpy, ml_dtypes and DLPack as the plain arrays that the library reads.

No function here imports ml_dtypes, torch or JAX: arrays of theirs are known by the names of their
types and by the codes of DLPack.
"""

from __future__ import annotations

import math
import operator
import sys
import warnings
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from . import _core
from ._arguments import is_bool, real

# The codes of DLPack for types with one meaning a width.
_DLPACK_NAMES = {
    (0, 8): "int8", (0, 16): "int16", (0, 32): "int32", (0, 64): "int64",
    (1, 8): "uint8", (1, 16): "uint16", (1, 32): "uint32", (1, 64): "uint64",
    (2, 16): "float16", (2, 32): "float32", (2, 64): "float64", (4, 16): "bfloat16",
    (6, 8): "bool", (7, 8): "float8_e3m4", (8, 8): "float8_e4m3", (10, 8): "float8_e4m3fn", (12, 8): "float8_e5m2",
    (14, 8): "float8_e8m0fnu", (15, 6): "float6_e2m3fn", (16, 6): "float6_e3m2fn",
    (17, 4): "float4_e2m1fn_x2",
}  # fmt: skip
_PLAIN = ("float16", "float32", "float64")
_CODES = ("uint8", "int8", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "float4_e2m1fn",
          "float4_e2m1fn_x2", "float6_e2m3fn", "float6_e3m2fn")  # fmt: skip
_REMEDY = "float32, bfloat16 (ml_dtypes, torch, JAX, or uint16 with the bits) and float16 are read"


class AmaxWarning(UserWarning):
    """A given amax is smaller than the largest magnitude of the data: the numbers beyond it are clamped."""


def refuse_masked(x: Any, name: str) -> None:
    """Raises TypeError for a masked array, and for a list that holds one: its masked elements are numbers
    to every reader of memory.
    """
    masked = sys.modules.get("numpy.ma")
    if masked is None or not hasattr(masked, "MaskedArray"):
        return
    parts = x if isinstance(x, (list, tuple)) else ()
    if isinstance(x, masked.MaskedArray) or any(isinstance(p, masked.MaskedArray) for p in parts):
        raise TypeError(f"{name} is a masked array, and the mask would be lost: pass {name}.filled(0) or {name}.data")


def _from_dlpack(x: Any, name: str) -> tuple[np.ndarray, str]:
    """The bits of a DLPack array as unsigned integers, and the name of its type."""
    try:
        device, index = x.__dlpack_device__()
    except Exception as error:
        raise TypeError(f"{name} states no memory that can be read: {error}") from error
    if int(device) != 1:
        where = {2: "a CUDA GPU", 3: "pinned memory", 10: "a ROCm GPU"}.get(int(device), "a device")
        raise TypeError(
            f"{name} is in the memory of {where} (DLPack device {int(device)}:{index}): copy it to "
            "the CPU first, by x.cpu() in torch, jax.device_get(x) in JAX"
        )
    try:
        raw, code, bits, lanes = _core.from_dlpack(x)
    except Exception as error:
        if getattr(x, "requires_grad", False):
            raise TypeError(f"{name} requires grad: pass {name}.detach()") from error
        raise TypeError(f"{name} cannot be read by DLPack: {error}") from error
    kind = _DLPACK_NAMES.get((code, bits), f"DLPack type {code} of {bits} bits")
    if lanes not in (1, 2) or (lanes == 2 and kind != "float4_e2m1fn_x2"):
        raise TypeError(f"{name} has {lanes} numbers an element, which is no known type")
    if kind in _PLAIN:
        raw = raw.view(kind)
    return raw, kind


def raw(x: Any, name: str) -> tuple[np.ndarray, str]:
    """An array as numpy knows it, and the name of its type; types that numpy lacks as their bits."""
    refuse_masked(x, name)
    if not isinstance(x, np.ndarray) and hasattr(x, "__dlpack_device__"):
        if not isinstance(x, np.generic):
            return _from_dlpack(x, name)
    try:
        array = np.asarray(x)
    except Exception as error:
        raise TypeError(f"{name} is no array: {error}") from error
    if not isinstance(x, (np.ndarray, np.generic)) and array.dtype.kind in "fiu":
        array = array.astype(np.float32)  # a list of Python numbers
    kind = array.dtype.name
    if array.dtype.kind in "fiu" and not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if array.dtype.kind == "V" and array.dtype.names is None and kind in (*_CODES, "bfloat16"):
        array = array.view(np.uint16 if kind == "bfloat16" else np.uint8)
    elif kind.startswith(("bfloat16", "float8_", "float6_", "float4_")):
        array = array.view(np.uint16 if kind == "bfloat16" else np.uint8)
    return array, kind


def numbers(x: Any, name: str = "x") -> np.ndarray:
    """x as float32, or as uint16 with the bits of BF16; any rank and strides.

    Raises TypeError for other types and for arrays outside the memory of the CPU.
    """
    array, kind = raw(x, name)
    if kind in ("float32", "uint16", "bfloat16"):
        return array
    if kind == "float16":
        return array.astype(np.float32)
    remedy = _REMEDY
    if kind == "float64":
        remedy += f"; round it by {name}.astype(np.float32)"
    raise TypeError(f"{name} has dtype {kind}: {remedy}")


def matrix(x: Any, name: str = "x") -> np.ndarray:
    """numbers(x) as a matrix: leading dimensions become rows, a vector becomes one row.

    Raises ValueError for a scalar.
    """
    array = numbers(x, name)
    if array.ndim == 2:
        return array
    if array.ndim == 0:
        raise ValueError(f"{name} is a scalar: a matrix (rows, columns) is quantized")
    rows = 1
    for n in array.shape[:-1]:
        rows *= n
    return array.reshape(rows, array.shape[-1])


def codes(x: Any, name: str) -> tuple[np.ndarray, bool, tuple[int, ...]]:
    """Bytes of codes or scales: (flat uint8, whether each byte holds one FP4 code, the shape).

    Raises TypeError for types that are no bytes and no narrow format, fp4lab.Error for a list with
    a number that is no byte.
    """
    if isinstance(x, (list, tuple)):
        refuse_masked(x, name)
        x = _bytes_of_list(x, name)
    array, kind = raw(x, name)
    if kind not in _CODES:
        raise TypeError(f"{name} has dtype {kind}: bytes (uint8) or {', '.join(_CODES[2:6])} are read")
    shape = array.shape
    flat = np.ascontiguousarray(array).reshape(-1)
    return flat.view(np.uint8), kind == "float4_e2m1fn", shape


_SCALE_NUMBERS = {"float32": "fp32", "bfloat16": "bf16", "uint16": "bf16"}


def scales(x: Any, name: str) -> tuple[np.ndarray, tuple[int, ...], str]:
    """Block scales: (their bytes as flat uint8, the shape in scales, the type of one: "byte", "fp32" or "bf16").

    Raises TypeError for types that are neither bytes nor a narrow format nor float32 or bfloat16 numbers.
    """
    kind = "" if isinstance(x, (list, tuple)) else type_name(x)
    if kind not in _SCALE_NUMBERS:
        flat, _, shape = codes(x, name)
        return flat, shape, "byte"
    array, kind = raw(x, name)
    flat = np.ascontiguousarray(array).reshape(-1)
    return flat.view(np.uint8), array.shape, _SCALE_NUMBERS[kind]


def _bytes_of_list(x: Sequence[Any], name: str) -> np.ndarray:
    array = integers(x, name)
    check_range(array, name, 255, "a byte")
    return array.astype(np.uint8)


def type_name(x: Any) -> str:
    """The name of an array's type without its package: "float8_e4m3fn"; "" for what is no array."""
    dtype = getattr(x, "dtype", None)
    return str(getattr(dtype, "name", None) or dtype or "").removeprefix("torch.")


def integers(x: Any, name: str) -> np.ndarray:
    """An array of integers of any width, or a list of them. Raises TypeError for other types."""
    refuse_masked(x, name)
    if isinstance(x, (np.ndarray, np.generic)) or not hasattr(x, "__dlpack_device__"):
        try:
            array = np.asarray(x)
        except Exception as error:
            raise TypeError(f"{name} is no array: {error}") from error
        if array.size == 0 and not isinstance(x, np.ndarray):
            array = array.astype(np.uint8)  # an empty list states no type
    else:
        array, kind = _from_dlpack(x, name)
        if kind.startswith("int"):
            array = array.view(kind)
        elif not kind.startswith("uint"):
            raise TypeError(f"{name} has dtype {kind}: integers are read")
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name} has dtype {array.dtype.name}: integers are read")
    return array


def check_range(array: np.ndarray, name: str, most: int, what: str) -> None:
    """Raises fp4lab.Error unless all integers are in 0..most; its message names the first that is not."""
    outside = (array < 0) | (array > most)
    if outside.any():
        at = tuple(int(i) for i in np.argwhere(outside)[0])
        place = f"[{', '.join(map(str, at))}]" if at else ""
        raise _core.Error(f"{name}{place}: {int(array[at])} is not in 0..{most}, and so is not {what}")


def check_shape(
    shape: Sequence[int], groups: Sequence[tuple[int, ...]], name: str, what: str
) -> None:
    """Raises fp4lab.Error unless the dimensions of an array group into one of `groups`.

    (2, 32, 4, 8) groups into (64, 32): consecutive dimensions multiply to each number of the group.
    An array of one dimension is a plain run and fits any group. Another number of elements is left
    to the reader, whose message states both numbers.
    """
    total = math.prod(shape)
    fitting = [g for g in groups if math.prod(g) == total]
    if len(shape) <= 1 or total == 0 or not fitting:
        return
    ends = set(accumulate(shape, operator.mul, initial=1))
    for group in fitting:  # a group of one number is a run: all other dimensions are 1
        if max(shape) == total if len(group) == 1 else ends.issuperset(accumulate(group, operator.mul)):
            return
    given = "x".join(map(str, shape))
    wanted = "x".join(map(str, fitting[0]))
    raise _core.Error(f"{name}: is {given}; {what} {wanted}; pass that shape, or a plain run by .reshape(-1)")


def amaxes(amax: Any, name: str = "amax") -> list[float]:
    """None, a number or an array of numbers as a list of Python floats."""
    if amax is None:
        return []
    if is_bool(amax) or isinstance(amax, (str, bytes)):
        real(amax, name)  # raises
    if isinstance(amax, (int, float)):
        return [real(amax, name)]
    array = numbers(amax, name)
    if array.dtype == np.uint16:
        array = (array.astype(np.uint32) << 16).view(np.float32)
    return [float(v) for v in array.reshape(-1)]


def magnitudes(amax: Any, name: str = "amax") -> list[float]:
    """amaxes(amax). Raises fp4lab.Error for a negative number: max |x| is none."""
    found = amaxes(amax, name)
    for i, value in enumerate(found):
        if value < 0:
            raise _core.Error(f"{_at(name, i, found)}: {value!r} is negative; an amax is max |x|, from 0 on")
    return found


def _at(name: str, i: int, numbers: Sequence[float]) -> str:
    return f"{name}[{i}]" if len(numbers) > 1 else name


def check_amax(given: Sequence[float], own: Sequence[float], name: str = "amax") -> None:
    """Compares given amaxes with the data's own.

    Raises fp4lab.Error for NaN and for an infinity where the data's own is neither. Warns
    (AmaxWarning) of an amax that is smaller than the data's own, of 0 as well.
    """
    if len(given) != len(own):
        return  # the library states how many numbers it takes
    for i, (value, largest) in enumerate(zip(given, own)):
        at = _at(name, i, given)
        with np.errstate(over="ignore"):
            finite = bool(np.isfinite(np.float32(value)))
        if not finite and math.isfinite(largest):
            raise _core.Error(
                f"{at}: is {value!r}; the largest magnitude of the data is {largest!r}: give a finite number"
            )
        if finite and value < largest and np.float32(value) < np.float32(largest):
            warnings.warn(
                f"{at}: {value!r} is less than the largest magnitude of the data, {largest!r}: "
                "numbers beyond it are clamped",
                AmaxWarning, stacklevel=_depth(),
            )  # fmt: skip
            return


def _depth() -> int:
    """The stacklevel of the caller outside of this package."""
    package, level, frame = __package__ or "", 2, sys._getframe(2)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(package + "."):
        frame, level = frame.f_back, level + 1
    return level


def bf16_bits(values: np.ndarray) -> np.ndarray:
    """The upper halves of float32 values that are BF16 numbers."""
    return (np.ascontiguousarray(values).view(np.uint32) >> 16).astype(np.uint16)


def as_dtype(values: np.ndarray, dtype: Any) -> np.ndarray:
    """float32 values in another type: "float32", "bfloat16" (ml_dtypes if installed, else uint16
    bits), "float16", or any numpy dtype; rounded to nearest even.
    """
    name = dtype if isinstance(dtype, str) else np.dtype(dtype).name
    if name == "float32":
        return values
    if name != "bfloat16":
        return values.astype(name)
    u = np.ascontiguousarray(values).view(np.uint32)
    bits = ((u + 0x7FFF + ((u >> 16) & 1)) >> 16).astype(np.uint16)
    bits = np.where(np.isnan(values), np.uint16(0x7FC0), bits)
    return bf16_view(bits)


def bf16_view(bits: np.ndarray) -> np.ndarray:
    """uint16 bits as ml_dtypes.bfloat16 where that package is installed."""
    try:
        import ml_dtypes
    except ImportError:
        return bits
    return bits.view(ml_dtypes.bfloat16)


_FP8_TYPES = {"e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}


def fp8_view(codes: np.ndarray, format: str) -> np.ndarray:
    """Codes of "e4m3" or "e5m2" as an array of ml_dtypes where that package is installed, else as uint8."""
    codes = codes.astype(np.uint8)
    try:
        import ml_dtypes
    except ImportError:
        return codes
    return codes.view(getattr(ml_dtypes, _FP8_TYPES[format]))
