"""DeepGEMM's casts for its FP8 GEMMs, in PyTorch.

Only the file of the casts is loaded: the package's own __init__ loads CUDA code. sgl-deep-gemm is the
package on PyPI that has the file.
"""

from __future__ import annotations

import importlib.util
from functools import lru_cache
from typing import Any

import numpy as np

from ..compare import Adapter, Answer
from ._torch import floats, raw, tensor

_FILE = "utils/math.py"


@lru_cache(maxsize=None)
def casts() -> Any:
    """The module of the casts."""
    package = importlib.util.find_spec("deep_gemm")
    if package is None or not package.submodule_search_locations:
        raise ImportError("deep_gemm has no folder")
    path = f"{package.submodule_search_locations[0]}/{_FILE}"
    spec = importlib.util.spec_from_file_location("deep_gemm_casts", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _answer(name: str, height: int, powers: bool):  # noqa: ANN202
    def answer(x: np.ndarray, bf16: bool) -> Answer:
        codes, scales = getattr(casts(), name)(tensor(x, bf16), use_ue8m0=powers)
        each_row = np.ascontiguousarray(floats(scales).repeat(height, axis=0)[: x.shape[0]])
        if powers:  # of 2: the bits of the exponent are the byte
            each_row = (each_row.view(np.uint32) >> 23).astype(np.uint8)
        positive = np.array(raw(codes, x.shape[0]))
        positive[positive == 0xFF] = 0x7F  # the sign of NaN is that of the processor's NaN
        return Answer(positive, each_row)

    return answer


def _adapter(row: str, name: str, height: int, powers: bool) -> Adapter:
    return Adapter(row, "sgl-deep-gemm", casts, "0.2.5", "0.2.5", _answer(name, height, powers),
                   ragged=True)  # fmt: skip


ADAPTERS = (
    _adapter("fp8_e4m3.deepgemm.1x128", "per_token_cast_to_fp8", 1, True),
    _adapter("fp8_e4m3.deepgemm.128x128", "per_block_cast_to_fp8", 128, True),
    _adapter("fp8_e4m3.deepgemm.1x128.fp32", "per_token_cast_to_fp8", 1, False),
    _adapter("fp8_e4m3.deepgemm.128x128.fp32", "per_block_cast_to_fp8", 128, False),
)
