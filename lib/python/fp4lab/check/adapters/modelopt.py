"""NVIDIA ModelOpt: NVFP4QTensor of dynamic and of calibrated block maxima, and MXFP4QTensor."""

from __future__ import annotations

import importlib
from types import SimpleNamespace

import numpy as np

from ..compare import Adapter, Answer
from ._torch import pairs, raw, tensor

_FOLDER = "modelopt.torch.quantization.qtensor."


def _dynamic(x: np.ndarray, bf16: bool) -> Answer:
    nvfp4 = importlib.import_module(_FOLDER + "nvfp4_tensor").NVFP4QTensor
    q, scales, number = nvfp4.quantize(tensor(x, bf16), 16)
    codes = pairs(q._quantized_data, x)
    return Answer(codes, raw(scales, x.shape[0]), number=number.numpy(), form="multiplier")


def _static(x: np.ndarray, bf16: bool) -> Answer:
    torch = importlib.import_module("torch")
    nvfp4 = importlib.import_module(_FOLDER + "nvfp4_tensor").NVFP4QTensor
    t = tensor(x, bf16)
    blocks = t.reshape(-1, 16).abs().amax(dim=1, keepdim=True)
    quantizer = SimpleNamespace(block_sizes={-1: 16}, global_amax=t.abs().max(), _amax=blocks)
    scales, number = nvfp4.get_weights_scaling_factor_from_quantizer(quantizer, t)
    q, _, _ = nvfp4.quantize(t, 16, scales, number)
    assert scales.dtype == torch.float8_e4m3fn
    codes = pairs(q._quantized_data, x)
    return Answer(codes, raw(scales, x.shape[0]), number=number.numpy(), form="multiplier")


def _mxfp4(x: np.ndarray, bf16: bool) -> Answer:
    mxfp4 = importlib.import_module(_FOLDER + "mxfp4_tensor").MXFP4QTensor
    q, scales = mxfp4.quantize(tensor(x, bf16), 32)
    return Answer(pairs(q._quantized_data, x), raw(scales, x.shape[0]))


def _adapter(row: str, answer) -> Adapter:  # noqa: ANN001
    return Adapter(row, "nvidia-modelopt", _FOLDER + "nvfp4_tensor", "0.47", "0.47", answer)


ADAPTERS = (
    _adapter("nvfp4.modelopt", _dynamic),
    _adapter("nvfp4.modelopt.static", _static),
    _adapter("mxfp4.modelopt", _mxfp4),
)
