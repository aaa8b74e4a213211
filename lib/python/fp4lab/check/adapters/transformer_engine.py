"""Transformer Engine's reference quantizers in PyTorch, which call no kernel.

Its package is imported past its own __init__, which loads CUDA code; the extension module is a
stand-in, of which the reference classes call nothing. Where the package itself can be imported (on a
machine with CUDA), that import is used.
"""

from __future__ import annotations

import enum
import importlib
import importlib.util
import os
import sys
import types
from functools import lru_cache
from typing import Any
from unittest import mock

import numpy as np

from ..compare import Adapter, Answer, Exemption
from . import _places
from ._torch import pairs, raw, tensor

_RECIPES = "transformer_engine.pytorch.custom_recipes."


def _import_past_init() -> tuple[Any, Any]:
    before = dict(sys.modules)
    extension = mock.MagicMock(name="transformer_engine_torch", __spec__=None)
    names = dict(kByte=0, kInt32=2, kFloat32=4, kFloat16=5, kBFloat16=6, kFloat8E4M3=7,
                 kFloat8E5M2=8, kFloat4E2M1=10)  # fmt: skip
    extension.DType = enum.IntEnum("DType", names)  # type: ignore[misc]
    spec = importlib.util.find_spec("transformer_engine")
    if spec is None or not spec.submodule_search_locations:
        raise ImportError("transformer_engine has no folder")
    root = spec.submodule_search_locations[0]
    stand_ins: dict[str, Any] = {"transformer_engine_torch": extension}
    for name, folder in (("transformer_engine", root),
                         ("transformer_engine.pytorch", root + "/pytorch")):  # fmt: skip
        stand_ins[name] = types.ModuleType(name)
        stand_ins[name].__path__ = [folder]
    try:
        with mock.patch.dict(os.environ, NVTE_PROJECT_BUILDING="1"):
            sys.modules.update(stand_ins)
            importlib.import_module("transformer_engine.pytorch.tensor")
            return (importlib.import_module(_RECIPES + "reference_nvfp4"),
                    importlib.import_module(_RECIPES + "reference_current_scaling"))  # fmt: skip
    finally:
        for name in [n for n in sys.modules if n.startswith("transformer_engine")]:
            del sys.modules[name]
        sys.modules.update({n: m for n, m in before.items() if n.startswith("transformer_engine")})


@lru_cache(maxsize=None)
def references() -> tuple[Any, Any]:
    """The modules reference_nvfp4 and reference_current_scaling."""
    try:
        return (importlib.import_module(_RECIPES + "reference_nvfp4"),
                importlib.import_module(_RECIPES + "reference_current_scaling"))  # fmt: skip
    except Exception:
        return _import_past_init()


def _answer(square: bool, rows: bool, **options: Any):  # noqa: ANN202
    def answer(x: np.ndarray, bf16: bool) -> Answer | None:
        if x.shape[1] % 2 or (square and rows):
            return None  # it packs pairs
        module, _ = references()
        quantizer = module.NVFP4QuantizerRef(
            module.reference_utils.Fp4Formats.E2M1, rowwise=True, columnwise=False,
            quant_tile_shape=(16, 16) if square else (1, 16), row_scaled_nvfp4=rows, **options,
        )  # fmt: skip
        q = quantizer.quantize(tensor(x, bf16))
        # Padded to whole tiles.
        scales = raw(q.scale, q.scale.shape[0])[: x.shape[0], : -(-x.shape[1] // 16)]
        amax = q.global_amax_row.float().numpy().reshape(-1)
        return Answer(pairs(q.data, x), scales, number=amax)

    return answer


def _four_over_six() -> dict[str, dict[str, Any]]:
    rows = {}
    for kind, square, by_row in (("", False, False), (".2d", True, False),
                                 (".row-scaled", False, True)):  # fmt: skip
        for mode in ("mae", "mse"):
            for bound in (448, 256):
                for fast in (False, True):
                    name = f"nvfp4.te.4over6.{mode}.{bound}{kind}" + (".fast-error" if fast else "")
                    rows[name] = dict(square=square, rows=by_row, nvfp4_use_4over6=True,
                                      nvfp4_e4m3_max=bound, nvfp4_4over6_err_mode=mode,
                                      nvfp4_4over6_err_use_fast_math=fast)  # fmt: skip
    return rows


def _current_scaling(dtype: str):  # noqa: ANN202
    def answer(x: np.ndarray, bf16: bool) -> Answer:
        torch = importlib.import_module("torch")
        _, module = references()
        quantizer = module.CurrentScalingQuantizerRef(getattr(torch, dtype), rowwise=True,
                                                      columnwise=False)  # fmt: skip
        return Answer(raw(quantizer.quantize(tensor(x, bf16)).data, x.shape[0]))

    return answer


# The rows of kernels, of which the reference differs on purpose or by its host arithmetic.
_KERNEL_ROWS = (
    Exemption("v = -0 has code 0 in the reference, 8 in the kernels", _places.vanishing_negatives(-140)),
    Exemption("a tensor with NaN is NaN in all of the reference", _places.nan_tensor),
)
_CURRENT_SCALING = (
    Exemption("an amax of Inf or NaN gives another scale in the reference", _places.nonfinite_tensor),
)


def _adapter(row: str, answer: Any, exemptions: tuple[Exemption, ...] = ()) -> Adapter:
    return Adapter(row, "transformer-engine", references, "2.8", "2.20.2", answer,
                   ragged=True, exemptions=exemptions)  # fmt: skip


ADAPTERS = (
    _adapter("nvfp4.te.reference", _answer(False, False)),
    _adapter("nvfp4.te.reference.2d", _answer(True, False)),
    _adapter("nvfp4.te.row-scaled", _answer(False, True), _KERNEL_ROWS),
    *(_adapter(row, _answer(**options), _KERNEL_ROWS) for row, options in _four_over_six().items()),
    _adapter("fp8_e4m3", _current_scaling("float8_e4m3fn"), _CURRENT_SCALING),
    _adapter("fp8_e5m2", _current_scaling("float8_e5m2"), _CURRENT_SCALING),
)
