"""The numerics of 4-bit LLM training on numpy arrays: every published NVFP4 and MXFP4 formula to
the bit, verdicts on kernels with their reasons, and products with a stated order of additions.

>>> import numpy as np, fp4lab
>>> q = fp4lab.quantize(np.ones((16, 16), np.float32), "nvfp4.te")
>>> q.amax
np.float32(1.0)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from . import _core
from ._core import Error

if TYPE_CHECKING:
    from ._arrays import AmaxWarning
    from ._checkpoint import check_checkpoint, compare_dumps
    from ._judge import (
        Case,
        Identification,
        Report,
        Reproducer,
        Verdict,
        cases,
        explain,
        identify,
        verify,
    )
    from ._measure import Diagnostic, diagnostics, measure
    from ._parity import parity
    from ._products import ProductVerdict, scaled_mm, verify_mm
    from ._qtensor import QTensor
    from ._quantize import (
        TE_SIGN_MASK,
        amax,
        decode,
        encode,
        qdq,
        quantize,
        replay,
        rht,
        te_words,
    )
    from ._tables import (
        Accumulation,
        Dialect,
        Format,
        Recipe,
        accumulations,
        dialect,
        dialects,
        formats,
        recipes,
    )

__version__: str = _core.version

__all__ = [
    "TE_SIGN_MASK", "Accumulation", "AmaxWarning", "Case", "Diagnostic", "Dialect", "Error", "Format", "Identification",
    "ProductVerdict", "QTensor", "Recipe", "Report", "Reproducer", "Verdict", "accumulations",
    "amax", "cases", "check_checkpoint", "check_dialects", "compare_dumps", "decode", "diagnostics", "dialect", "dialects",
    "encode", "explain", "formats", "identify", "measure",
    "parity", "qdq", "quantize", "recipes", "replay", "rht", "scaled_mm", "te_words", "verify", "verify_mm",
]  # fmt: skip

_MODULES = ("check", "study", "testing")
# The modules that define the names of __all__. They are imported at the first use of a name, the ones without numpy
# before the others: numpy takes most of the time of an import, and pytest imports this package in every run.
_HOMES = ("_tables", "_checkpoint", "_parity", "_quantize", "_qtensor", "_measure", "_judge", "_products",
          "_arrays")  # fmt: skip


def check_dialects(names: Any = (), **options: Any) -> Any:
    """Compares dialects with the installed packages that they cite: fp4lab.check.check_dialects."""
    from . import check

    return check.check_dialects(names, **options)


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"fp4lab.{name}")
    if name in __all__:
        for home in _HOMES:
            module = importlib.import_module(f"fp4lab.{home}")
            if hasattr(module, name):
                return globals().setdefault(name, getattr(module, name))
    raise AttributeError(f"module 'fp4lab' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
