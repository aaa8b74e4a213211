"""NVIDIA ModelOpt: NVFP4QTensor of dynamic and of calibrated block maxima, and MXFP4QTensor."""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

import numpy as np

from ..compare import Adapter, Answer, Exemption
from . import _places
from ._torch import pairs, raw, tensor

_FOLDER = "modelopt.torch.quantization.qtensor."


def _result(x: np.ndarray, quantized: Any) -> Answer:
    q, scales, number = quantized
    s = raw(scales, x.shape[0])
    # Its cast looks for the code of NaN among bounds.
    nan_scale = np.isin(s, (0x7F, 0xFF)).repeat(16, axis=1)[:, : x.shape[1]]
    undefined = np.isnan(x) | nan_scale | np.isnan(x).any()
    return Answer(pairs(q._quantized_data, x), s, number=number.numpy(), form="multiplier",
                  codes_undefined=undefined)  # fmt: skip


def _dynamic(x: np.ndarray, bf16: bool) -> Answer:
    nvfp4 = importlib.import_module(_FOLDER + "nvfp4_tensor").NVFP4QTensor
    return _result(x, nvfp4.quantize(tensor(x, bf16), 16))


def _static(x: np.ndarray, bf16: bool) -> Answer:
    nvfp4 = importlib.import_module(_FOLDER + "nvfp4_tensor").NVFP4QTensor
    t = tensor(x, bf16)
    blocks = t.reshape(-1, 16).abs().amax(dim=1)
    quantizer = SimpleNamespace(block_sizes={-1: 16}, global_amax=t.abs().amax(), _amax=blocks)
    scales, number = nvfp4.get_weights_scaling_factor_from_quantizer(quantizer, t)
    return _result(x, nvfp4.quantize(t, 16, scales, number))


def _mxfp4(x: np.ndarray, bf16: bool) -> Answer:
    mxfp4 = importlib.import_module(_FOLDER + "mxfp4_tensor").MXFP4QTensor
    q, scales = mxfp4.quantize(tensor(x, bf16), 32)
    return Answer(pairs(q._quantized_data, x), raw(scales, x.shape[0]))


_CASTS = (
    Exemption("a maximum of Inf or NaN: a cast of it to uint8, undefined", _places.nonfinite_blocks),
)


def _adapter(row: str, first: str, last: str, answer: Any, ended: bool = False,
             exemptions: tuple[Exemption, ...] = ()) -> Adapter:  # fmt: skip
    return Adapter(row, "nvidia-modelopt", _FOLDER + "nvfp4_tensor", first, last, answer,
                   ended=ended, ragged=answer is _dynamic, exemptions=exemptions)  # fmt: skip


ADAPTERS = (
    _adapter("nvfp4.modelopt", "0.45", "0.47", _dynamic),
    _adapter("nvfp4.modelopt.0.44", "0.43", "0.44", _dynamic, ended=True),
    _adapter("nvfp4.modelopt.static", "0.45", "0.47", _static),
    _adapter("nvfp4.modelopt.static.0.44", "0.44", "0.44", _static, ended=True),
    _adapter("mxfp4.modelopt", "0.43", "0.47", _mxfp4, exemptions=_CASTS),
)
