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


def _errors(x: np.ndarray, rule: Any) -> list[np.ndarray]:
    """The errors of elements under the scale for 6 and under that for 4."""
    reference = importlib.import_module(_MODULE)
    blocks = tensor(x).reshape(-1, 16)
    amax = blocks.abs().max().float()
    out = []
    for factor in (None, 1.5):
        scaled, scales = reference.quantize_to_nvfp4(
            blocks, amax, scale_rule=rule, scale_expansion_factor=factor
        )
        elements = reference.fake_quantize_to_e2m1(scaled)
        decoded = elements * scales.unsqueeze(1).float() * amax / np.float32(6 * 256)
        out.append(floats(decoded - blocks))
    return out


def _rule(d: Dialect) -> Any:
    return getattr(importlib.import_module("fouroversix.utils").ScaleRule, _RULES[d.name])


def _near_ties(x: np.ndarray, d: Dialect) -> np.ndarray:
    """Blocks whose two errors compare otherwise in torch's order of additions than in index order."""
    torch = importlib.import_module("torch")
    errors = _errors(x, _rule(d))
    fits = []
    for add in (lambda e: torch.from_numpy(e).sum(dim=-1).numpy(), lambda e: np.add.accumulate(e, 1)[:, -1]):
        six, four = (add(e**2 if d.name.endswith("mse") else np.abs(e)) for e in errors)
        fits.append(four < six)
    return (fits[0] != fits[1]).repeat(16).reshape(x.shape)


_ORDER = Exemption("the errors' order of additions decides", _near_ties)


def _adapter(row: str, rule: str) -> Adapter:
    exemptions = (_ORDER,) if rule in ("mse", "mae") else ()
    return Adapter(row, "fouroversix", _MODULE, "1.0", "1.0.5", _answer(rule), exemptions=exemptions)


ADAPTERS = tuple(_adapter(row, rule) for row, rule in _RULES.items())
