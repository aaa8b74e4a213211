"""The comparison of a dialect's bytes with those of a package, one tensor at a time.

An adapter is a function of one package for one row: it takes a tensor and returns what the package
stores for it. What a package leaves undefined is no part of the comparison; an adapter states it by
`Answer.codes_undefined` or by an Exemption, and the report counts it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .. import _tables
from .._quantize import quantize


@dataclass(frozen=True)
class Answer:
    """What a package stores for a tensor of shape (rows, columns); absent parts are None.

    Attributes:
        codes: uint8 of x's shape, one element code each.
        scales: uint8, or float32 where a row's scales are numbers, (rows, blocks of a row): a block
            scale for each row, also in square blocks.
        values: float32 of x's shape: the decoded elements.
        number: float32, the tensor scale; one a row for dialects with a scale for each row.
        form: of `number`: "amax", "divisor" or "multiplier".
        codes_undefined: bool of x's shape, True where the package specifies no code.
    """

    codes: np.ndarray | None = None
    scales: np.ndarray | None = None
    values: np.ndarray | None = None
    number: np.ndarray | None = None
    form: str = "amax"
    codes_undefined: np.ndarray | None = None


@dataclass(frozen=True)
class Exemption:
    """Inputs for which a package differs from the row that it otherwise has.

    Attributes:
        what: the condition and the package's behaviour, in words.
        where: (x, dialect) to a bool array of x's shape: the elements under the condition.
    """

    what: str
    where: Callable[[np.ndarray, _tables.Dialect], np.ndarray]


@dataclass(frozen=True)
class Adapter:
    """One package that implements one row.

    Attributes:
        dialect: the row.
        distribution: the name on PyPI.
        module: what is imported to see whether the package works; or a function that imports it.
        first, last: the releases of the range in which the package has the row's formula; None:
            the range has no first one.
        answer: (x, whether the package is given bfloat16) to an Answer. None: x has no answer,
            because the package refuses it.
        types: the input types for which the package has the row's formula.
        ended: whether releases after `last` have another formula.
        ragged: whether rows need not be whole blocks.
        exemptions: where the package differs.
    """

    dialect: str
    distribution: str
    module: str | Callable[[], Any]
    first: str | None
    last: str
    answer: Callable[[np.ndarray, bool], Answer | None]
    types: tuple[str, ...] = ("float32", "bfloat16")
    ended: bool = False
    ragged: bool = False
    exemptions: tuple[Exemption, ...] = ()


@dataclass
class Tally:
    """Sums over tensors.

    Attributes:
        cases, equal_cases: tensors; those without a difference.
        refused: tensors that the package does not take.
        compared, different: bytes or values.
        exempt, exempt_different: by exemption, bytes or values under its condition, and how many of
            them differ.
        undefined: bytes or values that the package does not specify.
        first: the first difference.
    """

    unit: str = ""
    cases: int = 0
    equal_cases: int = 0
    refused: int = 0
    compared: int = 0
    different: int = 0
    undefined: int = 0
    exempt: dict[str, int] = field(default_factory=dict)
    exempt_different: dict[str, int] = field(default_factory=dict)
    first: str = ""


def values_differ(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """True where two float arrays differ; NaN equals NaN, 0 equals -0."""
    return ~((a == b) | (np.isnan(a) & np.isnan(b)))


def hexadecimal(x: Any) -> str:
    return f"0x{int(np.asarray(x, np.float32).view(np.uint32)):08X}"


def first_difference(part: str, x: np.ndarray, ours: np.ndarray, theirs: np.ndarray,
                     where: np.ndarray) -> str:  # fmt: skip
    """One line: the first place at which `where` is True, with both bytes or values."""
    i = tuple(int(n) for n in np.argwhere(where)[0])
    here, there = ours[i], theirs[i]
    if ours.dtype == np.uint8:
        show = (f"0x{here:02X}", f"0x{there:02X}")
    else:
        show = (f"{here!r} ({hexadecimal(here)})", f"{there!r} ({hexadecimal(there)})")
    given = f" of {float(x[i])!r} ({hexadecimal(x[i])})" if ours.shape == x.shape else ""
    place = ", ".join(map(str, i))
    return f"first: {part} [{place}]{given} is {show[0]} here, {show[1]} there"


def blocks_of(mask: np.ndarray, columns: int) -> np.ndarray:
    """(rows, blocks) of whether any element of a block is marked in `mask`, (rows, columns)."""
    rows, cols = mask.shape
    padded = np.zeros((rows, -(-cols // columns) * columns), bool)
    padded[:, :cols] = mask
    return padded.reshape(rows, -1, columns).any(axis=2)


def element_codes(q: Any, bits: int) -> np.ndarray:
    """(rows, columns) of uint8, one code an element."""
    if bits != 4:
        return q.data
    pairs = np.stack([q.data & 15, q.data >> 4], axis=2).reshape(q.data.shape[0], -1)
    return pairs[:, : q.shape[1]]


def _parts(answer: Answer, q: Any, d: _tables.Dialect) -> list[tuple[str, Any, Any]]:
    """(part, ours, theirs) for what the package stores."""
    parts: list[tuple[str, Any, Any]] = []
    if answer.codes is not None:
        parts.append(("code", element_codes(q, d.element_bits), answer.codes))
    if answer.scales is not None:
        scales = (_nan_as_one(s, d) for s in (q.scale_inv, answer.scales))
        parts.append(("scale", *scales))
    if answer.values is not None:
        parts.append(("value", q.dequantize(), answer.values))
    if answer.number is not None:
        ours = np.atleast_1d(np.asarray(q.tensor_scale(answer.form), np.float32))
        parts.append(("tensor scale", ours, np.atleast_1d(np.float32(answer.number))))
    return parts


def _nan_as_one(scales: np.ndarray, d: _tables.Dialect) -> np.ndarray:
    """Scale bytes with one NaN: its sign is that of the processor's NaN in torch. Numbers as they are."""
    if scales.dtype != np.uint8:
        return scales
    codes = next(f.nan_codes for f in _tables.formats() if f.name == d.scale)
    return np.where(np.isin(scales, np.array(codes, np.uint8)), np.uint8(codes[0]), scales)


