"""fouroversix: its PyTorch reference of NVFP4 under four scale rules."""

from __future__ import annotations

import importlib

import numpy as np

from ..compare import Adapter, Answer
from ._torch import pairs, raw, tensor

_RULES = {
    "nvfp4.fouroversix": "static_6", "nvfp4.fouroversix.mse": "mse",
    "nvfp4.fouroversix.mae": "mae", "nvfp4.fouroversix.abs-max": "abs_max",
}  # fmt: skip


def _answer(rule: str):  # noqa: ANN202
    def answer(x: np.ndarray, bf16: bool) -> Answer:
        reference = importlib.import_module("fouroversix.quantize.pytorch.reference")
        utils = importlib.import_module("fouroversix.utils")
        codes, scales, amax = reference.quantize_to_fp4(
            tensor(x, bf16), fp4_format=utils.DataType.nvfp4,
            scale_rule=getattr(utils.ScaleRule, rule), use_blackwell_scale_layout=False,
        )  # fmt: skip
        return Answer(pairs(codes, x), raw(scales, x.shape[0]), number=amax.numpy())

    return answer


ADAPTERS = tuple(
    Adapter(row, "fouroversix", "fouroversix.quantize.pytorch.reference", "1.0", "1.0.5",
            _answer(rule))
    for row, rule in _RULES.items()
)  # fmt: skip
