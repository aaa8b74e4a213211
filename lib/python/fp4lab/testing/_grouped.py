"""Grouped products (experts) on which wrong kernels part from the right one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from .. import _arrays, _core, _ieee, _tables
from .._arguments import callable_, flag, one_of, seed as _seed
from .._products import _accumulation, _operand
from .._qtensor import QTensor
from .._quantize import quantize
from ._watch import Mutated, Watched

# Rows of tokens of each group: empty groups at both ends and in between, one row, more than a tile.
_GROUPS = {
    "empty groups": (0, 20, 7, 0, 130, 3, 1),
    "an empty last group": (5, 0, 33, 16, 0),
    "one group": (40,),
    "whole tiles": (128, 16, 0, 64),
}
_PARTS = ("data", "scale_inv", "amax")


def _cases(dialect: _tables.DialectLike, padded_to: int, seed: int) -> Iterator[tuple[Any, ...]]:
    rng = np.random.default_rng(seed)
    for name, sizes in _GROUPS.items():
        padded = [-(-n // padded_to) * padded_to for n in sizes]
        ends = np.cumsum(padded)
        a = quantize(rng.standard_normal((int(ends[-1]), 64)).astype(np.float32), dialect)
        # weights of other magnitudes: each group has an alpha of its own
        b = [quantize((rng.standard_normal((16, 64)) * (1 + g)).astype(np.float32), dialect)
             for g in range(len(sizes))]  # fmt: skip
        yield name, a, b, ends.astype(np.int64), np.array(sizes, np.int64), _alphas(a, b)


def _alphas(a: QTensor, b: list[QTensor]) -> np.ndarray:
    alphas = np.ones(len(b), np.float32)
    if a.amax is None:
        return alphas
    c = np.float32(_tables.dialect(a.dialect).constant)
    for g, q in enumerate(b):
        alphas[g] = np.float32(a.amax) * np.float32(q.amax) / (c * c)
    return alphas


def assert_grouped(
    fn: Callable[..., Any],
    accumulation: str = "block",
    *,
    dialect: _tables.DialectLike = "nvfp4.te",
    padded_to: int = 1,
    seed: int = 1,
    exact: bool = True,
    allow_declined: bool = False,
) -> int:
    """Feeds groups of rows to a grouped product (experts) and raises AssertionError unless every
    group is the accumulation's (or within its proven bound), and padding is zero. The message names
    the groups, the rectangle in each and the wrong kernels that give the product.

    Args:
        fn: called as fn(a, b, ends, sizes, alphas) with a QTensor (rows, K), a list of QTensors
            (N, K), a group each, and arrays of a number per group: the row behind its rows, its
            rows that hold tokens, its factor. Returns (rows, N) of float32, bfloat16 or float16;
            rows of padding are 0. It may raise NotImplementedError for groups that it does not
            take. All arrays are copies of its own in every call; a product that changes them fails.
        accumulation, dialect, exact, allow_declined: as in assert_product.
        padded_to: the rows of each group are padded to a multiple of this: 1, 16, 128.

    Returns:
        The number of products that were compared; declined ones are not among them.

    >>> import numpy as np, fp4lab.testing
    >>> def product(a, b, ends, sizes, alphas):
    ...     d = np.zeros((a.shape[0], b[0].shape[0]), np.float32)
    ...     for w, begin, size in zip(b, [0, *ends], sizes):
    ...         d[begin : begin + size] = a.dequantize()[begin : begin + size] @ w.dequantize().T
    ...     return d
    >>> fp4lab.testing.assert_grouped(product, padded_to=16, exact=False)
    4
    """
    __tracebackhide__ = True
    callable_(fn, "fn(a, b, ends, sizes, alphas), which returns an array (rows, N)")
    one_of(accumulation, "accumulation", ("block", *(a.name for a in _tables.accumulations())))
    exact, allow_declined = flag(exact, "exact"), flag(allow_declined, "allow_declined")
    if isinstance(padded_to, bool) or not isinstance(padded_to, int) or not 1 <= padded_to <= 4096:
        raise _core.Error(f"padded_to: {padded_to!r} is not a number of rows from 1 to 4096")
    compared, declined = 0, []
    for name, a, b, ends, sizes, alphas in _cases(dialect, padded_to, _seed(seed)):
        where = f"{name}, {a.shape[0]} rows in {len(b)} groups"
        try:
            d = _called(fn, a, b, ends, sizes, alphas)
        except NotImplementedError:
            declined.append(name)
            continue
        except Mutated as error:
            raise AssertionError(f"{where}: {error}") from None
        compared += 1
        _, kind = _arrays.raw(d, "d")
        output = {"bfloat16": "bf16", "uint16": "bf16", "float16": "f16"}.get(kind, "f32")
        try:
            judged = _core.judge_grouped(
                _operand(a, "a"), [_operand(q, f"b[{g}]") for g, q in enumerate(b)], ends.tolist(),
                sizes.tolist(), alphas.tolist(), _arrays.matrix(d, "d"), _accumulation(accumulation),
                output,
            )  # fmt: skip
        except (TypeError, ValueError) as error:
            raise AssertionError(f"{where}: {error}") from None
        verdict = judged[0]
        if verdict in ("equal", "undetermined") or (verdict != "outside" and not exact):
            continue
        raise AssertionError(_text(where, judged, ends, sizes))
    if not compared:
        raise AssertionError("the product declines every case: nothing is compared")
    if declined and not allow_declined:
        raise AssertionError(
            f"the product declines {len(declined)} of {compared + len(declined)} cases "
            f"({', '.join(declined)}): allow_declined=True accepts that"
        )
    return compared


def _called(fn: Callable[..., Any], a: QTensor, b: list[QTensor], *arrays: np.ndarray) -> Any:
    names = {"a": a, **{f"b[{g}]": q for g, q in enumerate(b)}}
    watched = Watched(**{f"{name}.{key}": getattr(q, key) for name, q in names.items() for key in _PARTS},
                      **dict(zip(("ends", "sizes", "alphas"), arrays)))  # fmt: skip
    own = [replace(q, **{key: watched.given[f"{name}.{key}"] for key in _PARTS}) for name, q in names.items()]
    given = [watched.given[key] for key in ("ends", "sizes", "alphas")]
    return watched.call(lambda: fn(own[0], own[1:], *given))


def _text(where: str, judged: tuple[Any, ...], ends: np.ndarray, sizes: np.ndarray) -> str:
    verdict, padding, padding_row, groups, causes = judged
    lines = [f"{where}: {verdict}"]
    for group, of_group, different, outside, (row, col, rows, cols), e in groups:
        if of_group in ("equal", "undetermined"):
            continue
        begin = int(ends[group - 1]) if group else 0
        text = f"group {group}, rows {begin}..{begin + int(sizes[group]) - 1}: {different} elements differ, {outside} outside"
        if outside:
            text += f", in rows {row}..{row + rows - 1} and columns {col}..{col + cols - 1} of the group"
        lines.append(text + f"; ({e[0]}, {e[1]}) got {e[2]!r}, right is {e[3]!r}")
    if padding:
        lines.append(f"padding: {padding} elements are not zero, the first in row {padding_row}")
    for name, what in causes:
        lines.append(f"{'cause' if len(causes) == 1 else 'possible cause'}: the kernel {what} ({name})")
    return "\n".join(lines)


_ieee.guard(globals())
