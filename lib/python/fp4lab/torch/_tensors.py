"""Tensors of the CPU as the arrays that libfp4lab reads, without a copy, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

NUMBERS = (torch.float32, torch.bfloat16, torch.float16)
# A byte an element, or two FP4 codes a byte.
BYTES = tuple(
    getattr(torch, name)
    for name in (
        "uint8",
        "int8",
        "float8_e4m3fn",
        "float8_e5m2",
        "float8_e8m0fnu",
        "float4_e2m1fn_x2",
    )
    if hasattr(torch, name)
)


def check_cpu(x: torch.Tensor, name: str) -> None:
    """Raises TypeError for a tensor that is neither on the CPU nor without memory (meta)."""
    if x.device.type not in ("cpu", "meta"):
        raise TypeError(
            f"{name} is on {x.device}, and fp4lab computes on the CPU: pass {name}.cpu()"
        )
    if x.layout is not torch.strided:
        raise TypeError(f"{name} has the layout {x.layout}: pass {name}.to_dense()")


def check_numbers(x: torch.Tensor, name: str) -> None:
    """check_cpu, and TypeError unless x holds float32, bfloat16 or float16."""
    check_cpu(x, name)
    if x.dtype not in NUMBERS:
        remedy = f"; round it by {name}.float()" if x.dtype == torch.float64 else ""
        raise TypeError(
            f"{name} has dtype {x.dtype}: float32, bfloat16 and float16 are read{remedy}"
        )


def numbers(x: torch.Tensor, name: str = "x") -> np.ndarray:
    """x as float32, or as uint16 with the bits of BF16, of its shape and strides.

    float32 and bfloat16 are views of x's memory; float16 is copied.
    """
    check_numbers(x, name)
    x = x.detach().resolve_neg()
    if x.dtype == torch.bfloat16:
        return x.view(torch.int16).numpy().view(np.uint16)
    return x.float().numpy()


def matrix(x: torch.Tensor, name: str = "x") -> np.ndarray:
    """numbers(x) as (rows, columns): leading dimensions become rows, a vector becomes one row."""
    rows, cols = rows_and_columns(x, name)
    return numbers(x, name).reshape(int(rows), int(cols))


def rows_and_columns(x: torch.Tensor, name: str = "x") -> tuple[Any, Any]:
    """The shape of matrix(x); sizes may be symbols of a compiler. ValueError for a scalar."""
    if x.dim() == 0:
        raise ValueError(f"{name} is a scalar: a matrix (rows, columns) is quantized")
    rows = 1
    for n in x.shape[:-1]:
        rows = rows * n
    return rows, x.shape[-1]


def codes(x: torch.Tensor, name: str) -> np.ndarray:
    """The bytes of codes or scales as a flat uint8 array; a view where x is contiguous."""
    check_cpu(x, name)
    if x.dtype not in BYTES:
        names = ", ".join(str(d).removeprefix("torch.") for d in BYTES)
        raise TypeError(f"{name} has dtype {x.dtype}: bytes are read, as one of {names}")
    return x.detach().contiguous().view(torch.uint8).numpy().reshape(-1)


def scale_bytes(x: torch.Tensor, name: str) -> np.ndarray:
    """codes(x) of block scales, which are float32 or bfloat16 numbers in some dialects."""
    if x.dtype in (torch.float32, torch.bfloat16, getattr(torch, "uint16", None)):
        check_cpu(x, name)
        return x.detach().contiguous().view(torch.uint8).numpy().reshape(-1)
    return codes(x, name)


def floats(x: torch.Tensor | None, name: str) -> list[float]:
    """The numbers of a small tensor, such as an amax; [] for None."""
    if x is None:
        return []
    check_numbers(x, name)
    return x.detach().float().reshape(-1).tolist()


def tensor(array: np.ndarray) -> torch.Tensor:
    """A tensor on the memory of a new array."""
    return torch.from_numpy(array)


def threads() -> int:
    """The number of threads of the library's loops: torch's own."""
    return torch.get_num_threads()
