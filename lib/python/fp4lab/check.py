"""Compares formats and dialects with the installed packages that they cite.

`python -m fp4lab.check` prints the comparison; its exit code is 0 if every comparison agrees, 1 if
one differs.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import _ieee, _tables
from ._judge import cases
from ._quantize import decode, encode, quantize


@dataclass(frozen=True)
class Comparison:
    """One row compared with one package.

    Attributes:
        subject: "mxfp4.floor", or "cast float8_e4m3fn".
        package, version: the package and its installed version; version None: it is absent.
        compared, different: numbers of values or of bytes.
        note: the first difference, the inputs that were left out, or the reason why nothing was
            compared.
        unit: "values" or "bytes".
    """

    subject: str
    package: str
    version: str | None
    compared: int = 0
    different: int = 0
    note: str = ""
    unit: str = "values"

    @property
    def skipped(self) -> bool:
        return self.compared == 0

    @property
    def agrees(self) -> bool:
        return self.compared > 0 and self.different == 0


@dataclass(frozen=True)
class CheckReport:
    """All comparisons; true if none differs and one at least was made."""

    comparisons: tuple[Comparison, ...]

    def __bool__(self) -> bool:
        return any(c.agrees for c in self.comparisons) and not any(
            c.different for c in self.comparisons
        )

    def __str__(self) -> str:
        lines = []
        for c in self.comparisons:
            name = c.package if c.version is None else f"{c.package} {c.version}"
            if c.skipped:
                lines.append(f"not compared  {c.subject}: {name}: {c.note}")
            elif c.agrees:
                note = f"; {c.note}" if c.note else ""
                lines.append(f"agrees        {c.subject}: {name}: {c.compared} {c.unit}{note}")
            else:
                lines.append(f"DIFFERENT     {c.subject}: {name}: {c.different} of {c.compared} "
                             f"{c.unit}; {c.note}")  # fmt: skip
        agree = sum(c.agrees for c in self.comparisons)
        differ = sum(c.different > 0 for c in self.comparisons)
        skipped = sum(c.skipped for c in self.comparisons)
        lines.append(f"{agree} comparisons agree, {differ} differ, {skipped} not made")
        return "\n".join(lines)


def _all_bf16() -> np.ndarray:
    return (np.arange(65536, dtype=np.uint32) << 16).view(np.float32)


def _inputs(dialect: str) -> Iterator[np.ndarray]:
    """Rows of whole blocks: finite directed cases and random numbers."""
    block = max(_tables.dialect(dialect).block[1], 1)
    for case in cases(dialect):
        cols = case.x.shape[1] // block * block
        if cols and case.x.size <= 8192 and np.isfinite(case.x).all():
            yield np.ascontiguousarray(case.x[:, :cols])
    rng = np.random.default_rng(1)
    yield rng.standard_normal((64, 4 * block), np.float32)


def _values_differ(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return ~((a == b) | (np.isnan(a) & np.isnan(b)))


def _first(x: np.ndarray, ours: np.ndarray, theirs: np.ndarray, where: np.ndarray) -> str:
    i = tuple(int(n) for n in np.argwhere(where)[0])
    return f"first: {x[i]!r} gives {ours[i]!r} here, {theirs[i]!r} there"


# ---- Casts: a format's codes for all BF16 numbers, as values.


def _cast_of_ml_dtypes(module: Any, name: str, x: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return x.astype(getattr(module, name)).astype(np.float32)


def _cast_of_torch(module: Any, name: str, x: np.ndarray) -> np.ndarray:
    dtype = getattr(module, name)
    return module.from_numpy(x.copy()).to(dtype).to(module.float32).numpy()


def _cast_of_gfloat(module: Any, name: str, x: np.ndarray) -> np.ndarray:
    formats = importlib.import_module("gfloat.formats")
    info = getattr(formats, "format_info_ocp_" + {
        "float4_e2m1fn": "e2m1", "float6_e2m3fn": "e2m3", "float6_e3m2fn": "e3m2",
        "float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2",
    }[name])  # fmt: skip
    with np.errstate(all="ignore"):
        saturates = name.startswith(("float4", "float6"))  # neither infinity nor NaN to overflow to
        return module.round_ndarray(info, x.astype(np.float64), sat=saturates).astype(np.float32)


_CASTS: tuple[tuple[str, Callable[..., np.ndarray], tuple[str, ...]], ...] = (
    ("ml_dtypes", _cast_of_ml_dtypes, ("float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn",
                                       "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu")),
    ("torch", _cast_of_torch, ("float8_e4m3fn", "float8_e5m2")),
    ("gfloat", _cast_of_gfloat, ("float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn",
                                 "float8_e4m3fn", "float8_e5m2")),
)  # fmt: skip


def _check_cast(package: str, version: str, module: Any, fn: Any, name: str) -> Comparison:
    x = _all_bf16()
    if name == "float8_e8m0fnu":
        x = x[x > 0]  # the format has no sign and no zero; packages treat these numbers as they like
    elif name.startswith(("float4", "float6")):
        x = x[np.isfinite(x)]  # the format has neither infinities nor NaN
    theirs = fn(module, name, x)
    # Releases differ in the value of numbers beyond the largest: one of them tells which rule holds.
    saturates = np.isfinite(fn(module, name, np.array([3.4e38], np.float32))[0])
    subject = f"cast {name}" + (", saturating" if saturates and package == "torch" else "")
    ours = decode(encode(x, name, overflow="saturate" if saturates else "special"), name)
    where = _values_differ(ours, theirs)
    note = _first(x, ours, theirs, where) if where.any() else ""
    return Comparison(subject, package, version, x.size, int(where.sum()), note)


# ---- Dialects, for rows of whole blocks: the package's decoded values; or its bytes, as uint8 (rows,
# codes and then scales); or None for numbers of which it makes NaN, whose code it does not state.


def _gfloat_mx(element: str) -> Callable[[Any, np.ndarray], np.ndarray]:
    def values(module: Any, x: np.ndarray) -> np.ndarray:
        formats = importlib.import_module("gfloat.formats")
        info = getattr(formats, f"format_info_mx{element}")
        blocks = x.astype(np.float64).reshape(-1, info.k)
        out = [module.quantize_block(info, b, module.compute_scale_amax) for b in blocks]
        return np.array(out).reshape(x.shape).astype(np.float32)

    return values


def _torchao_mx(mode: str) -> Callable[[Any, np.ndarray], np.ndarray]:
    def values(module: Any, x: np.ndarray) -> np.ndarray:
        torch = importlib.import_module("torch")
        config = importlib.import_module("torchao.prototype.mx_formats.config")
        mx = importlib.import_module("torchao.prototype.mx_formats.mx_tensor")
        t = mx.MXTensor.to_mx(torch.from_numpy(x.copy()), torch.float4_e2m1fn_x2, 32,
                              getattr(config.ScaleCalculationMode, mode))  # fmt: skip
        return t.dequantize(torch.float32).numpy()

    return values


def _torchao_nvfp4(module: Any, x: np.ndarray) -> np.ndarray:
    torch = importlib.import_module("torch")
    nvfp4 = importlib.import_module("torchao.prototype.mx_formats.nvfp4_tensor")
    scales, codes = nvfp4.nvfp4_quantize(torch.from_numpy(x.copy()))
    packed = codes.view(torch.uint8).numpy().reshape(x.shape[0], -1)
    elements = np.stack([packed & 15, packed >> 4], axis=2).reshape(x.shape)
    s = decode(scales.view(torch.uint8).numpy().reshape(x.shape[0], -1), "float8_e4m3fn")
    return decode(elements, "float4_e2m1fn") * s.repeat(16, axis=1)


def _torchao_nvfp4_bytes(module: Any, x: np.ndarray) -> np.ndarray | None:
    torch = importlib.import_module("torch")
    nvfp4 = importlib.import_module("torchao.prototype.mx_formats.nvfp4_tensor")
    t = torch.from_numpy(x.copy())
    scale = nvfp4.per_tensor_amax_to_scale(t.abs().amax())
    if not torch.isfinite(1 / scale):
        return None
    scales, codes = nvfp4.nvfp4_quantize(t, 16, scale)
    parts = (p.view(torch.uint8).numpy().reshape(x.shape[0], -1) for p in (codes, scales))
    return np.hstack(list(parts))


# dialect, package, the release range of the formula (first, last excluded), values or bytes of it.
_DIALECTS: tuple[tuple[str, str, str | None, str | None, Any], ...] = (
    ("mxfp4.floor", "gfloat", None, None, _gfloat_mx("fp4_e2m1")),
    ("mxfp4.torchao.floor.0.18", "torchao", "0.18", "0.19", _torchao_mx("FLOOR")),
    ("mxfp4.torchao.ceil.0.18", "torchao", "0.18", "0.19", _torchao_mx("CEIL")),
    ("mxfp4.torchao.even.0.18", "torchao", "0.18", "0.19", _torchao_mx("EVEN")),
    ("nvfp4.torchao.inference", "torchao", "0.17", "0.19", _torchao_nvfp4_bytes),
    ("nvfp4.torchao.inference.divide", "torchao", "0.14", "0.17", _torchao_nvfp4_bytes),
    ("nvfp4.torchao.single-level", "torchao", "0.18", "0.19", _torchao_nvfp4),
    ("nvfp4.torchao.single-level.0.17", "torchao", "0.14", "0.18", _torchao_nvfp4),
)


def _numbers(version: str) -> tuple[int, ...]:
    digits = []
    for part in version.split("+")[0].split("."):
        if not part.isdigit():
            break
        digits.append(int(part))
    return tuple(digits)


def _first_byte(ours: np.ndarray, theirs: np.ndarray, codes: int) -> str:
    row, column = (int(n) for n in np.argwhere(ours != theirs)[0])
    what, place = ("code byte", column) if column < codes else ("scale", column - codes)
    here, there = ours[row, column], theirs[row, column]
    return f"first: {what} {place} of row {row} is {here} here, {there} there"


def _check_dialect(name: str, package: str, version: str, module: Any, fn: Any) -> Comparison:
    compared = different = left_out = 0
    note, unit = "", "values"
    for x in _inputs(name):
        with np.errstate(all="ignore"):
            theirs = fn(module, x)
        if theirs is None:
            left_out += 1
            continue
        q = quantize(x, name)
        if theirs.dtype == np.uint8:
            unit = "bytes"
            ours = np.hstack([q.data, q.scale_inv])
            where = ours != theirs
        else:
            ours = q.dequantize()
            where = _values_differ(ours, theirs)
        compared += ours.size
        different += int(where.sum())
        if where.any() and not note:
            note = (_first(x, ours, theirs, where) if unit == "values"
                    else _first_byte(ours, theirs, q.data.shape[1]))  # fmt: skip
    if left_out and not note:
        note = f"{left_out} inputs left out, where the package divides by 0 or overflows to NaN"
    return Comparison(name, package, version, compared, different, note, unit)


def _installed(package: str) -> tuple[str | None, Any, str]:
    """(version, module, the reason why it is not there)."""
    try:
        version = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None, None, "is not installed"
    try:
        return version, importlib.import_module(package), ""
    except Exception as error:
        return version, None, f"cannot be imported: {str(error).splitlines()[0] if str(error) else error!r}"


def check_dialects(names: Any = (), *, packages: Any = ()) -> CheckReport:
    """Compares casts and dialects with the installed packages that they cite.

    Args:
        names: the dialects to compare; empty: all, and the casts of formats.
        packages: the packages to compare with; empty: all that are installed.

    Returns:
        A CheckReport: every agreement with the number of values, every difference with its first
        number, and what was not compared, with the reason.
    """
    wanted = {_tables.dialect(n).name for n in names}
    found: dict[str, tuple[str | None, Any, str]] = {}
    rows: list[Comparison] = []

    def package(name: str) -> tuple[str | None, Any, str]:
        if name not in found:
            found[name] = _installed(name)
        return found[name]

    for name, fn, formats in _CASTS:
        if wanted or (packages and name not in packages):
            continue
        version, module, why = package(name)
        for format_ in formats:
            subject = f"cast {format_}"
            if module is None or version is None:
                rows.append(Comparison(subject, name, version, note=why))
            elif name != "gfloat" and not hasattr(module, format_):
                rows.append(Comparison(subject, name, version, note="lacks the type"))
            else:
                rows.append(_check_cast(name, version, module, fn, format_))
    for dialect, name, first, last, fn in _DIALECTS:
        if (wanted and dialect not in wanted) or (packages and name not in packages):
            continue
        version, module, why = package(name)
        if module is None or version is None:
            rows.append(Comparison(dialect, name, version, note=why))
            continue
        here = _numbers(version)
        if (first and here < _numbers(first)) or (last and here >= _numbers(last)):
            note = f"the formula is that of {first} up to {last}"
            rows.append(Comparison(dialect, name, version, note=note))
            continue
        try:
            rows.append(_check_dialect(dialect, name, version, module, fn))
        except (AttributeError, ImportError, TypeError) as error:
            note = f"its functions have changed: {str(error).splitlines()[0]}"
            rows.append(Comparison(dialect, name, version, note=note))
    return CheckReport(tuple(rows))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m fp4lab.check", description=__doc__)
    parser.add_argument("dialect", nargs="*", help="only these dialects")
    parser.add_argument("--package", action="append", default=[], help="only this package")
    options = parser.parse_args(arguments)
    try:
        report = check_dialects(options.dialect, packages=options.package)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(report)
    return 1 if any(c.different for c in report.comparisons) else 0


_ieee.guard(globals())

if __name__ == "__main__":
    sys.exit(main())
