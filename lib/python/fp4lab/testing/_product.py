"""Operands on which orders of additions part, for a product."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from .. import _core, _ieee, _tables
from .._arguments import callable_, flag, one_of, seed as _seed
from .._products import is_fp8, is_scaled, numbers_of, output_name, product_values, verify_mm
from .._qtensor import QTensor
from .._quantize import quantize
from ._watch import Mutated, Watched


def _product_operands(dialect: _tables.DialectLike, dialect_b: _tables.DialectLike,
                      seed: int) -> list[tuple[str, QTensor, QTensor]]:  # fmt: skip
    """Operands on which orders of additions part: long sums, wide ranges, cancellation. The last are rows
    and blocks of unlike sizes, on which readings of FP8's scales part.
    """
    rng = np.random.default_rng(seed)
    operands: list[tuple[str, QTensor, QTensor]] = []

    def add(name: str, a: np.ndarray, b: np.ndarray) -> None:
        operands.append((name, quantize(a.astype(np.float32), dialect),
                         quantize(b.astype(np.float32), dialect_b)))  # fmt: skip

    add("one block", rng.standard_normal((3, 32)), rng.standard_normal((5, 32)))
    add("normal", rng.standard_normal((8, 512)), rng.standard_normal((8, 512)))
    # blocks of magnitudes 2^-7 to 2^7: sums need more bits than binary32 has
    wide = [rng.standard_normal((r, 768)) * np.exp2(rng.integers(-7, 8, (r, 48))).repeat(16, axis=1)
            for r in (6, 7)]  # fmt: skip
    add("wide range", wide[0], wide[1])
    add("cancelling", np.hstack([wide[0][:4], -wide[0][:4, ::-1]]), np.ones((4, 1536)))
    add("zeros", np.zeros((2, 64)), rng.standard_normal((2, 64)))
    add("a short tail", rng.standard_normal((3, 272)), rng.standard_normal((3, 272)))
    add("unlike scales", _unlike(rng, 20), _unlike(rng, 140))
    return operands


def _unlike(rng: np.random.Generator, rows: int) -> np.ndarray:
    """(rows, 384): each row, block of 128 columns and block of 128 rows has a magnitude of its own."""
    sizes = 1.0 + 0.37 * (np.arange(rows) % 5)[:, None] + 2.0 * np.arange(3)
    return rng.standard_normal((rows, 384)) * (sizes * np.exp2(np.arange(rows) // 128)[:, None]).repeat(128, axis=1)


def assert_product(
    fn: Callable[..., Any],
    accumulation: str = "block",
    *,
    dialect: _tables.DialectLike = "nvfp4.te",
    dialect_b: _tables.DialectLike | None = None,
    with_scales: bool = False,
    output_scale: float = 1.0,
    out_dtype: Any = None,
    seed: int = 1,
    exact: bool = True,
    allow_declined: bool = False,
) -> int:
    """Feeds operands to a product and raises AssertionError unless every element is the
    accumulation's (or within its proven bound).

    Args:
        fn: called as fn(a, b, alpha) with two QTensors (M, K) and (N, K) and the factor of the
            tensor scales; returns (M, N) of float32, bfloat16, float16, float8_e4m3fn or float8_e5m2.
            It may raise NotImplementedError for shapes that it does not take: the case is declined.
            The arrays of a and b are copies of its own in every call; a product that changes them
            fails. alpha is 1 for FP8 with scales, which the kernel takes from a and b.
        accumulation: as fp4lab.scaled_mm takes it.
        dialect: of both operands, or of A alone.
        dialect_b: of B: DeepSeek-V3 multiplies "fp8_e4m3.1x128.fp32" by "fp8_e4m3.128x128.fp32".
        with_scales, output_scale, out_dtype: as fp4lab.verify_mm takes them.
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
    >>> fp4lab.testing.assert_product(product, dialect="fp8_e4m3.1x128.fp32", dialect_b="fp8_e4m3.128x128.fp32")
    7
    """
    __tracebackhide__ = True
    callable_(fn, "fn(a, b, alpha), which returns an array (M, N)")
    one_of(accumulation, "accumulation", ("block", *(a.name for a in _tables.accumulations())))
    exact, allow_declined = flag(exact, "exact"), flag(allow_declined, "allow_declined")
    options = {"accumulation": accumulation}
    stated = {"with_scales": (flag(with_scales, "with_scales"), False), "output_scale": (output_scale, 1.0),
              "out_dtype": (out_dtype, None)}  # fmt: skip
    options.update({key: value for key, (value, default) in stated.items() if value != default})
    compared, declined = 0, []
    operands = _product_operands(dialect, dialect if dialect_b is None else dialect_b, _seed(seed))
    of_fp8 = out_dtype is not None and is_fp8(output_name(out_dtype))
    scaled = with_scales or of_fp8 or is_scaled(*operands[0][1:])
    fp8 = any(_tables.dialect(q.dialect).element_bits == 8 for q in operands[0][1:])
    for name, a, b in operands if scaled else operands[:-1]:
        alpha = 1.0 if scaled and fp8 else _alpha_of(a, b)
        try:
            d = _called(fn, a, b, alpha)
        except NotImplementedError:
            declined.append(name)
            continue
        except Mutated as error:
            raise AssertionError(f"{name}, {a.shape[0]}x{b.shape[0]}x{a.shape[1]}: {error}") from None
        compared += 1
        try:
            if not scaled and is_fp8(numbers_of(d)[1]):
                raise _core.Error("d: is of FP8; state out_dtype, so that the kernel gets an alpha of 1")
            verdict = verify_mm(a, b, d, alpha=alpha, **options)
        except (TypeError, ValueError) as error:
            raise AssertionError(f"{name}, {a.shape[0]}x{b.shape[0]}x{a.shape[1]}: {error}") from None
        if verdict.verdict in ("equal", "undetermined") or (verdict and not exact):
            continue
        rows, cols = (int(n) for n in np.argwhere(_different(a, b, d, alpha, options))[0])
        raise AssertionError(
            f"{name}, {a.shape[0]}x{b.shape[0]}x{a.shape[1]}: {verdict.text}\n"
            f"to reproduce with element ({rows}, {cols}) alone:\n\n"
            + _product_reproducer(a, b, rows, cols, alpha, options)
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


def _different(a: QTensor, b: QTensor, d: Any, alpha: float, options: dict[str, Any]) -> np.ndarray:
    got, kind = numbers_of(d)
    if kind == "bf16":
        got = (got.astype(np.uint32) << 16).view(np.float32)
    output = output_name(options.get("out_dtype", kind))
    stated = {key: value for key, value in options.items() if key != "out_dtype"}
    want = product_values(a, b, output, alpha=alpha, **stated)
    return (got.view(np.uint32) != want.view(np.uint32)) & ~(np.isnan(got) & np.isnan(want))


def _product_reproducer(a: QTensor, b: QTensor, row: int, col: int, alpha: float, options: dict[str, Any]) -> str:
    lines = ["import numpy as np", "import fp4lab", ""]
    for name, q, r in (("a", a, row), ("b", b, col)):
        height = max(_tables.dialect(q.dialect).block[0], 1)
        scales = q.scale_inv[r // height : r // height + 1]
        amax = q.amax if q.amax is None or np.ndim(q.amax) == 0 else q.amax[r : r + 1]
        lines.append(
            f"{name} = fp4lab.QTensor({_array_text(q.data[r : r + 1])}, {_array_text(scales)}, {_amax_text(amax)}, "
            f"(1, {q.shape[1]}), {q.dialect!r}, nibbles={q.nibbles!r})"
        )
    given = ", ".join(f"{key}={value!r}" for key, value in {"alpha": alpha, **options}.items())
    lines.append(f"d = product(a, b, {alpha!r})")
    lines.append(f"print(fp4lab.verify_mm(a, b, d, {given}))")
    return "\n".join(lines)


def _array_text(x: np.ndarray) -> str:
    """An expression that makes the array."""
    return f"np.frombuffer(bytes.fromhex({x.tobytes().hex()!r}), np.{x.dtype.name}).reshape({x.shape})"


def _amax_text(amax: Any) -> str:
    if amax is None:
        return "None"
    return _array_text(np.asarray(amax)) if np.ndim(amax) else f"np.float32({float(amax)!r})"


_ieee.guard(globals())
