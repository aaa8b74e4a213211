"""AMD Quark: MXFP4 by its even, floor and ceil rules, and AMDFP4 (E2M1 under UE5M3 scales)."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from ..compare import Adapter, Answer
from . import _values
from ._torch import raw, tensor

_KERNEL = "quark.torch.kernel"
_QUANTIZATION = "quark.torch.quantization."


def _bytes(scales: Any) -> Any:
    """The UE5M3 bytes of scales."""
    kernel = importlib.import_module(_KERNEL)
    return kernel.scaled_real_quantize(
        "fp8_e5m3", scales, None, None, -1, 1, 0.0, 114688.0, 2, "per_group"
    )


def _one_level(t: Any, group: int) -> tuple[Any, Any, None]:
    observer = importlib.import_module(_QUANTIZATION + "observer.observer").PerBlockMXObserver
    spec = importlib.import_module(_QUANTIZATION + "config.config").AmdFP4Spec
    seen = observer(spec(ch_axis=-1, group_size=group, is_dynamic=True).to_quantization_spec())
    seen(t)
    scale, _ = seen.calculate_qparams()
    return scale, _bytes(scale), None


def _two_levels(t: Any, group: int) -> tuple[Any, Any, Any]:
    torch = importlib.import_module("torch")
    kernel = importlib.import_module(_KERNEL)
    template = importlib.import_module(_QUANTIZATION + "config.template")
    quantize = importlib.import_module(_QUANTIZATION + "tensor_quantize")
    steps = [
        quantize.FakeQuantizeBase.get_fake_quantize(c, device=torch.device("cpu"))
        for c in template.AmdFP4GlobalScaleScheme(group).config.weight
    ]
    both = quantize.SequentialQuantize(*steps)
    both.enable_observer(True)
    both(t)
    both.enable_observer(False)
    blocks, number = both[0].scale.to(torch.float32), both[1].scale.to(torch.float32)
    scale = kernel.scaled_fake_quantize(
        "fp8_e5m3", blocks, number, None, -1, 1, 0.0, 114688.0, 2, "per_tensor", None
    )
    return scale, _bytes(blocks / number), number


def _amdfp4(group: int, levels: Any):  # noqa: ANN202
    def answer(x: np.ndarray, bf16: bool) -> Answer:
        t = tensor(x, bf16)
        scale, stored, number = levels(t, group)
        values = importlib.import_module(_KERNEL).scaled_real_quantize(
            "fp4", t, scale, None, -1, group, -6.0, 6.0, 8, "per_group"
        )
        v = values.numpy().reshape(x.shape)
        return Answer(_values.codes(v), raw(stored, x.shape[0]), form="multiplier",
                      number=None if number is None else number.numpy(),
                      codes_undefined=np.isnan(v))  # fmt: skip

    return answer


def _mx(mode: str):  # noqa: ANN202
    def answer(x: np.ndarray, bf16: bool) -> Answer:
        torch = importlib.import_module("torch")
        observer = importlib.import_module(_QUANTIZATION + "observer.observer").PerBlockMXObserver
        config = importlib.import_module(_QUANTIZATION + "config.config")
        spec = config.OCP_MXFP4Spec(ch_axis=-1, is_dynamic=True, scale_calculation_mode=mode)
        t = tensor(x, bf16)
        seen = observer(spec.to_quantization_spec())
        seen(t)
        scale, _ = seen.calculate_qparams()
        values = importlib.import_module(_KERNEL).scaled_real_quantize(
            "fp4", t, scale, None, -1, 32, -6.0, 6.0, 8, "per_group"
        )
        v = values.to(torch.float32).numpy().reshape(x.shape)
        s = scale.to(torch.float32).numpy().reshape(x.shape[0], -1)
        from ..._quantize import encode

        return Answer(_values.codes(v), encode(s, "float8_e8m0fnu", overflow="special"),
                      codes_undefined=np.isnan(v))  # fmt: skip

    return answer


def _adapter(row: str, answer: Any) -> Adapter:
    return Adapter(row, "amd-quark", _KERNEL, "0.13", "0.13", answer, types=("float32",))


ADAPTERS = (
    _adapter("amdfp4.quark", _amdfp4(16, _one_level)),
    _adapter("amdfp4.quark.g32", _amdfp4(32, _one_level)),
    _adapter("amdfp4.quark.global16", _amdfp4(16, _two_levels)),
    _adapter("amdfp4.quark.global32", _amdfp4(32, _two_levels)),
    *(_adapter(f"mxfp4.quark.{mode}", _mx(mode)) for mode in ("even", "floor", "ceil")),
)
