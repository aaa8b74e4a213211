"""The shapes and types of quantized matrices."""

from __future__ import annotations

import functools

import numpy as np
import torch

from .. import _core, _tables
from .._arguments import TE_SIGN_MASK
from .._qtensor import default_nibbles, scale_order
from . import _tensors

_TILES = {"linear": (1, 1), "padded": (128, 4), "128x4": (128, 4), "8x4": (8, 4)}


def layout_of(dialect: _tables.Dialect, scale_layout: str) -> tuple[str, str, bool, bool, str]:
    """The names of a layout, as the extension module takes them."""
    return (default_nibbles(dialect), scale_order(scale_layout), False, False, "amax")


def _up(n, multiple: int):
    return (n + multiple - 1) // multiple


def sizes_of(dialect: _tables.Dialect, rows, cols, scale_layout: str):
    """((rows, bytes a row) of codes, (rows, columns) of scales, amaxes); sizes may be symbols."""
    data = (rows, _up(cols, 2) if dialect.element_bits == 4 else cols)
    amaxes = 0 if not dialect.tensor_scale else rows if dialect.row_scaled else 1
    block_rows, block_cols = dialect.block
    if block_rows == 0:
        return data, (0, 0), amaxes
    tile_rows, tile_cols = _TILES[scale_order(scale_layout)]
    scale_rows, scale_cols = _up(rows, block_rows), _up(cols, block_cols)
    return (
        data,
        (_up(scale_rows, tile_rows) * tile_rows, _up(scale_cols, tile_cols) * tile_cols),
        amaxes,
    )


@functools.lru_cache(maxsize=None)
def scale_type(dialect: str) -> torch.dtype:
    """The type of scale_inv: uint8, or that of numbers."""
    d = _tables.dialect(dialect)
    one = np.ones((1, 1), np.float32)
    source = (0, 0, 0, "philox", False) if d.takes_random_bits else None
    scales = _core.quantize(one, d.name, "", False, [], None, source, 0, TE_SIGN_MASK, layout_of(d, "linear"), 1)[1]
    return _tensors.tensor(scales).dtype


def check_scales(
    scales: torch.Tensor, name: str, d: _tables.Dialect, lines: int, k: int, layout: str
) -> None:
    """Raises fp4lab.Error for another number of scale bytes, which the library would read as numbers of two or four
    bytes."""
    _, _, rows, cols = _core.sizes(d.name, lines, k, layout_of(d, layout))
    if scales.dtype in _tensors.BYTES and scales.numel() != rows * cols:
        raise _core.Error(f"{name}: has {scales.numel()} scales, and {rows}x{cols} are those of {lines}x{k}")
