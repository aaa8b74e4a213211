"""Assertions on kernels: numpy alone, for any callable that returns arrays of the CPU.

>>> import numpy as np, fp4lab, fp4lab.testing
>>> def my_kernel(x):
...     q = fp4lab.quantize(x, "nvfp4.te")  # stands for a kernel of yours
...     return q.data, q.scale_inv, q.amax
>>> fp4lab.testing.assert_kernel(my_kernel, "nvfp4.te").accepted
True
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import _core, _tables
from .._arrays import amaxes, bf16_bits, bf16_view, matrix, numbers
from .._arrays import codes as _codes
from .._judge import LEVELS, Case, Report, Verdict, cases, verify
from .._products import scaled_mm, verify_mm
from .._qtensor import QTensor, scale_order
from .._quantize import TE_SIGN_MASK, hadamard_size, quantize, random_fields, rounding_label

__all__ = [
    "KernelReport", "WrongKernel", "assert_kernel", "assert_matches", "assert_product",
    "assert_same_bytes", "assert_stochastic", "wrong_kernels",
]  # fmt: skip


def assert_matches(
    x: Any,
    codes: Any,
    scales: Any = None,
    dialect: str | None = None,
    *,
    layout: str = "auto",
    sr: Any = None,
    max_shown: int = 3,
    **options: Any,
) -> Verdict:
    """Raises AssertionError unless bytes are an answer of the dialect; its message has the reasons.

    Args:
        x, codes, scales, dialect, **options: as fp4lab.verify takes them.
        layout: the scale layout; "auto" finds it by the number of bytes.
        sr: the uint16 fields of random bits that the kernel took, for stochastic rounding.
        max_shown: the differences to list.

    Returns:
        The verdict.

    >>> import numpy as np, fp4lab, fp4lab.testing
    >>> x = np.ones((4, 32), np.float32)
    >>> verdict = fp4lab.testing.assert_matches(x, fp4lab.quantize(x))
    """
    if sr is not None:
        options.setdefault("rounding", "stochastic")
        options["random"] = sr
    verdict = verify(x, codes, scales, dialect, scale_layout=layout, first=max_shown, **options)
    if not verdict:
        raise AssertionError(
            verdict.headline.rstrip() + "\n" + verdict.text + "\n" + verdict.explain().text
        )
    return verdict


def _bits(numbers: Any) -> list[int]:
    return np.asarray(amaxes(numbers), np.float32).view(np.uint32).tolist()


def assert_same_bytes(a: QTensor, b: QTensor) -> None:
    """Raises AssertionError unless two QTensors are equal: shape, dialect, layout and every byte."""
    for name in ("shape", "dialect", "columnwise", "scale_layout", "nibbles", "expanded_scales"):
        if getattr(a, name) != getattr(b, name):
            raise AssertionError(f"{name}: {getattr(a, name)!r} and {getattr(b, name)!r}")
    for name in ("data", "scale_inv"):
        left, right = _codes(getattr(a, name), name)[0], _codes(getattr(b, name), name)[0]
        if left.size != right.size:
            raise AssertionError(f"{name}: {left.size} and {right.size} bytes")
        where = np.flatnonzero(left != right)
        if where.size:
            i = int(where[0])
            raise AssertionError(
                f"{name}: {where.size} of {left.size} bytes differ; the first at byte {i}: "
                f"0x{left[i]:02x} and 0x{right[i]:02x}"
            )
    if _bits(a.amax) != _bits(b.amax):
        raise AssertionError(f"amax: {a.amax!r} and {b.amax!r}")


@dataclass(frozen=True)
class KernelReport:
    """The verdict of assert_kernel on all cases.

    Attributes:
        dialect, level: what was asked for.
        cases, different, declined, left_out: numbers of cases. Declined: the kernel raised
            NotImplementedError. Left out: a transform does not take them.
        causes: the causes that explain the failing cases that were looked at, the best first.
        text: the report, with a reproducer to paste.
    """

    dialect: str
    level: str
    cases: int
    different: int
    declined: int
    left_out: int
    causes: tuple[str, ...]
    text: str

    @property
    def accepted(self) -> bool:
        return self.different == 0


class _Failure(Exception):
    """A kernel's answer that cannot be judged, or an exception of the kernel."""


