"""torchao: to_mx in eager PyTorch, and nvfp4_quantize with one and two levels of scales."""

from __future__ import annotations

import importlib

import numpy as np

from ..compare import Adapter, Answer
from ._torch import pairs, raw, tensor


def _mx(element: str, mode: str):  # noqa: ANN202
    def answer(x: np.ndarray, bf16: bool) -> Answer:
        torch = importlib.import_module("torch")
        modes = importlib.import_module("torchao.prototype.mx_formats.config").ScaleCalculationMode
        mx = importlib.import_module("torchao.prototype.mx_formats.mx_tensor")
        types = {"fp4": torch.float4_e2m1fn_x2, "fp8_e4m3": torch.float8_e4m3fn,
                 "fp8_e5m2": torch.float8_e5m2, "fp6_e2m3": "fp6_e2m3", "fp6_e3m2": "fp6_e3m2"}  # fmt: skip
        scales, codes = mx.to_mx(tensor(x, bf16), types[element], 32, getattr(modes, mode))
        s = raw(scales, x.shape[0])
        # A NaN scale makes every value of its block NaN: torchao leaves the codes to the cast.
        undefined = (s == 0xFF).repeat(32, axis=1) | np.isnan(x)
        c = pairs(codes, x) if element == "fp4" else raw(codes, x.shape[0])
        return Answer(codes=c, scales=s, codes_undefined=undefined)

    return answer


def _nvfp4(levels: int):  # noqa: ANN202
    def answer(x: np.ndarray, bf16: bool) -> Answer:
        nvfp4 = importlib.import_module("torchao.prototype.mx_formats.nvfp4_tensor")
        t = tensor(x, bf16)
        scale = nvfp4.per_tensor_amax_to_scale(t.abs().amax()) if levels == 2 else None
        scales, codes = nvfp4.nvfp4_quantize(t, 16, scale)
        number = None if scale is None else scale.numpy()
        s = raw(scales, x.shape[0])
        # f32_to_f4_unpacked has no code for NaN: a NaN scale or product leaves what it makes of it.
        undefined = ~np.isfinite(x) | np.isin(s, (0x7F, 0xFF)).repeat(16, axis=1)
        if number is not None:
            with np.errstate(all="ignore"):
                undefined |= ~np.isfinite(np.float32(1) / number) | ~np.isfinite(number)
        return Answer(pairs(codes, x), s, number=number, form="multiplier", codes_undefined=undefined)

    return answer


def _adapter(row: str, answer, first: str, last: str, ended: bool = False) -> Adapter:  # noqa: ANN001
    module = "torchao.prototype.mx_formats.mx_tensor"
    return Adapter(row, "torchao", module, first, last, answer, ended=ended)


ADAPTERS = (
    *(_adapter(f"mx{element}.torchao.{mode}.0.18", _mx(element, mode.upper()), "0.18", "0.18")
      for element in ("fp4", "fp8_e4m3") for mode in ("floor", "ceil", "rceil", "even")),
    _adapter("nvfp4.torchao.inference", _nvfp4(2), "0.17", "0.18"),
    _adapter("nvfp4.torchao.inference.divide", _nvfp4(2), "0.14", "0.16", ended=True),
    _adapter("nvfp4.torchao.single-level", _nvfp4(1), "0.18", "0.18"),
    _adapter("nvfp4.torchao.single-level.0.17", _nvfp4(1), "0.14", "0.17", ended=True),
)  # fmt: skip
