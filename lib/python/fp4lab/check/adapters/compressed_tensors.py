"""compressed-tensors: observed scales and the packing compressors of NVFP4 and the MX formats."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from ..compare import Adapter, Answer, Exemption
from . import _places
from ._torch import pairs, raw, tensor

_HELPERS = "compressed_tensors.quantization.utils.helpers"


def _arguments(bits: int, strategy: str, group: int, scale: Any) -> Any:
    quantization = importlib.import_module("compressed_tensors.quantization")
    return quantization.QuantizationArgs(
        num_bits=bits, type="float", strategy=strategy, group_size=group, symmetric=True,
        dynamic=False, scale_dtype=scale, zp_dtype=scale,
    )  # fmt: skip


def _compressed(t: Any, args: Any, module: str, name: str, number: Any) -> dict[str, Any]:
    """The stored tensors of a weight, by their suffixes."""
    quantization = importlib.import_module("compressed_tensors.quantization")
    helpers = importlib.import_module(_HELPERS)
    compressor = getattr(importlib.import_module(f"compressed_tensors.compressors.{module}.base"), name)
    scale, _ = helpers.compute_dynamic_scales_and_zp(t, args, None, global_scale=number)
    state = {"weight": t, "weight_scale": scale}
    if number is not None:
        state["weight_global_scale"] = number
    return compressor.compress(state, quantization.QuantizationScheme(targets=["Linear"], weights=args))


def _nvfp4(x: np.ndarray, bf16: bool) -> Answer:
    torch = importlib.import_module("torch")
    t = tensor(x, bf16)
    number = importlib.import_module(_HELPERS).generate_gparam(t.amin(), t.amax())
    args = _arguments(4, "tensor_group", 16, torch.float8_e4m3fn)
    out = _compressed(t, args, "nvfp4", "NVFP4PackedCompressor", number)
    s = raw(out["weight_scale"], x.shape[0])
    # The packing casts NaN elements to int8. Inf / Inf is one, under a scale of Inf.
    undefined = ~np.isfinite(x) | np.isin(s, (0x7F, 0xFF)).repeat(16, axis=1) | np.isnan(x).any()
    return Answer(pairs(out["weight_packed"], x), s, codes_undefined=undefined)


def _six_bits(packed: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Codes of x's shape from bytes that hold four of 6 bits in three."""
    three = packed.astype(np.uint32).reshape(x.shape[0], -1, 3)
    word = three[..., 0] | three[..., 1] << 8 | three[..., 2] << 16
    return np.stack([word >> 6 * i & 63 for i in range(4)], -1).reshape(x.shape).astype(np.uint8)


def _mx(bits: int):  # noqa: ANN202
    name = "MXFP8QuantizationCompressor" if bits == 8 else f"MXFP{bits}PackedCompressor"

    def answer(x: np.ndarray, bf16: bool) -> Answer:
        torch = importlib.import_module("torch")
        args = _arguments(bits, "group", 32, torch.uint8)
        out = _compressed(tensor(x, bf16), args, f"mxfp{bits}", name, None)
        packed = out["weight" if bits == 8 else "weight_packed"]
        if bits == 4:
            codes = pairs(packed, x)
        else:
            codes = raw(packed, x.shape[0])
            codes = codes if bits == 8 else _six_bits(codes, x)
        return Answer(codes, raw(out["weight_scale"], x.shape[0]), codes_undefined=~np.isfinite(x))

    return answer


def _casts(bits: int) -> tuple[Exemption, ...]:
    what = "a maximum that is Inf, NaN, or rounds to 2^128: a cast of exponent 255, undefined"
    return (Exemption(what, _places.from_power(bits)),)


def _adapter(row: str, answer: Any, types: tuple[str, ...] = ("float32", "bfloat16"),
             first: str = "0.15", last: str = "0.20", ended: bool = False,
             exemptions: tuple[Exemption, ...] = ()) -> Adapter:  # fmt: skip
    return Adapter(row, "compressed-tensors", _HELPERS, first, last, answer, types=types,
                   ended=ended, exemptions=exemptions)  # fmt: skip


ADAPTERS = (
    _adapter("nvfp4.compressed-tensors", _nvfp4, types=("float32",)),
    _adapter("nvfp4.compressed-tensors.bf16-input", _nvfp4, types=("bfloat16",)),
    _adapter("nvfp4.compressed-tensors.0.14", _nvfp4, ("float32",), "0.11", "0.14", ended=True),
    _adapter("mxfp4.compressed-tensors", _mx(4), ("float32",), exemptions=_casts(0x7F600000)),
    _adapter("mxfp4.compressed-tensors.bf16-input", _mx(4), ("bfloat16",),
             exemptions=_casts(0x7F600000)),
    _adapter("mxfp6_e2m3.compressed-tensors", _mx(6), exemptions=_casts(0x7F780000)),
    _adapter("mxfp8_e4m3.compressed-tensors", _mx(8), exemptions=_casts(0x7F600000)),
)