@dataclass
class _Trial:
    """A callable under test with everything that judging its answers takes."""

    fn: Callable[..., Any]
    dialect: _tables.Dialect
    dtype: str
    takes_random: bool
    options: dict[str, Any]

    def answer(self, x: np.ndarray, random: np.ndarray | None) -> tuple[Any, Any, Any]:
        given = bf16_view(bf16_bits(x)) if self.dtype == "bfloat16" else x
        result = self.fn(given, random) if self.takes_random else self.fn(given)
        if isinstance(result, QTensor):
            return result, None, None
        if isinstance(result, dict):
            return result["codes"], result.get("scales"), result.get("tensor_scale")
        if not isinstance(result, (tuple, list)) or len(result) not in (2, 3):
            raise _Failure(
                f"the kernel returned {type(result).__name__}: return a QTensor, (codes, scales) or "
                "(codes, scales, tensor_scale)"
            )
        return (*result, None) if len(result) == 2 else tuple(result)

    def verdict(self, x: np.ndarray, random: np.ndarray | None) -> Verdict:
        codes, scales, number = self.answer(x, random)
        options = dict(self.options)
        if isinstance(codes, QTensor):
            for key in ("scale_layout", "nibbles", "expanded_scales", "columnwise"):
                options.pop(key, None)
        return verify(x, codes, scales, self.dialect.name, tensor_scale=number, random=random,
                      **options)  # fmt: skip

    def fails(self, x: np.ndarray, random: np.ndarray | None) -> Verdict | None:
        """The verdict if the kernel answers this input, wrongly."""
        try:
            verdict = self.verdict(x, random)
        except Exception:  # an input that the kernel does not take is no failure
            return None
        return None if verdict else verdict


