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


def _candidates(x: np.ndarray, rule: Any) -> list[tuple[np.ndarray, np.ndarray]]:
    """(elements of E2M1 as values, their errors) of each scale that the package tries."""
    reference = importlib.import_module(_MODULE)
    blocks = tensor(x).reshape(-1, 16)
    amax = blocks.abs().max().float()
    out = []
    for factor in (None,) if rule.name.startswith("static") else (None, 1.5):
        scaled, scales = reference.quantize_to_nvfp4(
            blocks, amax, scale_rule=rule, scale_expansion_factor=factor
        )
        elements = reference.fake_quantize_to_e2m1(scaled)
        decoded = elements * scales.unsqueeze(1).float() * amax / np.float32(6 * 256)
        out.append((floats(elements), floats(decoded - blocks)))
    return out


def _rule(d: Dialect) -> Any:
    return getattr(importlib.import_module("fouroversix.utils").ScaleRule, _RULES[d.name])


def _rounds_to_8(x: np.ndarray, d: Dialect) -> np.ndarray:
    """Blocks in which a candidate has an element beyond 6."""
    beyond = [(np.abs(e) > 6).any(axis=1) for e, _ in _candidates(x, _rule(d))]
    return np.any(beyond, axis=0).repeat(16).reshape(x.shape)


def _factor_overflows(x: np.ndarray, d: Dialect) -> np.ndarray:
    """Blocks in which S is finite and a candidate's factor is Inf, by which elements become NaN."""
    rule = _rule(d)
    nvfp4 = importlib.import_module("fouroversix.utils").DataType.nvfp4
    largest = nvfp4.quantized_value_type.get_maximum_value(rule) * nvfp4.scale_type.get_maximum_value(rule)
    s = np.float32(largest) / np.abs(x).max()
    lost = [np.isnan(e).any(axis=1) & np.isfinite(s) for e, _ in _candidates(x, rule)]
    return np.any(lost, axis=0).repeat(16).reshape(x.shape)


def _near_ties(x: np.ndarray, d: Dialect) -> np.ndarray:
    """Blocks whose two errors compare otherwise in torch's order of additions than in index order."""
    torch = importlib.import_module("torch")
    candidates = _candidates(x, _rule(d))
    fits = []
    for add in (lambda e: torch.from_numpy(e).sum(dim=-1).numpy(), lambda e: np.add.accumulate(e, 1)[:, -1]):
        six, four = (add(e**2 if d.name.endswith("mse") else np.abs(e)) for _, e in candidates)
        fits.append(four < six)
    return (fits[0] != fits[1]).repeat(16).reshape(x.shape)


_BEYOND = Exemption("an element of 7 or more, scaled, rounds to 8 there, whose code is 8",
                    _rounds_to_8)  # fmt: skip
_OVERFLOW = Exemption("a candidate's factor is Inf: its elements are NaN there, and the scale for 6 stays",
                      _factor_overflows)  # fmt: skip
_ORDER = Exemption("the errors' order of additions decides", _near_ties)


_EXEMPTIONS = {"static_6": (_BEYOND,), "mse": (_BEYOND, _ORDER), "mae": (_BEYOND, _OVERFLOW, _ORDER),
               "abs_max": (_BEYOND, _OVERFLOW)}  # fmt: skip


def _adapter(row: str, rule: str) -> Adapter:
    return Adapter(row, "fouroversix", _MODULE, "1.0", "1.0.5", _answer(rule), exemptions=_EXEMPTIONS[rule])


ADAPTERS = tuple(_adapter(row, rule) for row, rule in _RULES.items())
