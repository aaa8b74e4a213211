"""Tensors of torch from numpy, and the bytes of tensors."""

from __future__ import annotations

from typing import Any

import numpy as np


def tensor(x: np.ndarray, bf16: bool = False) -> Any:
    """A copy of x as a CPU tensor; bfloat16 if `bf16` (x holds bfloat16 numbers)."""
    import torch

    t = torch.from_numpy(np.array(x, np.float32))
    return t.to(torch.bfloat16) if bf16 else t


def raw(t: Any, rows: int) -> np.ndarray:
    """The bytes of a tensor of one-byte elements, (rows, rest)."""
    import torch

    return t.detach().contiguous().view(torch.uint8).numpy().reshape(rows, -1)


def pairs(t: Any, x: np.ndarray) -> np.ndarray:
    """Codes of x's shape from bytes that hold two, the even column low; padding is dropped."""
    packed = raw(t, x.shape[0])
    codes = np.stack([packed & 15, packed >> 4], axis=2).reshape(x.shape[0], -1)
    return np.ascontiguousarray(codes[:, : x.shape[1]])


def floats(t: Any) -> np.ndarray:
    import torch

    return t.detach().to(torch.float32).numpy()
