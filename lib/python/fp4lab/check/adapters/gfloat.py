"""gfloat: block formats of the OCP specification, as values."""

from __future__ import annotations

import importlib

import numpy as np

from ..compare import Adapter, Answer

_ELEMENTS = {
    "mxfp4.floor": "fp4_e2m1", "mxfp6_e2m3.floor": "fp6_e2m3", "mxfp6_e3m2.floor": "fp6_e3m2",
    "mxfp8_e4m3.floor": "fp8_e4m3", "mxfp8_e5m2.floor": "fp8_e5m2",
}  # fmt: skip


def _answer(element: str):  # noqa: ANN202
    def answer(x: np.ndarray, bf16: bool) -> Answer | None:
        gfloat = importlib.import_module("gfloat")
        info = getattr(importlib.import_module("gfloat.formats"), f"format_info_mx{element}")
        if x.shape[1] % info.k or not np.isfinite(x).all():
            return None  # quantize_block has no rule for them: their scale is log2 of Inf or NaN
        blocks = x.astype(np.float64).reshape(-1, info.k)
        # quantize_block, with the array functions of gfloat: its loop takes 50 us an element.
        scales = np.array([gfloat.compute_scale_amax(info.etype.emax, b) for b in blocks])
        stored = gfloat.round_ndarray(info.stype, scales, sat=True)
        rounded = gfloat.round_ndarray(info.etype, blocks / scales[:, None], sat=True)
        values = gfloat.decode_ndarray(info.etype, gfloat.encode_ndarray(info.etype, rounded))
        out = values * stored[:, None]
        first = gfloat.quantize_block(info, blocks[0], gfloat.compute_scale_amax)
        if not np.array_equal(first, out[0]):
            raise ValueError("gfloat: quantize_block differs from its array functions")
        return Answer(values=out.reshape(x.shape).astype(np.float32))

    return answer


ADAPTERS = tuple(
    Adapter(row, "gfloat", "gfloat", "0.4", "0.5.2", _answer(element), types=("float32",))
    for row, element in _ELEMENTS.items()
)