def _shrunk(trial: _Trial, x: np.ndarray, random: np.ndarray | None, verdict: Verdict,
            tries: int = 160) -> tuple[np.ndarray, np.ndarray | None, Verdict]:  # fmt: skip
    """The smallest part of x, of whole blocks, on which the kernel still fails; then as few
    elements other than 0 as it takes.
    """
    unit_rows, unit_cols = (max(n, 1) for n in trial.dialect.block)
    unit_cols = max(unit_cols, hadamard_size(trial.options.get("rht", 0)))
    if trial.options.get("columnwise"):
        unit_rows, unit_cols = unit_cols, unit_rows
    left = tries

    def attempt(part: np.ndarray, bits: np.ndarray | None) -> bool:
        nonlocal x, random, verdict, left
        if left <= 0:
            return False
        left -= 1
        failed = trial.fails(part, bits)
        if failed is None:
            return False
        x, random, verdict = part, bits, failed
        return True

    for axis, unit in ((0, unit_rows), (1, unit_cols)):
        step = -(-x.shape[axis] // unit)
        while step >= 1:
            count = -(-x.shape[axis] // unit)
            for start in range(0, count, step):
                inside = slice(start * unit, min((start + step) * unit, x.shape[axis]))
                if inside.stop - inside.start == x.shape[axis]:
                    continue
                cut = (inside, slice(None)) if axis == 0 else (slice(None), inside)
                part = np.ascontiguousarray(x[cut])
                if attempt(part, None if random is None else np.ascontiguousarray(random[cut])):
                    break
            step //= 2
    if x.size <= 1024:
        size = x.size
        while size >= 1:
            for start in range(0, x.size, size):
                part = x.copy()
                flat = part.reshape(-1)
                if not flat[start : start + size].view(np.uint32).any():
                    continue
                flat[start : start + size] = 0
                attempt(part, random)
            size //= 2
    return x, random, verdict


def _array_text(x: np.ndarray, name: str) -> str:
    """A numpy array to paste, bit for bit."""
    if x.dtype == np.uint16:
        return f"{name} = np.array({x.tolist()}, np.uint16)"
    if not np.isnan(x).any() and x.size <= 4096:
        nonzero = np.argwhere(x.view(np.uint32) != 0)
        if len(nonzero) * 4 < x.size:
            lines = [f"{name} = np.zeros({x.shape}, np.float32)"]
            lines += [f"{name}[{r}, {c}] = float.fromhex({float(x[r, c]).hex()!r})" for r, c in nonzero]
            return "\n".join(lines)
    words = ", ".join(f"0x{w:08x}" for w in x.view(np.uint32).reshape(-1))
    return f"{name} = np.array([{words}], np.uint32).view(np.float32).reshape{x.shape}"


def _reproducer(trial: _Trial, x: np.ndarray, random: np.ndarray | None) -> str:
    given = "x, random" if trial.takes_random else "x"
    options = {k: v for k, v in trial.options.items() if v not in (False, None, "auto", "nearest")}
    if not trial.options["rht"]:
        options.pop("sign_mask")
    if trial.options["rounding"] != "stochastic":
        options.pop("random_bits")
    if trial.options["tensor_scale_is"] == "amax":
        options.pop("tensor_scale_is")
    if "scale_layout" in options:
        options["layout"] = options.pop("scale_layout")
    if trial.takes_random:
        options["random"] = "random"
    text = "".join(f", {k}={v if k == 'random' else repr(v)}" for k, v in options.items())
    lines = ["import numpy as np", "import fp4lab.testing", ""]
    lines.append(_array_text(np.ascontiguousarray(x), "x"))
    if random is not None:
        lines.append(_array_text(random, "random"))
    if trial.dtype == "bfloat16":
        lines.append("# the kernel takes bfloat16: x holds bfloat16 values")
    lines.append(f"answer = kernel({given})  # (codes, scales) or (codes, scales, tensor_scale)")
    lines.append("number = answer[2] if len(answer) == 3 else None")
    lines.append(
        f'fp4lab.testing.assert_matches(x, *answer[:2], "{trial.dialect.name}", tensor_scale=number'
        f"{text})"
    )
    return "\n".join(lines)


def _rank_causes(reports: list[Report]) -> list[tuple[str, int]]:
    """Causes by the number of reports that they explain, in the reports' own order."""
    counts: dict[str, int] = {}
    for report in reports:
        for cause in report.causes:
            counts[cause] = counts.get(cause, 0) + 1
    return sorted(counts.items(), key=lambda item: -item[1])


def assert_kernel(
    fn: Callable[..., Any],
    dialect: str = "nvfp4.te",
    level: str = "quick",
    *,
    dtype: str = "float32",
    seed: int = 1,
    families: Any = (),
    rht: bool | int = False,
    sign_mask: int = TE_SIGN_MASK,
    rounding: str = "nearest",
    random_bits: int = 16,
    columnwise: bool = False,
    scale_layout: str = "auto",
    nibbles: str = "auto",
    expanded_scales: bool = False,
    tensor_scale_is: str = "amax",
    allow_declined: bool = False,
    explained: int = 6,
    shrink: bool = True,
) -> KernelReport:
    """Feeds the directed cases of a dialect to a kernel, and raises AssertionError unless every
    answer is the dialect's. The message names the cause, shrinks the failure to its smallest block
    and ends with a reproducer to paste.

    Args:
        fn: called as fn(x), or fn(x, random) for dialects that take random bits; x is a numpy
            array (rows, columns). It returns a QTensor, (codes, scales), (codes, scales,
            tensor_scale) or a dict of these names: arrays that fp4lab.verify takes. It may raise
            NotImplementedError for a shape that it does not take: the case is declined.
        dialect, level, seed, families: as fp4lab.cases.
        dtype: "float32", or "bfloat16": only cases of bfloat16 values, given as ml_dtypes.bfloat16
            (uint16 bits without that package).
        rht, sign_mask: the kernel transforms its input first (16 or 32); only cases of bfloat16
            values and whole groups are used.
        rounding, random_bits: as quantize; "stochastic" hands random fields to fn.
        columnwise, scale_layout, nibbles, expanded_scales, tensor_scale_is: the layout of the
            answers, as fp4lab.verify takes them.
        allow_declined: whether declined cases are fine; a kernel must answer one at least.
        explained: the failing cases that are searched for causes.
        shrink: whether to shrink the failure.

    Returns:
        The report, if the kernel is right.
    """
    if dtype not in ("float32", "bfloat16"):
        raise ValueError(f'dtype "{dtype}" is not one of: float32, bfloat16')
    if level not in LEVELS:
        raise ValueError(f'level "{level}" is not one of: {", ".join(LEVELS)}')
    d = _tables.dialect(dialect)
    label = rounding_label(rounding, random_bits)
    takes_random = d.takes_random_bits if not label else label.startswith("stochastic")
    size = hadamard_size(rht)
    trial = _Trial(fn, d, dtype, takes_random, {
        "rht": size, "sign_mask": sign_mask, "rounding": rounding, "random_bits": random_bits,
        "columnwise": columnwise, "scale_layout": scale_layout, "nibbles": nibbles,
        "expanded_scales": expanded_scales, "tensor_scale_is": tensor_scale_is,
    })  # fmt: skip
    bf16_only = dtype == "bfloat16"
    all_cases = list(cases(d, level, seed=seed, families=families, bf16_only=bf16_only,
                           rounding=rounding, random_bits=random_bits))  # fmt: skip
    used: list[Case] = []
    for c in all_cases:
        along = c.x.shape[0] if columnwise else c.x.shape[1]
        if not size or (c.is_bf16 and along % size == 0):
            used.append(c)
    if not used:
        raise ValueError("no case of these families is left to test")
    declined = 0
    failures: list[tuple[Case, Verdict | None, str]] = []
    for c in used:
        try:
            verdict = trial.verdict(c.x, _turned(c.random, columnwise, c.x))
        except NotImplementedError:
            declined += 1
            continue
        except _Failure as error:
            raise AssertionError(f"case {c.name}: {error}") from None
        except Exception as error:
            failures.append((c, None, f"{type(error).__name__}: {error}"))
            continue
        if not verdict:
            failures.append((c, verdict, verdict.headline))
    if declined == len(used):
        raise AssertionError(f"the kernel declines all {declined} cases: nothing is compared")
    counts = (len(used), len(failures), declined, len(all_cases) - len(used))
    if not failures and (allow_declined or not declined):
        text = f"{d.name}: {counts[0] - declined} of {counts[0]} cases as the dialect has them"
        return KernelReport(d.name, level, *counts, (), text)
    if not failures:
        raise AssertionError(
            f"the kernel declines {declined} of {len(used)} cases: allow_declined=True accepts that"
        )
    report = _report(trial, level, used, failures, counts, explained, shrink)
    error = AssertionError(report.text)
    error.fp4lab_report = report  # type: ignore[attr-defined]
    raise error


def _turned(random: np.ndarray | None, columnwise: bool, x: np.ndarray) -> np.ndarray | None:
    if random is None or not columnwise:
        return random
    return np.ascontiguousarray(random.reshape(x.shape[1], x.shape[0]))


def _report(trial: _Trial, level: str, used: list[Case],
            failures: list[tuple[Case, Verdict | None, str]], counts: tuple[int, int, int, int],
            explained: int, shrink: bool) -> KernelReport:  # fmt: skip
    d = trial.dialect
    lines = [f"{d.name}: {len(failures)} of {len(used)} cases differ"]
    by_family: dict[str, list[int]] = {}
    for c in used:
        by_family.setdefault(c.family, [0, 0])[1] += 1
    for c, _, _ in failures:
        by_family[c.family][0] += 1
    for c in {f[0].family: f[0] for f in failures}.values():
        bad, all_ = by_family[c.family]
        lines.append(f"  {c.family}: {bad} of {all_} differ; it tests {c.cause}")
    broken = [(c, text) for c, verdict, text in failures if verdict is None]
    for c, text in broken[:3]:
        lines.append(f"  case {c.name}, {c.x.shape[0]}x{c.x.shape[1]}: {text}")
    judged = [(c, verdict) for c, verdict, _ in failures if verdict is not None]
    if not judged:
        return KernelReport(d.name, level, *counts, (), "\n".join(lines))

    def weight(item: tuple[Case, Verdict]) -> int:
        v = item[1]
        return v.codes_different + 16 * v.scales_different

    judged = _spread(sorted(judged, key=lambda item: (-weight(item), item[0].x.size)))
    reports = [v.explain(pairs=False) for _, v in judged[:explained]]
    while not any(r.causes for r in reports) and len(reports) < min(len(judged), 6 * explained):
        reports.append(judged[len(reports)][1].explain(pairs=False))
    ranked = _rank_causes(reports)
    chosen = 0
    if not ranked:  # no single cause: pairs, on the case with the most differences
        reports[0] = judged[0][1].explain()
        ranked = _rank_causes(reports[:1])
    elif ranked[0][1] < len(reports):
        chosen = next(i for i, r in enumerate(reports) if ranked[0][0] in r.causes)
    else:
        forced = [i for i, r in enumerate(reports) if r.verdict == "cause"]
        chosen = forced[0] if forced else 0
    best = [name for name, count in ranked if count == ranked[0][1]]
    if best:
        all_of = f"all {len(reports)}" if ranked[0][1] == len(reports) else f"{ranked[0][1]} of {len(reports)}"
        shown = ", ".join(best[:4]) + (f" and {len(best) - 4} more" if len(best) > 4 else "")
        lines.append(f"cause: {shown} (explains {all_of} failing cases that were looked at)")
    else:
        lines.append("cause: none of the table explains the bytes")
    case, verdict = judged[chosen]
    lines += ["", f"case {case.name}, {case.x.shape[0]}x{case.x.shape[1]}:", verdict.text.rstrip(),
              reports[chosen].text.rstrip()]  # fmt: skip
    smallest, its_verdict = min(judged, key=lambda item: item[0].x.size)
    x, random = smallest.x, smallest.random
    if shrink and (random is None or not trial.options["columnwise"]):
        x, random, its_verdict = _shrunk(trial, x, random, its_verdict)
    lines += ["", f"smallest input found, {x.shape[0]}x{x.shape[1]} (of case {smallest.name}): "
              f"{its_verdict.headline}", "to reproduce:", ""]  # fmt: skip
    lines.append(_reproducer(trial, x, random))
    return KernelReport(d.name, level, *counts, tuple(n for n, _ in ranked), "\n".join(lines))


def _spread(judged: list[tuple[Case, Verdict]]) -> list[tuple[Case, Verdict]]:
    """The same cases, one of each family before the second of any."""
    seen: dict[str, int] = {}
    keyed = []
    for item in judged:
        turn = seen[item[0].family] = seen.get(item[0].family, -1) + 1
        keyed.append((turn, item))
    return [item for _, item in sorted(keyed, key=lambda k: k[0])]


def assert_stochastic(
    fn: Callable[[Any, int], Any],
    x: Any,
    dialect: str = "nvfp4.te",
    samples: int = 64,
    *,
    rounding: str = "stochastic",
    random_bits: int = 16,
    error_rate: float = 1e-6,
    amax: Any = None,
    scale_layout: str = "auto",
    nibbles: str = "auto",
) -> str:
    """Judges a stochastic kernel without its random bits: scales exactly, codes by distribution.

    Args:
        fn: called as fn(x, i) for i in range(samples); each call must draw bits of its own.
        x: one input, as quantize takes it.
        samples: the number of runs.
        rounding, random_bits: the distribution; random_bits are those that the kernel takes.
        error_rate: the largest probability with which a right kernel is refused.
        amax, scale_layout, nibbles: as fp4lab.verify.

    Returns:
        The verdict in lines.

    Raises:
        AssertionError: if the codes are not distributed as the rounding says, or a scale differs.
    """
    from .._judge import _answer

    d = _tables.dialect(dialect)
    if d.stochastic:
        rounding = "nearest"  # the dialect's own
    runs, kernel, array = [], None, matrix(x)
    for i in range(samples):
        run = _Trial(lambda _, i=i: fn(x, i), d, "float32", False, {})
        codes, scales, number = run.answer(array, None)
        a = _answer(
            array, codes, scales, d.name, tensor_scale=number, amax=amax, rht=0,
            sign_mask=TE_SIGN_MASK, rounding=rounding, random_bits=random_bits, random=None,
            columnwise=False, scale_layout=scale_layout, nibbles=nibbles, expanded_scales=False,
            tensor_scale_is="amax",
        )  # fmt: skip
        kernel = a.kernel
        runs.append(a.parts)
    accepted, _, text, _ = _core.verify_runs(kernel, array, runs, amaxes(amax), error_rate)
    if not accepted:
        raise AssertionError(text)
    return text


def _product_operands(dialect: str, seed: int) -> list[tuple[str, QTensor, QTensor]]:
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
    dialect: str = "nvfp4.te",
    seed: int = 1,
    exact: bool = True,
) -> int:
    """Feeds operands to a product and raises AssertionError unless every element is the
    accumulation's (or within its proven bound).

    Args:
        fn: called as fn(a, b, alpha) with two QTensors (M, K) and (N, K) and the factor of the
            tensor scales; returns (M, N) of float32, bfloat16 or float16. It may raise
            NotImplementedError for shapes that it does not take.
        accumulation: as fp4lab.scaled_mm takes it.
        dialect: of both operands.
        exact: True: every bit; False: within the bound of the accumulation, so that sums in
            another order are accepted, and wrong products are not.

    Returns:
        The number of products that were compared.

    >>> import fp4lab, fp4lab.testing
    >>> def product(a, b, alpha):
    ...     return fp4lab.scaled_mm(a, b, alpha=alpha, out_dtype="float32")
    >>> fp4lab.testing.assert_product(product)
    6
    """
    compared = 0
    for name, a, b in _product_operands(dialect, seed):
        alpha = _alpha_of(a, b)
        try:
            d = fn(a, b, alpha)
        except NotImplementedError:
            continue
        compared += 1
        verdict = verify_mm(a, b, d, alpha=alpha, accumulation=accumulation)
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
    return compared


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
                        accumulation: str, dialect: str) -> str:  # fmt: skip
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


