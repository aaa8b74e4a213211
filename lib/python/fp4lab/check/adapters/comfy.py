"""comfy-kitchen: the eager quantizer of ComfyUI's NVFP4 files."""

from __future__ import annotations

import importlib

import numpy as np

from ..compare import Adapter, Answer
from ._torch import pairs, raw, tensor

_MODULE = "comfy_kitchen.backends.eager.quantization"


def _linear(tiles: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """Scales (rows, columns) from tiles of 128x4."""
    t = tiles.reshape(-(-rows // 128), -(-columns // 4), 32, 4, 4).transpose(0, 3, 2, 1, 4)
    return t.reshape(-(-rows // 128) * 128, -1)[:rows, :columns]


def _nvfp4(x: np.ndarray, bf16: bool) -> Answer:
    torch = importlib.import_module("torch")
    t = tensor(x, bf16)
    number = (torch.amax(t.abs()) / (448.0 * 6.0)).to(torch.float32)
    codes, scales = importlib.import_module(_MODULE).quantize_nvfp4(t, number)
    swapped = pairs(codes, x).reshape(x.shape[0], -1, 2)[:, :, ::-1]  # the even column lies high
    s = _linear(raw(scales, 1), x.shape[0], x.shape[1] // 16)
    # A NaN scale or number leaves the code of NaN to a cast.
    undefined = np.isnan(x) | np.isin(s, (0x7F, 0xFF)).repeat(16, axis=1) | ~np.isfinite(x).all()
    return Answer(swapped.reshape(x.shape), s, number=number.numpy(), form="multiplier",
                  codes_undefined=undefined)  # fmt: skip


ADAPTERS = (
    Adapter("nvfp4.comfyui", "comfy-kitchen", _MODULE, "0.2.40", "0.2.40", _nvfp4,
            types=("float32",)),
)  # fmt: skip
