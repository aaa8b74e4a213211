"""The comparison of all rows and casts with the packages that are installed."""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np

from .. import _ieee, _tables
from .._judge import cases
from . import adapters, compare, sources
from .casts import CASTS, check_cast
from .report import CheckReport, Comparison


def numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version: (0, 18) of "0.18.0" too, since trailing zeros say nothing."""
    digits = []
    for part in version.split("+")[0].split("."):
        if not part.isdigit():
            break
        digits.append(int(part))
    while digits and digits[-1] == 0:
        digits.pop()
    return tuple(digits)


def _is_after(version: str, last: str) -> bool:
    """Whether a release is beyond the series of `last`: 0.18.1 is of the series 0.18."""
    here, end = numbers(version), numbers(last)
    return here[: len(end)] > end


def range_note(adapter: compare.Adapter, version: str) -> tuple[bool, str]:
    """(whether to compare, what to say) of an installed release and a row's range."""
    span = f"{adapter.first or 'the first release'} to {adapter.last}"
    if adapter.first and numbers(version) < numbers(adapter.first):
        return False, f"older than the row's range ({span})"
    if not _is_after(version, adapter.last):
        return True, ""
    if adapter.ended:
        return False, f"the row's formula ended with {adapter.last}"
    return True, f"newer than the row's range ({span}); compared all the same"


@lru_cache(maxsize=None)
def installed(distribution: str, module: str | Callable[[], Any]) -> tuple[str | None, Any, str]:
    """(version, module, the reason why it is not there)."""
    try:
        version = importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None, None, "is not installed"
    try:
        loaded = module() if callable(module) else importlib.import_module(module)
        return version, loaded, ""
    except Exception as error:
        why = str(error).splitlines()[0] if str(error) else repr(error)
        return version, None, f"cannot be imported: {why}"


def inputs(dialect: str) -> Iterator[np.ndarray]:
    """Matrices of whole blocks: the directed cases with whole columns, and random numbers."""
    d = _tables.dialect(dialect)
    height, width = max(d.block[0], 1), max(d.block[1], 1)
    for case in cases(dialect):
        rows, cols = (case.x.shape[0] // height * height, case.x.shape[1] // width * width)
        if rows and cols and case.x.size <= 8192:
            yield np.ascontiguousarray(case.x[:rows, :cols])
    yield np.random.default_rng(1).standard_normal((64, 4 * width), np.float32)


def as_bf16(x: np.ndarray) -> np.ndarray:
    """x with its fractions cut to those of bfloat16; NaN stays NaN."""
    bits = np.ascontiguousarray(x).view(np.uint32) & np.uint32(0xFFFF0000)
    return np.where(np.isnan(x), np.float32(np.nan), bits.view(np.float32))


def _left_out(tally: compare.Tally) -> list[str]:
    notes = [f"{n} {tally.unit} left out: {what}" for what, n in tally.exempt.items() if n]
    if tally.undefined:
        notes.append(f"{tally.undefined} codes left out, which the package does not specify")
    if tally.refused:
        notes.append(f"{tally.refused} tensors left out, which the package does not take")
    return notes


def _check_dialect(adapter: compare.Adapter, version: str, note: str) -> Comparison:
    tally = compare.Tally()
    for x in inputs(adapter.dialect):
        if "float32" in adapter.types:
            compare.add(tally, adapter, x)
        if "bfloat16" in adapter.types:
            compare.add(tally, adapter, as_bf16(x), bf16=True)
    notes = [n for n in (tally.first, note, *_left_out(tally)) if n]
    return Comparison(adapter.dialect, adapter.distribution, version, tally.compared,
                      tally.different, "; ".join(notes), tally.unit, tally.cases)  # fmt: skip


def _row(adapter: compare.Adapter) -> Comparison:
    version, module, why = installed(adapter.distribution, adapter.module)
    if module is None or version is None:
        return Comparison(adapter.dialect, adapter.distribution, version, note=why)
    compared, note = range_note(adapter, version)
    if not compared:
        return Comparison(adapter.dialect, adapter.distribution, version, note=note)
    try:
        return _check_dialect(adapter, version, note)
    except (AttributeError, ImportError, TypeError) as error:
        why = f"its functions have changed: {str(error).splitlines()[0]}"
        return Comparison(adapter.dialect, adapter.distribution, version, note=why)


def _casts(packages: Any) -> Iterator[Comparison]:
    for name, fn, formats in CASTS:
        if packages and name not in packages:
            continue
        version, module, why = installed(name, name)
        for format_ in formats:
            if module is None or version is None:
                yield Comparison(f"cast {format_}", name, version, note=why)
            else:
                yield check_cast(name, version, module, fn, format_)


def _same_package(name: str, packages: Any) -> bool:
    plain = {str(p).replace("_", "-").lower() for p in packages}
    return not plain or name.replace("_", "-").lower() in plain


def check_dialects(names: Any = (), *, packages: Any = ()) -> CheckReport:
    """Compares casts and dialects with the installed packages that they cite.

    Args:
        names: the dialects to compare; empty: all, and the casts of formats.
        packages: the packages to compare with, by their names on PyPI; empty: all.

    Returns:
        A CheckReport: every agreement with the number of bytes or values, every difference with its
        first place and both bytes there, and for every other row the reason why nothing was
        compared: the package is absent, its release is outside of the row's range, the formula runs
        on a GPU only, or it is in no package.
    """
    wanted = {_tables.dialect(n).name for n in names}
    rows = [] if wanted else list(_casts(packages))
    for adapter in adapters.ADAPTERS:
        if (not wanted or adapter.dialect in wanted) and _same_package(adapter.distribution, packages):
            rows.append(_row(adapter))
    compared = {a.dialect for a in adapters.ADAPTERS}
    for d in _tables.dialects():
        if d.name in compared or (wanted and d.name not in wanted):
            continue
        source = sources.source_of(d.name)
        if _same_package(source.distribution, packages):
            rows.append(Comparison(d.name, source.distribution, None, note=source.not_compared))
    return CheckReport(tuple(rows))


_ieee.guard(globals())
