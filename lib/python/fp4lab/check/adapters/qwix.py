"""qwix: quantize_api of its published qtypes, on the CPU."""

from __future__ import annotations

import importlib

import numpy as np

from ..._quantize import encode
from ..compare import Adapter, Answer, Exemption
from . import _places

_MODULE = "qwix._src.core.qarray"


def _answer(qtype: str, block: int, scale: str):  # noqa: ANN202
    def answer(x: np.ndarray, bf16: bool) -> Answer:
        qarray = importlib.import_module(_MODULE)
        jnp = importlib.import_module("jax.numpy")
        given = jnp.asarray(x, jnp.bfloat16 if bf16 else jnp.float32)
        q = qarray.quantize_api(given, qtype, channelwise_axes=(0,), tiled_axes={1: block})
        codes = np.asarray(q.qvalue).view(np.uint8)
        scales = np.asarray(q.scale.astype(jnp.float32))
        # E2M1 has no NaN, and Inf / Inf is one: XLA's cast of it is not specified.
        undefined = ~np.isfinite(x) | ~np.isfinite(scales).repeat(block, axis=1)
        return Answer(codes, encode(scales, scale, overflow="special"), codes_undefined=undefined)

    return answer


_NAN = (Exemption("a block with NaN: XLA's maximum on a CPU keeps it or not", _places.nan_blocks),)

ADAPTERS = (
    Adapter("mxfp4.qwix", "qwix", _MODULE, "0.1.5", "0.1.8",
            _answer("mxfp4", 32, "float8_e8m0fnu"), types=("float32",), exemptions=_NAN),
    Adapter("nvfp4.qwix", "qwix", _MODULE, "0.1.5", "0.1.8",
            _answer("nvfp4", 16, "float8_e4m3fn"), types=("float32",), exemptions=_NAN),
    Adapter("nvfp4.qwix.bf16-input", "qwix", _MODULE, "0.1.5", "0.1.8",
            _answer("nvfp4", 16, "float8_e4m3fn"), types=("bfloat16",), exemptions=_NAN),
)  # fmt: skip
