"""AMD Quark: MXFP4 by its even, floor and ceil rules, and AMDFP4 (E2M1 under UE5M3 scales)."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from ..compare import Adapter, Answer, Exemption
from . import _places, _values
from ._torch import pairs, raw, tensor

_KERNEL = "quark.torch.kernel"
_QUANTIZATION = "quark.torch.quantization."


def _bytes(scales: Any) -> Any:
    """The UE5M3 bytes of scales."""
    kernel = importlib.import_module(_KERNEL)
    return kernel.scaled_real_quantize(
        "fp8_e5m3", scales, None, None, -1, 1, 0.0, 114688.0, 2, "per_group"
    )


def _one_level(t: Any, group: int) -> tuple[Any, Any]:
    observer = importlib.import_module(_QUANTIZATION + "observer.observer").PerBlockMXObserver
    spec = importlib.import_module(_QUANTIZATION + "config.config").AmdFP4Spec
    seen = observer(spec(ch_axis=-1, group_size=group, is_dynamic=True).to_quantization_spec())
    seen(t)
    scale, _ = seen.calculate_qparams()
    return scale, _bytes(scale)


def _two_levels(t: Any, group: int) -> tuple[Any, Any]:
    torch = importlib.import_module("torch")
    kernel = importlib.import_module(_KERNEL)
    template = importlib.import_module(_QUANTIZATION + "config.template")
    quantize = importlib.import_module(_QUANTIZATION + "tensor_quantize")
    specs = template.AmdFP4GlobalScaleScheme(group).config.weight
    both = quantize.SequentialQuantize(specs, torch.device("cpu"))
    both.enable_observer(True)
    both(t)
    both.enable_observer(False)
    blocks, number = both[0].scale.to(torch.float32), both[1].scale.to(torch.float32)
    scale = kernel.scaled_fake_quantize(
        "fp8_e5m3", blocks, number, None, -1, 1, 0.0, 114688.0, 2, "per_tensor", None
    )
    return scale, _bytes(blocks / number)


def _amdfp4(group: int, levels: Any):  # noqa: ANN202
    def answer(x: np.ndarray, bf16: bool) -> Answer | None:
        if levels is _two_levels and not np.isfinite(x).all():
            return None  # Quark raises
        t = tensor(x, bf16)
        scale, stored = levels(t, group)
        values = importlib.import_module(_KERNEL).scaled_real_quantize(
            "fp4", t, scale, None, -1, group, -6.0, 6.0, 8, "per_group"
        )
        v = values.numpy().reshape(x.shape)
        return Answer(_values.codes(v), raw(stored, x.shape[0]), codes_undefined=np.isnan(v))

    return answer


def _mx(mode: str):  # noqa: ANN202
    def answer(x: np.ndarray, bf16: bool) -> Answer | None:
        if x.shape[1] % 2:
            return None  # it packs pairs
        torch = importlib.import_module("torch")
        observer = importlib.import_module(_QUANTIZATION + "observer.observer").PerBlockMXObserver
        spec = importlib.import_module(_QUANTIZATION + "config.config").OCP_MXFP4Spec
        numerics = importlib.import_module("quark.torch.utils.numerics")
        t = tensor(x, bf16)
        seen = observer(spec(is_dynamic=False, ch_axis=-1,
                             scale_calculation_mode=mode).to_quantization_spec())  # fmt: skip
        seen.amax = torch.tensor(0.0, dtype=t.dtype)
        seen(t)
        scale, zero = seen.calculate_qparams()
        values = importlib.import_module(_KERNEL).scaled_real_quantize(
            "fp4", t, scale, zero, -1, 32, -6.0, 6.0, 8, "per_group"
        )
        packed = importlib.import_module("quark.torch.utils.pack").Pack_fp4("per_group", "fp4")
        stored = numerics.to_e8m0_uint8(scale)
        return Answer(pairs(packed.pack(values, False), x), raw(stored, x.shape[0]))

    return answer


_CASTS = (Exemption("a maximum of Inf or NaN: a cast of it, undefined", _places.nonfinite_blocks),)


def _adapter(row: str, answer: Any, types: tuple[str, ...] = ("float32",),
             exemptions: tuple[Exemption, ...] = ()) -> Adapter:  # fmt: skip
    return Adapter(row, "amd-quark", _KERNEL, "0.13", "0.13", answer, types=types,
                   ragged=True, exemptions=exemptions)  # fmt: skip


ADAPTERS = (
    _adapter("amdfp4.quark", _amdfp4(16, _one_level)),
    _adapter("amdfp4.quark.g32", _amdfp4(32, _one_level)),
    _adapter("amdfp4.quark.global16", _amdfp4(16, _two_levels)),
    _adapter("amdfp4.quark.global32", _amdfp4(32, _two_levels)),
    _adapter("mxfp4.quark.even", _mx("even"), ("float32", "bfloat16"), _CASTS),
    _adapter("mxfp4.quark.floor", _mx("floor"), exemptions=_CASTS),
    _adapter("mxfp4.quark.ceil", _mx("ceil"), exemptions=_CASTS),
)
