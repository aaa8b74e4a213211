"""compressed-tensors: generate_gparam, calculate_qparams and quantize, for NVFP4 and MX formats."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from ..compare import Adapter, Answer
from . import _values
from ._torch import floats, raw, tensor

_LIFECYCLE = "compressed_tensors.quantization.lifecycle.forward"


def _parts(x: np.ndarray, bf16: bool, scheme: str, group: int, two_levels: bool) -> Any:
    """(args, elements as values, block scales, global scale)."""
    torch = importlib.import_module("torch")
    quantization = importlib.import_module("compressed_tensors.quantization")
    helpers = importlib.import_module("compressed_tensors.quantization.utils.helpers")
    scheme = quantization.preset_name_to_scheme(scheme, ["Linear"])
    args = scheme.weights
    t = tensor(x, bf16)
    blocks = t.unflatten(-1, (x.shape[1] // group, group))
    low, high = blocks.amin(-1), blocks.amax(-1)
    number = helpers.generate_gparam(t.amin(), t.amax()) if two_levels else None
    scales, zero = helpers.calculate_qparams(low, high, args, global_scale=number)
    quantize = importlib.import_module(_LIFECYCLE).quantize
    elements = quantize(t, scales, zero, args, dtype=torch.float32, global_scale=number)
    return floats(elements), scales, number


def _nvfp4(x: np.ndarray, bf16: bool) -> Answer:
    torch = importlib.import_module("torch")
    elements, scales, number = _parts(x, bf16, "NVFP4", 16, True)
    s = scales.to(torch.float8_e4m3fn)
    undefined = np.isnan(elements)  # the packing casts NaN to int8
    return Answer(_values.codes(elements), raw(s, x.shape[0]), number=number.numpy(), form="divisor",
                  codes_undefined=undefined)  # fmt: skip


ADAPTERS = (
    Adapter("nvfp4.compressed-tensors", "compressed-tensors", _LIFECYCLE, "0.15", "0.20", _nvfp4,
            types=("float32",)),
)  # fmt: skip
