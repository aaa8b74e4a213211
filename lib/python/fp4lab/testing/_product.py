"""Operands on which orders of additions part, for a product."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from .. import _ieee, _tables
from .._arguments import callable_, flag, one_of, seed as _seed
from .._arrays import numbers
from .._products import scaled_mm, verify_mm
from .._qtensor import QTensor
from .._quantize import quantize
from ._watch import Mutated, Watched


def _product_operands(dialect: _tables.DialectLike, seed: int) -> list[tuple[str, QTensor, QTensor]]:
    """Operands on which orders of additions part: long sums, wide ranges, cancellation."""
    rng = np.random.default_rng(seed)
    operands = []

    def add(name: str, a: np.ndarray, b: np.ndarray) -> None:
        operands.append((name, quantize(a.astype(np.float32), dialect),
                         quantize(b.astype(np.float32), dialect)))  # fmt: skip

    add("one block", rng.standard_normal((3, 32)), rng.standard_normal((5, 32)))
    add("normal", rng.standard_normal((8, 512)), rng.standard_normal((8, 512)))
    # blocks of magnitudes 2^-7 to 2^7: sums need more bits than binary32 has
    wide = [rng.standard_normal((r, 768)) * np.exp2(rng.integers(-7, 8, (r, 48))).repeat(16, axis=1)
            for r in (6, 7)]  # fmt: skip
    add("wide range", wide[0], wide[1])
    add("cancelling", np.hstack([wide[0][:4], -wide[0][:4, ::-1]]), np.ones((4, 1536)))
    add("zeros", np.zeros((2, 64)), rng.standard_normal((2, 64)))
    add("a short tail", rng.standard_normal((3, 272)), rng.standard_normal((3, 272)))
    return operands


def assert_product(
    fn: Callable[..., Any],
    accumulation: str = "block",
    *,
    dialect: _tables.DialectLike = "nvfp4.te",
    seed: int = 1,
    exact: bool = True,
    allow_declined: bool = False,
) -> int:
    """Feeds operands to a product and raises AssertionError unless every element is the
    accumulation's (or within its proven bound).

    Args:
        fn: called as fn(a, b, alpha) with two QTensors (M, K) and (N, K) and the factor of the
            tensor scales; returns (M, N) of float32, bfloat16 or float16. It may raise
            NotImplementedError for shapes that it does not take: the case is declined. The arrays
            of a and b are copies of its own in every call; a product that changes them fails.
        accumulation: as fp4lab.scaled_mm takes it.
        dialect: of both operands.
        exact: True: every bit; False: within the bound of the accumulation, so that sums in
            another order are accepted, and wrong products are not.
        allow_declined: whether declined cases are fine; a product must answer one at least.

    Returns:
        The number of products that were compared; declined ones are not among them.

    >>> import fp4lab, fp4lab.testing
    >>> def product(a, b, alpha):
    ...     return fp4lab.scaled_mm(a, b, alpha=alpha, out_dtype="float32")
    >>> fp4lab.testing.assert_product(product)
    6
    """
    callable_(fn, "fn(a, b, alpha), which returns an array (M, N)")
    one_of(accumulation, "accumulation", ("block", *(a.name for a in _tables.accumulations())))
    exact, allow_declined = flag(exact, "exact"), flag(allow_declined, "allow_declined")
    compared, declined = 0, []
    for name, a, b in _product_operands(dialect, _seed(seed)):
        alpha = _alpha_of(a, b)
        try:
            d = _called(fn, a, b, alpha)
        except NotImplementedError:
            declined.append(name)
            continue
        except Mutated as error:
            raise AssertionError(f"{name}, {a.shape[0]}x{b.shape[0]}x{a.shape[1]}: {error}") from None
        compared += 1
        try:
            verdict = verify_mm(a, b, d, alpha=alpha, accumulation=accumulation)
        except (TypeError, ValueError) as error:
            raise AssertionError(f"{name}, {a.shape[0]}x{b.shape[0]}x{a.shape[1]}: {error}") from None
        if verdict.verdict in ("equal", "undetermined") or (verdict and not exact):
            continue
        rows, cols = (int(n) for n in np.argwhere(_different(a, b, d, alpha, accumulation))[0])
        raise AssertionError(
            f"{name}, {a.shape[0]}x{b.shape[0]}x{a.shape[1]}: {verdict.text}\n"
            f"to reproduce with element ({rows}, {cols}) alone:\n\n"
            + _product_reproducer(a, b, rows, cols, alpha, accumulation, dialect)
        )
    if not compared:
        raise AssertionError("the product declines every shape: nothing is compared")
    if declined and not allow_declined:
        raise AssertionError(
            f"the product declines {len(declined)} of {compared + len(declined)} cases ({', '.join(declined)}): "
            "allow_declined=True accepts that"
        )
    return compared


def _called(fn: Callable[..., Any], a: QTensor, b: QTensor, alpha: float) -> Any:
    """fn on operands whose arrays are copies of its own. Raises Mutated if it changed one."""
    parts = {f"{name}.{key}": getattr(q, key)
             for name, q in (("a", a), ("b", b)) for key in ("data", "scale_inv", "amax")}  # fmt: skip
    watched = Watched(**parts)
    own = [replace(q, **{key: watched.given[f"{name}.{key}"] for key in ("data", "scale_inv", "amax")})
           for name, q in (("a", a), ("b", b))]  # fmt: skip
    return watched.call(lambda *_: fn(*own, alpha), *())


def _alpha_of(a: QTensor, b: QTensor) -> float:
    if a.amax is None or b.amax is None:
        return 1.0
    c = np.float32(_tables.dialect(a.dialect).constant) * np.float32(_tables.dialect(b.dialect).constant)
    return float(np.float32(a.amax) * np.float32(b.amax) / c)


def _different(a: QTensor, b: QTensor, d: Any, alpha: float, accumulation: str) -> np.ndarray:
    got = numbers(d, "d")
    kind = {np.dtype(np.float32): "float32", np.dtype(np.float16): "float16"}.get(
        np.asarray(d).dtype if isinstance(d, np.ndarray) else got.dtype, "bfloat16"
    )
    want = scaled_mm(a, b, alpha=alpha, accumulation=accumulation, out_dtype=kind)
    if kind == "bfloat16":
        return got != np.asarray(want).view(np.uint16)
    return ~((got == want) | (np.isnan(got) & np.isnan(want)))


def _product_reproducer(a: QTensor, b: QTensor, row: int, col: int, alpha: float,
                        accumulation: str, dialect: _tables.DialectLike) -> str:  # fmt: skip
    lines = ["import numpy as np", "import fp4lab", ""]
    for name, q, r in (("a", a, row), ("b", b, col)):
        lines.append(
            f"{name} = fp4lab.QTensor(np.frombuffer(bytes.fromhex({q.data[r].tobytes().hex()!r}), "
            f"np.uint8)[None], np.frombuffer(bytes.fromhex({q.scale_inv[r].tobytes().hex()!r}), "
            f"np.uint8)[None], {'None' if q.amax is None else f'np.float32({float(q.amax)!r})'}, "
            f"(1, {q.shape[1]}), {dialect!r})"
        )
    lines.append(f"d = product(a, b, {alpha!r})")
    lines.append(f"print(fp4lab.verify_mm(a, b, d, alpha={alpha!r}, accumulation={accumulation!r}))")
    return "\n".join(lines)


_ieee.guard(globals())
