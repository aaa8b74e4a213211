"""gguf: llama.cpp's formats in numpy. NVFP4 has its scale rule alone there, and no quantizer."""

from __future__ import annotations

import importlib

import numpy as np

from ..compare import Adapter, Answer, Exemption
from . import _places

_MODULE = "gguf.quants"


def _mxfp4(x: np.ndarray, bf16: bool) -> Answer:
    blocks = importlib.import_module(_MODULE).MXFP4.quantize_blocks(x.reshape(-1, 32))
    scales = blocks[:, :1].reshape(x.shape[0], -1)
    halves = blocks[:, 1:]  # element i in the low half, i + 16 in the high
    codes = np.concatenate([halves & 15, halves >> 4], axis=1).reshape(x.shape)
    return Answer(codes, scales)


def _nvfp4(x: np.ndarray, bf16: bool) -> Answer:
    amax = np.abs(x.reshape(x.shape[0], -1, 16)).max(axis=2)
    return Answer(scales=importlib.import_module(_MODULE).NVFP4.fp32_to_ue4m3(amax / np.float32(6)))


_NONFINITE = Exemption("a maximum of Inf or NaN: undefined casts", _places.nonfinite_blocks)
_SMALL = Exemption("a maximum below 2^-125: a cast of a negative exponent to uint8",
                   _places.blocks_below(2.0**-125))  # fmt: skip

ADAPTERS = (
    Adapter("mxfp4.ggml", "gguf", _MODULE, "0.17", "0.19", _mxfp4, exemptions=(_NONFINITE, _SMALL)),
    Adapter("nvfp4.ggml", "gguf", _MODULE, "0.19", "0.19", _nvfp4, exemptions=(_NONFINITE,)),
)