def _mask(part: str, mask: np.ndarray, d: _tables.Dialect) -> np.ndarray:
    """The mask of elements as one of the part's places."""
    if part in ("code", "value"):
        return mask
    if part == "scale":
        return blocks_of(mask, d.block[1])
    return mask.all(axis=1) if d.row_scaled else np.array([mask.all()])


def add(tally: Tally, adapter: Adapter, x: np.ndarray, bf16: bool = False) -> None:
    """Compares the row with the package on one tensor, and adds the counts to `tally`."""
    d = _tables.dialect(adapter.dialect)
    with np.errstate(all="ignore"):
        answer = adapter.answer(x, bf16)
    if answer is None:
        tally.refused += 1
        return
    q = quantize(x, d.name, expanded_scales=d.block[0] > 1)
    undefined = np.zeros(x.shape, bool) if answer.codes_undefined is None else answer.codes_undefined
    exempt = [(e.what, e.where(x, d)) for e in adapter.exemptions]
    tally.cases += 1
    before = tally.different
    for part, ours, theirs in _parts(answer, q, d):
        tally.unit = "values" if part == "value" else "bytes"
        if ours.shape != theirs.shape:
            raise ValueError(f"{d.name}: {part}: shape {ours.shape} here, {theirs.shape} there")
        differ = ours != theirs if ours.dtype == np.uint8 else values_differ(ours, theirs)
        left = undefined if part in ("code", "value") else np.zeros(ours.shape, bool)
        tally.undefined += int(left.sum())
        for what, mask in exempt:
            these = _mask(part, mask, d) & ~left
            tally.exempt[what] = tally.exempt.get(what, 0) + int(these.sum())
            changed = tally.exempt_different.get(what, 0) + int((differ & these).sum())
            tally.exempt_different[what] = changed
            left = left | these
        differ = differ & ~left
        tally.compared += int((~left).sum())
        tally.different += int(differ.sum())
        if differ.any() and not tally.first:
            tally.first = first_difference(part, x, ours, theirs, differ)
    tally.equal_cases += tally.different == before
