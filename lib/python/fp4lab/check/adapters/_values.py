"""Codes from the values that emulators write."""

from __future__ import annotations

import numpy as np

from ..._quantize import encode


def codes(values: np.ndarray, format: str = "float4_e2m1fn") -> np.ndarray:
    """The codes of numbers of the format; code 0 for NaN."""
    return encode(np.nan_to_num(np.asarray(values, np.float32)), format)
