"""IEEE arithmetic for functions that torch.compile traces."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from .. import _ieee


def ieee(function: Callable[..., Any]) -> Callable[..., Any]:
    """fp4lab._ieee.ieee where the function runs; while torch.compile traces it, the function.

    The state is the calling thread's: torch's own threads, which share the elementwise operations
    of large tensors, and compiled graphs have theirs. Operators of torch.ops.fp4lab are guarded
    inside, and so have the same bytes everywhere.
    """
    guarded = _ieee.ieee(function)

    @functools.wraps(function)
    def eager(*arguments: Any, **options: Any) -> Any:
        if torch.compiler.is_compiling():
            return function(*arguments, **options)
        return guarded(*arguments, **options)

    return eager
