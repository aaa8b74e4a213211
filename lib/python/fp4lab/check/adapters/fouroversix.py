"""fouroversix: its PyTorch reference of NVFP4 under four scale rules."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from ..._tables import Dialect
from ..compare import Adapter, Answer, Exemption
from ._torch import floats, pairs, raw, tensor

_RULES = {
    "nvfp4.fouroversix": "static_6", "nvfp4.fouroversix.mse": "mse",
    "nvfp4.fouroversix.mae": "mae", "nvfp4.fouroversix.abs-max": "abs_max",
}  # fmt: skip


_MODULE = "fouroversix.quantize.pytorch.reference"


def _quantized(x: np.ndarray, bf16: bool, rule: str, packed: bool) -> Any:
    utils = importlib.import_module("fouroversix.utils")
    return importlib.import_module(_MODULE).quantize_to_fp4(
        tensor(x, bf16), fp4_format=utils.DataType.nvfp4,
        scale_rule=getattr(utils.ScaleRule, rule), use_blackwell_scale_layout=False,
        pack_values=packed,
    )  # fmt: skip


def _answer(rule: str):  # noqa: ANN202
    def answer(x: np.ndarray, bf16: bool) -> Answer:
        codes, scales, amax = _quantized(x, bf16, rule, True)
        # The code of NaN is its exponent's bits, with the sign of the processor's NaN.
        undefined = np.isnan(floats(_quantized(x, bf16, rule, False)[0]))
        return Answer(pairs(codes, x), raw(scales, x.shape[0]), number=amax.numpy(),
                      codes_undefined=undefined)  # fmt: skip

    return answer


def _rounds_to_8(x: np.ndarray, d: Dialect) -> np.ndarray:
    return np.abs(floats(_quantized(x, False, _RULES[d.name], False)[0])) > 6


_EXEMPTIONS = (
    Exemption("an element of 7 or more, scaled, rounds to 8, whose code is 8 there", _rounds_to_8),
)


ADAPTERS = tuple(
    Adapter(row, "fouroversix", _MODULE, "1.0", "1.0.5", _answer(rule), exemptions=_EXEMPTIONS)
    for row, rule in _RULES.items()
)  # fmt: skip
