"""Verdicts on the bytes of kernels, their explanations, and the directed cases."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from . import _arrays, _core, _ieee, _tables
from ._arguments import (
    TE_SIGN_MASK,
    flag,
    hadamard,
    integer,
    name_list,
    one_of,
    rounding_label,
    seed as _seed,
)
from ._qtensor import NIBBLES, TENSOR_SCALES, QTensor, check_parts, default_nibbles, scale_order
from ._quantize import check_amax, random_fields

KERNEL_TRANSFORMS = (16, 32)
"""Sizes of a kernel's random Hadamard transform that can be judged."""


@dataclass(frozen=True)
class Reproducer:
    """One block that shows a difference by itself.

    Attributes:
        row, col: of the block's first element in the matrix.
        x: the block's elements, float32.
        amax: the tensor scale's amax; empty without one.
        pytest, cpp: tests to paste, which need no library of ours.
    """

    row: int
    col: int
    x: np.ndarray
    amax: list[float]
    pytest: str
    cpp: str


@dataclass(frozen=True)
class Report:
    """The reasons why bytes differ; true if they are equal.

    Attributes:
        equal: whether all bytes are equal.
        verdict: "equal", "cause" (one cause gives all bytes), "not told apart", "consistent with"
            or "none".
        causes: names of the causes that give all bytes; "nvfp4.modelopt + codes-high-first" is one.
        text: the whole report.
        facts: the same as data.
        reproducer: the smallest block that shows the difference; None if bytes are equal.
    """

    equal: bool
    verdict: str
    causes: tuple[str, ...]
    text: str
    facts: dict[str, Any] = field(repr=False, compare=False)
    reproducer: Reproducer | None = field(repr=False, compare=False)

    def __bool__(self) -> bool:
        return self.equal

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Identification:
    """The dialects and layouts that write certain bytes; true if one does.

    Attributes:
        fits: whether some dialect and layout gives all bytes.
        matches: their names, likely ones first.
        text, facts: the whole answer in lines and as data.
    """

    fits: bool
    matches: tuple[str, ...]
    text: str
    facts: dict[str, Any] = field(repr=False, compare=False)

    def __bool__(self) -> bool:
        return self.fits

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class _Answer:
    """A kernel's bytes with everything that is needed to judge them."""

    x: np.ndarray
    columnwise: bool
    kernel: Any
    parts: Any
    amax: list[float]
    random: np.ndarray | None


@dataclass(frozen=True)
class Verdict:
    """The verdict on a kernel's bytes; true if they are an answer of the dialect.

    Attributes:
        accepted: whether the dialect may give these bytes.
        equal: whether all bytes are equal to the library's.
        codes_total, codes_different, scales_total, scales_different: counts.
        same_value: differences that decode to the same values (the sign of a zero, codes under a
            zero scale).
        tensor_scale_ok: whether the stored tensor scale is right; True if none was given.
        headline: one line; text: all lines; facts: the same as data.
    """

    accepted: bool
    equal: bool
    codes_total: int
    codes_different: int
    scales_total: int
    scales_different: int
    same_value: int
    tensor_scale_ok: bool
    headline: str
    text: str
    facts: dict[str, Any] = field(repr=False, compare=False)
    _answer: _Answer = field(repr=False, compare=False)

    def __bool__(self) -> bool:
        return self.accepted

    def __str__(self) -> str:
        return self.text

    def explain(self, *, pairs: bool = True) -> Report:
        """Searches for the cause of the difference."""
        return explanation_of(self._answer, pairs=flag(pairs, "pairs"))


def _scale_order_of(count: int, kernel_dialect: str, rows: int, cols: int, nibbles: str,
                    expanded: bool) -> str:  # fmt: skip
    """The layout that takes so many scales: linear before swizzled where both do."""
    for order in ("linear", "128x4", "8x4"):
        sizes = _core.sizes(kernel_dialect, rows, cols, (nibbles, order, False, expanded, "amax"))
        if sizes[2] * sizes[3] == count:
            return order
    return "linear"


