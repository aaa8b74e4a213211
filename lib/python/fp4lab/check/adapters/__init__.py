"""All adapters: which package implements which row on a CPU, and how it is called."""

from __future__ import annotations

from ..compare import Adapter
from . import (
    auto_round,
    comfy,
    compressed_tensors,
    deep_gemm,
    fouroversix,
    gfloat,
    gguf,
    mlx,
    modelopt,
    quark,
    qwix,
    torchao,
    transformer_engine,
)

_MODULES = (gfloat, torchao, modelopt, compressed_tensors, auto_round, transformer_engine, fouroversix,
            qwix, gguf, mlx, quark, comfy, deep_gemm)  # fmt: skip

ADAPTERS: tuple[Adapter, ...] = tuple(a for module in _MODULES for a in module.ADAPTERS)