@dataclass(frozen=True)
class WrongKernel:
    """A kernel of the library with one deviation, as a callable for tests of tests.

    Attributes:
        name: "ties-away"; the name by which reports call the cause.
        what: what it does wrong.
        stage: "input", "tensor scale", "scale", "element", "layout" or "nothing".
    """

    name: str
    what: str
    stage: str
    _kernel: Any

    def __call__(self, x: Any, random: Any = None) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """(codes, scales, tensor_scale); the tensor scale is None where the dialect has none."""
        codes, scales, number = _core.run_wrong_kernel(
            self._kernel, matrix(x), [self.name], [], random_fields(random)
        )
        return codes, scales, number if number.size else None


def wrong_kernels(
    dialect: str = "nvfp4.te",
    *,
    rht: bool | int = False,
    sign_mask: int = TE_SIGN_MASK,
    rounding: str = "nearest",
    random_bits: int = 16,
    scale_layout: str = "swizzled_32_4_4",
    nibbles: str = "low-first",
) -> list[WrongKernel]:
    """The library's wrong kernels that change some byte of a dialect in a layout, as callables:
    each must fail assert_kernel.

    >>> import fp4lab.testing
    >>> kernel = next(k for k in fp4lab.testing.wrong_kernels() if k.name == "ties-away")
    >>> kernel.what
    'rounds ties away from zero'
    """
    d = _tables.dialect(dialect)
    number = "amax" if d.tensor_scale else "none"
    order = nibbles if d.element_bits == 4 else "bytes"
    layout = (order, scale_order(scale_layout), False, False, number)
    kernel = (d.name, rounding_label(rounding, random_bits), layout, hadamard_size(rht), sign_mask)
    return [WrongKernel(*row, kernel) for row in _core.wrong_kernels(kernel)]
