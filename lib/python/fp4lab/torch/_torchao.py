"""torchao's NVFP4 training, as it is, on the CPU."""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
from collections.abc import Iterator

import torch
from torch import Tensor

from .. import _core, _ieee
from . import _scaled_mm, _tensors

ROW = "nvfp4.torchao.training.0.18"
_SQUARE = json.dumps({"like": ROW, "block": [16, 16]})
_MODULE = "torchao.prototype.moe_training.nvfp4_training.nvfp4_linear"
_LAYOUT = ("low-first", "128x4", False, True, "amax")


def _mask(sign_vector) -> int:
    return sum(1 << i for i, s in enumerate(sign_vector) if s < 0)


def _quantized(
    x: Tensor,
    dialect: str,
    amax: Tensor,
    columnwise: bool,
    sign_mask: int | None = None,
    seed=None,
    offset=None,
) -> tuple[Tensor, Tensor]:
    """(codes, scales in tiles of torchao's shape) of x, or of its transpose."""
    stochastic = seed is not None
    source = (
        (int(seed) & 2**64 - 1, int(offset) & 0xFFFFFFFF, 0, "philox", columnwise)
        if stochastic
        else None
    )
    data, scales, _ = _core.quantize(
        _tensors.matrix(x),
        dialect,
        "stochastic_16" if stochastic else "",
        columnwise,
        [float(amax)],
        None,
        source,
        0 if sign_mask is None else 16,
        sign_mask or 0,
        _LAYOUT,
        _tensors.threads(),
    )
    lines, length = reversed(x.shape) if columnwise else x.shape
    tiles = _tensors.tensor(scales).reshape(lines // 128, length // 64, 32, 16)
    return _tensors.tensor(data), tiles.view(torch.float8_e4m3fn)


def _rht_amax(
    x: Tensor, sign_vector, hadamard_dimension: int = 16, scaling_type: int = 0
) -> tuple[Tensor, Tensor]:
    """triton_rht_amax: (the amax of the transformed columns, the amax of x)."""
    array, mask = _tensors.matrix(x), _mask(sign_vector)
    columns = _core.amax(array, "nvfp4.te", hadamard_dimension, mask, True)
    rows = _core.amax(array, "nvfp4.te", 0, mask, False)
    return _tensors.tensor(columns).reshape(()), _tensors.tensor(rows).reshape(())


def _quantize_row_col(
    x,
    col_global_amax,
    row_global_amax,
    sign_vector,
    stochastic_rounding=False,
    hadamard_dimension=16,
    scaling_type=0,
    col_seed_base=None,
    col_offset_base=None,
    row_offset_base=None,
    row_seed_base=None,
):
    """triton_rht_quantize_row_col: codes and scales of transformed columns, then of rows."""
    mask = _mask(sign_vector)
    of_columns = (col_seed_base, col_offset_base) if stochastic_rounding else (None, None)
    of_rows = (row_seed_base, row_offset_base) if stochastic_rounding else (None, None)
    return (
        *_quantized(x, ROW, col_global_amax, True, mask, *of_columns),
        *_quantized(x, ROW, row_global_amax, False, None, *of_rows),
    )


def _weight_quantize_2d(x: Tensor, global_amax: Tensor):
    """triton_weight_quantize_2d: blocks of 16x16, of x and of its transpose."""
    return *_quantized(x, _SQUARE, global_amax, False), *_quantized(x, _SQUARE, global_amax, True)


_KERNELS = {
    "triton_rht_amax": _rht_amax,
    "triton_rht_quantize_row_col": _quantize_row_col,
    "triton_weight_quantize_2d": _weight_quantize_2d,
}


def _on_cpu(ours, theirs):
    """ours for tensors of the CPU, theirs for all others."""

    guarded = _ieee.ieee(ours)

    @functools.wraps(ours)
    def kernel(x, *arguments, **options):
        return (guarded if x.device.type == "cpu" else theirs)(x, *arguments, **options)

    return kernel


@contextlib.contextmanager
def enable_torchao_training_on_cpu(accumulation: str = "block") -> Iterator[None]:
    """Makes torchao's NVFP4 training (NVFP4TrainingConfig) run on the CPU, within the context.

    torchao 0.18 runs unmodified: three Triton kernels that it calls are replaced for tensors of the
    CPU, and its products go through enable_scaled_mm_on_cpu(accumulation). Operands of finite
    tensors have the bytes of the dialect nvfp4.torchao.training.0.18; stochastic rounding has 16
    bits an element, as the instruction of torchao's kernels, drawn from torchao's seeds by fp4lab's
    generator and not by Triton's.

    Raises:
        ImportError: in one line, if torchao is absent or another release than 0.18.
    """
    try:
        version = importlib.import_module("torchao").__version__
        module = importlib.import_module(_MODULE)
        originals = {name: getattr(module, name) for name in _KERNELS}
    except (ImportError, AttributeError) as error:
        raise ImportError(f"enable_torchao_training_on_cpu needs torchao 0.18: {error}") from error
    if version.split("+")[0].split(".")[:2] != ["0", "18"]:
        raise ImportError(
            f"enable_torchao_training_on_cpu knows the formulas of torchao 0.18, not {version}"
        )
    with _scaled_mm.enable_scaled_mm_on_cpu(accumulation):
        for name, kernel in _KERNELS.items():
            setattr(module, name, _on_cpu(kernel, originals[name]))
        try:
            yield
        finally:
            for name, original in originals.items():
                setattr(module, name, original)
