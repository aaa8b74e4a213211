"""MLX on a CPU: mx.quantize without a global scale."""

from __future__ import annotations

import importlib

import numpy as np

from ..compare import Adapter, Answer, Exemption
from . import _places


def _answer(mode: str):  # noqa: ANN202
    def answer(x: np.ndarray, bf16: bool) -> Answer | None:
        if x.shape[1] % 32:
            return None  # it takes rows of 32
        mx = importlib.import_module("mlx.core")
        mx.set_default_device(mx.cpu)
        words, scales = (np.array(a) for a in mx.quantize(mx.array(x), mode=mode))
        codes = np.ascontiguousarray(words).view(np.uint8)
        if mode != "mxfp8":
            codes = np.stack([codes & 15, codes >> 4], axis=-1)
        return Answer(codes.reshape(x.shape), scales.reshape(x.shape[0], -1))

    return answer


def _exemptions(mode: str) -> tuple[Exemption, ...]:
    if mode != "mxfp8":
        return ()
    return (Exemption("a block with NaN or Inf: the sign of NaN codes", _places.nonfinite_blocks),)


ADAPTERS = tuple(
    Adapter(row, "mlx", "mlx.core", first, last, _answer(mode), types=("float32",),
            ended=last == "0.32.1", exemptions=_exemptions(mode))
    for row, mode, first, last in (
        ("nvfp4.mlx.cpu", "nvfp4", "0.31", "0.32.4"),
        ("mxfp4.mlx.cpu", "mxfp4", "0.32.2", "0.32.4"),
        ("mxfp8_e4m3.mlx.cpu", "mxfp8", "0.32.2", "0.32.4"),
        ("mxfp4.mlx.cpu.round", "mxfp4", "0.31", "0.32.1"),
        ("mxfp8_e4m3.mlx.cpu.round", "mxfp8", "0.31", "0.32.1"),
    )
)  # fmt: skip