def answer_of(
    x: Any,
    codes: Any,
    scales: Any,
    dialect: Any,
    *,
    tensor_scale: Any = None,
    tensor_scale_is: str = "amax",
    amax: Any = None,
    rht: bool | int = False,
    sign_mask: int = TE_SIGN_MASK,
    rounding: str = "nearest",
    random_bits: int = 16,
    random: Any = None,
    columnwise: bool = False,
    scale_layout: str = "auto",
    nibbles: str = "auto",
    expanded_scales: bool = False,
) -> _Answer:
    """What verdict_on judges: verify's arguments, checked, with its defaults."""
    array = _arrays.matrix(x)
    columnwise, expanded_scales = flag(columnwise, "columnwise"), flag(expanded_scales, "expanded_scales")
    one_of(nibbles, "nibbles", ("auto", *NIBBLES))
    one_of(tensor_scale_is, "tensor_scale_is", TENSOR_SCALES)
    if isinstance(codes, QTensor):
        q = codes
        if scales is not None:
            raise _core.Error("scales: a QTensor holds its scales; leave them out")
        _refuse_other_layout(q, scale_layout, nibbles, columnwise, expanded_scales)
        dialect = q.dialect if dialect is None else dialect
        columnwise, nibbles, expanded_scales = q.columnwise, q.nibbles, q.expanded_scales
        scale_layout = q.scale_layout
        if tensor_scale is None:
            if tensor_scale_is != "amax":
                raise _core.Error(f'tensor_scale_is: "{tensor_scale_is}"; a QTensor holds the amax: leave it out')
            tensor_scale = q.amax
        codes, scales = q.data, q.scale_inv
        if q.shape != array.shape:
            raise _core.Error(f"codes: a QTensor of {q.shape[0]}x{q.shape[1]}; x is "
                              f"{array.shape[0]}x{array.shape[1]}")  # fmt: skip
    d = _tables.dialect("nvfp4.te" if dialect is None else dialect)
    rows, cols = array.shape[::-1] if columnwise else array.shape
    code_bytes, one_a_byte, code_shape = _arrays.codes(codes, "codes")
    empty: tuple[Any, ...] = (np.zeros(0, np.uint8), (0,), "byte")
    scale_bytes, scale_shape, _ = empty if scales is None else _arrays.scales(scales, "scales")
    if nibbles == "auto":
        nibbles = default_nibbles(d)
        if one_a_byte or (d.element_bits == 4 and code_bytes.size == rows * cols != rows * ((cols + 1) // 2)):
            nibbles = "bytes"
    if scale_layout == "auto":
        order = _scale_order_of(int(np.prod(scale_shape)), d.name, rows, cols, nibbles, expanded_scales)
    else:
        order = scale_order(scale_layout)
    numbers = _arrays.amaxes(tensor_scale, "tensor_scale")
    if not numbers:
        if tensor_scale_is not in ("amax", "none"):
            raise _core.Error(f'tensor_scale_is: "{tensor_scale_is}", and there is no tensor_scale; give it, or leave '
                              "out tensor_scale_is")  # fmt: skip
        tensor_scale_is = "none"
    elif tensor_scale_is == "none":
        raise _core.Error('tensor_scale: "none" says that there is no number; leave one of them out')
    layout = (nibbles, order, False, expanded_scales, tensor_scale_is)
    if array.size:
        try:
            check_parts(d.name, rows, cols, layout, code_shape, scale_shape)
        except _core.Error as error:
            raise _core.Error(str(error) + _IDENTIFY) from None
    size, signs = hadamard(rht, sign_mask, KERNEL_TRANSFORMS)
    kernel = (d.name, rounding_label(rounding, random_bits), layout, size, signs)
    given, fields = _arrays.magnitudes(amax), random_fields(random, (rows, cols))
    check_amax(given, array, d, size, signs, columnwise)
    return _Answer(array, columnwise, kernel, (code_bytes, scale_bytes, numbers), given, fields)


def _refuse_other_layout(q: QTensor, scale_layout: str, nibbles: str, columnwise: bool,
                         expanded_scales: bool) -> None:  # fmt: skip
    """Raises fp4lab.Error for layout arguments that a QTensor, which states its own, contradicts."""
    own = (q.scale_layout, q.nibbles, q.columnwise, q.expanded_scales)
    order = scale_layout if scale_layout == "auto" else scale_order(scale_layout)
    asked = (order, nibbles, columnwise, expanded_scales)
    names, absent = ("scale_layout", "nibbles", "columnwise", "expanded_scales"), ("auto", "auto", False, False)
    for name, value, has, none in zip(names, asked, own, absent):
        if value != none and value != (scale_order(has) if name == "scale_layout" else has):
            raise _core.Error(f"{name}: {value!r}; the QTensor states {has!r}: leave it out")


_IDENTIFY = "; fp4lab.identify(x, codes, scales) finds the dialect and layout that write such bytes"


def _is_of_size(message: str) -> bool:
    """Whether a message is of sizes that fit no layout, and does not point at identify yet."""
    return message.startswith(("codes", "scales")) and "bytes" in message and "identify" not in message


def _verdict(a: _Answer, first: int, check_padding: bool) -> Verdict:
    try:
        accepted, headline, text, facts_text = _core.verify(
            a.kernel, a.x, a.columnwise, a.parts, a.amax, a.random, check_padding, first
        )
    except _core.Error as error:
        raise _core.Error(str(error) + _IDENTIFY) if _is_of_size(str(error)) else error from None
    facts = json.loads(facts_text)
    codes, scales, number = facts["codes"], facts["scales"], facts["tensor_scale"]
    return Verdict(
        accepted=accepted,
        equal=facts["equal"],
        codes_total=codes["total"],
        codes_different=codes["different"],
        scales_total=scales["total"],
        scales_different=scales["different"],
        same_value=codes["same_value"] + scales["same_value"],
        tensor_scale_ok=number is None or number["different"] == 0,
        headline=headline,
        text=text,
        facts=facts,
        _answer=a,
    )


def explanation_of(a: _Answer, *, pairs: bool, deciding_case: bool = True) -> Report:
    """explain's report on an answer. deciding_case: whether to look for the directed case that tells apart
    causes which the answer does not; it takes most of the time.
    """
    equal, text, facts_text, block = _core.explain(
        a.kernel, a.x, a.columnwise, a.parts, a.amax, a.random, pairs, deciding_case
    )
    facts = json.loads(facts_text)
    causes = tuple(c["name"] for c in facts.get("causes", ()))
    verdict = "equal" if equal else facts["verdict"]
    return Report(equal, verdict, causes, text, facts, None if block is None else Reproducer(*block))


def verdict_on(answer: _Answer) -> Verdict:
    """verify's verdict on an answer. Raises fp4lab.Error for sizes that fit no layout."""
    return _verdict(answer, 5, False)


def verify(
    x: Any,
    codes: Any,
    scales: Any = None,
    dialect: _tables.DialectLike | None = None,
    *,
    tensor_scale: Any = None,
    tensor_scale_is: str = "amax",
    amax: Any = None,
    rht: bool | int = False,
    sign_mask: int = TE_SIGN_MASK,
    rounding: str = "nearest",
    random_bits: int = 16,
    random: Any = None,
    columnwise: bool = False,
    scale_layout: str = "auto",
    nibbles: str = "auto",
    expanded_scales: bool = False,
    check_padding: bool = False,
    first: int = 5,
) -> Verdict:
    """Compares a kernel's bytes with the answer of a dialect.

    Args:
        x: the kernel's input, as quantize takes it.
        codes: uint8 bytes in pairs or one code a byte, FP4 or FP8 arrays of ml_dtypes, torch
            (float4_e2m1fn_x2) or JAX; or a QTensor, which holds its scales and states its layout.
        scales: the block scales: bytes, FP8 arrays, or numbers of float32 or bfloat16.
        dialect: a name of dialects(), or a formula of your own as fp4lab.dialect takes it;
            "nvfp4.te" if absent (a QTensor's own).
        tensor_scale: the stored tensor scale; None: it is not judged.
        tensor_scale_is: "amax", "multiplier", "divisor" or "none".
        amax: the amax that the kernel was given, where it is not that of x; as quantize takes it.
        rht, sign_mask: the kernel transforms its input first (16 or 32).
        rounding, random_bits, random: as quantize; `random` holds the fields that the kernel took.
        columnwise: the kernel quantizes the transposed x.
        scale_layout: "auto" finds it by the number of bytes, "linear" first; else "linear",
            "padded", "128x4" (also "swizzled_32_4_4") or "8x4".
        nibbles: "auto": pairs low-first, or one code a byte by the number of bytes; else
            "low-first", "high-first", "split-halves", "bytes" or "dense6".
        check_padding: whether bytes of padding must be 0.
        first: the differences that the text lists.

    The dimensions of codes and scales must multiply to (rows, bytes of a row) and to the rows and columns
    of the scales in their layout, in that order, or be one dimension.

    Raises:
        TypeError, fp4lab.Error: as quantize; also for sizes and shapes that fit no layout.

    >>> import numpy as np, fp4lab
    >>> x = np.arange(32, dtype=np.float32).reshape(2, 16)
    >>> q = fp4lab.quantize(x)
    >>> bool(fp4lab.verify(x, q.data, q.scale_inv, "nvfp4.te"))
    True
    >>> swapped = q.data << 4 | q.data >> 4
    >>> verdict = fp4lab.verify(x, swapped, q.scale_inv, "nvfp4.te")
    >>> bool(verdict), verdict.codes_total, verdict.scales_different
    (False, 32, 0)
    >>> verdict.explain().causes
    ('codes-high-first',)
    """
    answer = answer_of(
        x, codes, scales, dialect, tensor_scale=tensor_scale, amax=amax, rht=rht,
        sign_mask=sign_mask, rounding=rounding, random_bits=random_bits, random=random,
        columnwise=columnwise, scale_layout=scale_layout, nibbles=nibbles,
        expanded_scales=expanded_scales, tensor_scale_is=tensor_scale_is,
    )  # fmt: skip
    return _verdict(answer, integer(first, "first", 0, 2**31 - 1), flag(check_padding, "check_padding"))


def explain(x: Any, codes: Any, scales: Any = None, dialect: Any = None, *, pairs: bool = True,
            **options: Any) -> Report:  # fmt: skip
    """Searches for the reason why a kernel's bytes differ from the dialect's: another formula,
    rounding, layout, sign, amax, an unwritten part, or a pair of these.

    Args:
        x, codes, scales, dialect, **options: as verify takes them.
        pairs: whether pairs of causes are tried, too (slower).
    """
    return verify(x, codes, scales, dialect, **options).explain(pairs=pairs)


def identify(
    x: Any,
    codes: Any,
    scales: Any = None,
    *,
    tensor_scale: Any = None,
    amax: Any = None,
    random: Any = None,
    dialects: Any = (),
    also: Any = (),
    decide: bool = False,
) -> Identification:
    """Names the dialects and layouts that write exactly these bytes for this input.

    Args:
        x, codes, scales, tensor_scale, amax, random: as verify takes them; the layout is found, and
            codes and scales may have any shape.
        dialects: the names to try, or one name; empty: all.
        also: formulas of your own to try beside these, as fp4lab.dialect takes them, or one.
        decide: whether to search for inputs that tell several matches apart.

    >>> import numpy as np, fp4lab
    >>> x = np.random.default_rng(0).standard_normal((64, 64), np.float32)
    >>> q = fp4lab.quantize(x, "mxfp4.rceil")
    >>> fp4lab.identify(x, q.data, q.scale_inv).matches[0]
    'mxfp4.rceil, codes low-first, scales linear'
    """
    array = _arrays.matrix(x)
    if isinstance(codes, QTensor):
        if scales is not None:
            raise _core.Error("scales: a QTensor holds its scales; leave them out")
        tensor_scale = codes.amax if tensor_scale is None else tensor_scale
        codes, scales = codes.data, codes.scale_inv
    code_bytes = _arrays.codes(codes, "codes")[0]
    scale_bytes, kind = np.zeros(0, np.uint8), "byte"
    if scales is not None:
        scale_bytes, _, kind = _arrays.scales(scales, "scales")
    numbers = _arrays.amaxes(tensor_scale, "tensor_scale")
    given = _arrays.magnitudes(amax)
    if len(given) == 1 and array.size:  # some dialects have the amax NaN where x holds NaN
        _arrays.check_amax(given, [np.nan] if _has_nan(array) else _own_amax(array))
    fits, text, facts_text = _core.identify(
        array, (code_bytes, scale_bytes, numbers), given, random_fields(random),
        _names_of(dialects, "dialects"), _names_of(also, "also"), kind, flag(decide, "decide"),
    )  # fmt: skip
    facts = json.loads(facts_text)
    names = [m["name"] if isinstance(m, dict) else str(m)
             for key in ("exact", "allowed") for m in facts.get(key, ())]  # fmt: skip
    return Identification(fits, tuple(names), text, facts)


def _names_of(value: Any, name: str) -> list[str]:
    """The names of dialects; a dict is one that is spelled out."""
    if isinstance(value, Mapping):
        value = (value,)
    if isinstance(value, Iterable) and not isinstance(value, str):
        value = [_tables.dialect(v) if isinstance(v, Mapping) else v for v in value]
    return name_list(value, name)


def _own_amax(array: np.ndarray) -> list[float]:
    return [float(_core.amax(array, "nvfp4.te", 0, TE_SIGN_MASK, False)[0])]


def _has_nan(array: np.ndarray) -> bool:
    """Whether float32 numbers, or the bits of bfloat16, hold NaN."""
    if array.dtype == np.uint16:
        return bool(((array & 0x7FFF) > 0x7F80).any())
    return bool(np.isnan(array).any())


@dataclass(frozen=True)
class Case:
    """A directed input.

    Attributes:
        family, name: "element-ties", "element-ties/bf16".
        cause: the cause of error that the family tests.
        x: float32, (rows, columns).
        is_bf16: whether every element is a bfloat16 value.
        random: for stochastic dialects, a uint16 field of random bits for each element.
    """

    family: str
    name: str
    x: np.ndarray = field(repr=False)
    is_bf16: bool
    random: np.ndarray | None = field(repr=False)

    @cached_property
    def cause(self) -> str:
        return dict(_core.families())[self.family]

    @cached_property
    def bf16(self) -> np.ndarray:
        """x as ml_dtypes.bfloat16, or uint16 bits without that package. ValueError if not exact."""
        if not self.is_bf16:
            raise ValueError(f"case {self.name} holds numbers that are not bfloat16")
        return _arrays.bf16_view(_arrays.bf16_bits(self.x))


LEVELS = {"quick": "quick", "standard": "quick", "thorough": "thorough"}


def cases(
    dialect: _tables.DialectLike = "nvfp4.te",
    level: str = "quick",
    *,
    seed: int = 1,
    families: Any = (),
    bf16_only: bool = False,
    rounding: str = "nearest",
    random_bits: int = 16,
) -> Iterator[Case]:
    """The directed cases of a dialect: inputs on its rounding boundaries, scales that underflow,
    zeros of both signs, NaN and infinities, shapes with tails, and elements that a wrong layout
    moves.

    Args:
        level: "quick" ("standard") or "thorough".
        seed: of the values that are drawn, 0..2^64 - 1.
        families: names of families, or one name; empty: all.
        bf16_only: leaves out the cases that are not bfloat16.
        rounding, random_bits: as quantize takes them.

    >>> import fp4lab
    >>> next(fp4lab.cases("nvfp4.te")).x.dtype
    dtype('float32')
    """
    one_of(level, "level", LEVELS)
    d = _tables.dialect(dialect)
    rows = _core.cases(d.name, rounding_label(rounding, random_bits), LEVELS[level], _seed(seed),
                       name_list(families, "families"), flag(bf16_only, "bf16_only"))  # fmt: skip
    return (Case(*row) for row in rows)


_ieee.guard(globals())
