"""Transformer Engine's JAX package on the CPU.

``enable()``, called before ``transformer_engine`` is imported, answers the FFI calls of its JAX modules
with libfp4lab: quantization (NVFP4, FP8, MXFP8), the amax under the random Hadamard transform, and GEMMs,
both for one tensor and for groups of them (the experts of a mixture).
Transformer Engine's own Python code, from PyPI and unmodified, does all the rest.
"""

from __future__ import annotations

import collections
import dataclasses
import importlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import os
import sys
import warnings

from . import _enums

__all__ = ["Call", "calls", "clear_calls", "enable", "recording", "VERSIONS"]

# Releases whose primitives, operand lists and enum values the handlers know.
VERSIONS = ("2.20.2",)
# The primitives that libfp4lab serves, by the name of their class; all others run Transformer Engine's own
# jnp code.
_SERVED = (
    "BaseDBiasQuantizePrimitive",
    "RHTAmaxCalculationPrimitive",
    "GemmPrimitive",
    "GroupedQuantizePrimitive",
    "GroupedGemmPrimitive",
    "GroupedGemmCopySizesPrimitive",
)
# A primitive of jnp code alone, which needs no handler.
_PURE = ("AmaxCalculationPrimitive",)

_state = {"enabled": False}


def _check_version(strict: bool) -> None:
    try:
        version = importlib.metadata.version("transformer_engine")
    except importlib.metadata.PackageNotFoundError:
        raise RuntimeError(
            "fp4lab.te_jax: transformer_engine is not installed: "
            f"pip install --no-deps transformer_engine=={VERSIONS[-1]}"
        ) from None
    if version in VERSIONS:
        return
    text = (
        f"fp4lab.te_jax: Transformer Engine {version} is unknown (known: {', '.join(VERSIONS)}): "
        f"pip install --no-deps transformer_engine=={VERSIONS[-1]}, or enable(strict=False)"
    )
    if strict:
        raise RuntimeError(text)
    warnings.warn(text, stacklevel=3)


class _CommonLoader(importlib.abc.Loader):
    """Loads transformer_engine.common and replaces the function that looks for the CUDA extension."""

    def __init__(self, loader):
        self._loader = loader

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        self._loader.exec_module(module)
        original = module.load_framework_extension

        def load_framework_extension(framework):
            if framework != "jax":
                return original(framework)
            return None  # sys.modules has it

        module.load_framework_extension = load_framework_extension


class _BaseLoader(_CommonLoader):
    """Loads transformer_engine.jax.cpp_extensions.base and lets it register our targets for the CPU."""

    def exec_module(self, module):
        self._loader.exec_module(module)
        register = module.register_primitive
        mlir = importlib.import_module("jax.interpreters.mlir")

        def register_primitive(cls, outer_only=False):
            register(cls, outer_only)
            if cls.__name__ in _SERVED:
                mlir.register_lowering(cls.inner_primitive, cls.lowering, platform="cpu")
            elif cls.__name__ not in _PURE:
                cls.set_enabled(False)

        module.register_primitive = register_primitive


class _Finder(importlib.abc.MetaPathFinder):
    _LOADERS = {
        "transformer_engine.common": _CommonLoader,
        "transformer_engine.jax.cpp_extensions.base": _BaseLoader,
    }

    def find_spec(self, name, path=None, target=None):
        if name not in self._LOADERS:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = self._LOADERS[name](spec.loader)
        return spec


def enable(*, capability: int = 100, threads: int | None = None, strict: bool = True) -> None:
    """Makes ``import transformer_engine.jax`` work on a CPU, with libfp4lab behind its calls.

    Call it before the first import of transformer_engine. Later calls change `threads` only.

    capability: the compute capability that Transformer Engine sees; 100 is Blackwell, which its NVFP4
        recipe demands.
    threads: threads of one call; None: OMP_NUM_THREADS, else the processors.
    strict: refuse a release of Transformer Engine that VERSIONS does not list.
    """
    from fp4lab import _xla

    _xla.set_threads(threads)
    if _state["enabled"]:
        return
    if "transformer_engine" in sys.modules:
        raise RuntimeError(
            "fp4lab.te_jax: transformer_engine is imported already: call enable() before the import"
        )
    _check_version(strict)
    import jax

    for name, target in _xla.registrations().items():
        if name.startswith("te_"):
            jax.ffi.register_ffi_target(name, target, platform="cpu")
    # Without it, Transformer Engine looks for its CUDA libraries at once.
    os.environ["NVTE_PROJECT_BUILDING"] = "1"
    sys.modules["transformer_engine_jax"] = _enums.module(capability)
    sys.meta_path.insert(0, _Finder())
    _state["enabled"] = True
    import transformer_engine.jax  # noqa: F401  (errors appear here, not in the caller's model)


def calls() -> collections.Counter:
    """How often each kind of call ran in this process: a text with operation, mode, flags and shapes."""
    from fp4lab import _xla

    return collections.Counter(_xla.counts())


def clear_calls() -> None:
    """Sets all numbers of calls() to zero."""
    from fp4lab import _xla

    _xla.clear_counts()


@dataclasses.dataclass(frozen=True)
class Call:
    """A recorded call: the buffers of operands and results, by Transformer Engine's names.

    arrays: name -> numpy array; FP4 codes as uint8 in (..., length / 2), low nibble first; FP8 and E8M0
        as uint8, bfloat16 as uint16.
    """

    op: str
    attributes: dict
    arrays: dict
    dtypes: dict
    shapes: dict


def _array(dtype: str, shape: tuple, data: bytes):
    import numpy as np

    if dtype == "float4_e2m1fn":
        return np.frombuffer(data, np.uint8).reshape(*shape[:-1], -1)
    kind = {
        "float32": np.float32,
        "uint32": np.uint32,
        "int32": np.int32,
        "bfloat16": np.uint16,
        "float16": np.uint16,
    }
    return np.frombuffer(data, kind.get(dtype, np.uint8)).reshape(shape)


class recording:
    """A context that keeps the buffers of every call: ``with recording() as r: ...`` then ``r.calls``.

    Wait for the arrays of the computation (block_until_ready) before the context ends.
    """

    def __init__(self):
        self.calls: list[Call] = []

    def __enter__(self):
        from fp4lab import _xla

        _xla.records()
        _xla.set_recording(True)
        return self

    def __exit__(self, *_):
        from fp4lab import _xla

        _xla.set_recording(False)
        for op, attributes, buffers in _xla.records():
            self.calls.append(
                Call(
                    op=op,
                    attributes=dict(attributes),
                    arrays={n: _array(*b) for n, b in buffers.items()},
                    dtypes={n: b[0] for n, b in buffers.items()},
                    shapes={n: b[1] for n, b in buffers.items()},
                )
            )
        return False
