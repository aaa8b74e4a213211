"""Directed cases for a kernel, and the report on those that it fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import _core, _ieee, _tables
from .._arguments import (
    TE_SIGN_MASK,
    callable_,
    flag,
    hadamard,
    integer,
    one_of,
    probability,
    rounding_label,
)
from .._arrays import magnitudes, matrix
from .._judge import KERNEL_TRANSFORMS, LEVELS, Case, Report, Verdict, answer_of, cases
from .._qtensor import NIBBLES, TENSOR_SCALES, scale_order
from ._causes import Search, search
from ._trial import NotJudged, Trial, WrongSizes, mutation_reproducer, parts_of, reproducer, shrunk
from ._watch import Mutated, Watched

_IDENTIFY = "fp4lab.identify(x, codes, scales) names the dialects and layouts that write the bytes of a case"
_DTYPES = {"float32": "float32", "bfloat16": "bfloat16", "f32": "float32", "bf16": "bfloat16"}


@dataclass(frozen=True)
class KernelReport:
    """The verdict of assert_kernel on all cases.

    Attributes:
        dialect, level: what was asked for.
        cases, different, declined, left_out: numbers of cases. Declined: the kernel raised
            NotImplementedError; these are compared with nothing. Left out: a transform does not take
            them.
        causes: the causes that explain every failing case.
        partial: (cause, failing cases that it explains) of causes that explain some of them only,
            the best first. Where there are causes, those of the first failing cases alone.
        mutations: the cases in which the kernel changed its arguments.
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
    partial: tuple[tuple[str, int], ...] = ()
    mutations: int = 0

    @property
    def answered(self) -> int:
        """The cases that the kernel answered: those that were compared."""
        return self.cases - self.declined

    @property
    def accepted(self) -> bool:
        """Whether some case was answered, and none wrongly."""
        return self.different == 0 and self.answered > 0


@dataclass(frozen=True)
class _Failure:
    """A case that the kernel fails: by its bytes (verdict), by an exception, or by changing its arguments."""

    case: Case
    verdict: Verdict | None
    text: str
    mutated: bool = False
    answer: Any = None  # without a verdict: bytes whose sizes fit no layout


def assert_kernel(
    fn: Callable[..., Any],
    dialect: _tables.DialectLike = "nvfp4.te",
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
            NotImplementedError for a shape that it does not take: the case is declined. x and
            random are copies of its own in every call; a kernel that changes them fails.
        dialect, level, seed, families: as fp4lab.cases.
        dtype: "float32", or "bfloat16" (also "f32", "bf16"): only cases of bfloat16 values, given as
            ml_dtypes.bfloat16 (uint16 bits without that package).
        rht, sign_mask: the kernel transforms its input first (16 or 32); only cases of bfloat16
            values and whole groups are used.
        rounding, random_bits: as quantize; "stochastic" hands random fields to fn.
        columnwise, scale_layout, nibbles, expanded_scales, tensor_scale_is: the layout of the
            answers, as fp4lab.verify takes them.
        allow_declined: whether declined cases are fine; a kernel must answer one at least.
        explained: the failing cases that are searched for causes; what explains all of these is
            tried on every other failing case. 0: no search, and the message names no cause.
        shrink: whether to shrink the failure.

    Returns:
        The report, if the kernel is right. A message names a cause only if it explains every failing
        case; of others it says how many they explain.

    Raises:
        AssertionError: for a wrong kernel; its attribute fp4lab_report is the KernelReport.
        TypeError, fp4lab.Error: for arguments that do not fit.
    """
    callable_(fn, "fn(x), which returns (codes, scales, tensor_scale)")
    dtype = _DTYPES[one_of(dtype, "dtype", _DTYPES)]
    one_of(level, "level", LEVELS)
    explained = integer(explained, "explained", 0, 2**31 - 1)
    allow_declined, shrink = flag(allow_declined, "allow_declined"), flag(shrink, "shrink")
    d = _tables.dialect(dialect)
    label = rounding_label(rounding, random_bits)
    takes_random = d.takes_random_bits if not label else label.startswith("stochastic")
    size, signs = hadamard(rht, sign_mask, KERNEL_TRANSFORMS)
    one_of(nibbles, "nibbles", ("auto", *NIBBLES))
    one_of(tensor_scale_is, "tensor_scale_is", TENSOR_SCALES)
    if scale_layout != "auto":
        scale_order(scale_layout)
    trial = Trial(fn, d, dtype, takes_random, {
        "rht": size, "sign_mask": signs, "rounding": rounding, "random_bits": random_bits,
        "columnwise": flag(columnwise, "columnwise"), "scale_layout": scale_layout, "nibbles": nibbles,
        "expanded_scales": flag(expanded_scales, "expanded_scales"), "tensor_scale_is": tensor_scale_is,
    })  # fmt: skip
    all_cases = list(cases(d, level, seed=seed, families=families, bf16_only=dtype == "bfloat16",
                           rounding=rounding, random_bits=random_bits))  # fmt: skip
    used: list[Case] = []
    for c in all_cases:
        along = c.x.shape[0] if columnwise else c.x.shape[1]
        if not size or (c.is_bf16 and along % size == 0):
            used.append(c)
    if not used:
        raise _core.Error("families: no case of these is left to test")
    failures, declined = _failures(trial, used)
    if declined == len(used):
        raise AssertionError(f"the kernel declines all {declined} cases: nothing is compared")
    counts = (len(used), len(failures), declined, len(all_cases) - len(used))
    if not failures and (allow_declined or not declined):
        answered = len(used) - declined
        text = f"{d.name}: {answered} of {answered} cases as the dialect has them{_declined(declined, len(used))}"
        return KernelReport(d.name, level, *counts, (), text)
    if not failures:
        raise AssertionError(
            f"the kernel declines {declined} of {len(used)} cases: allow_declined=True accepts that"
        )
    report = _report(trial, level, used, failures, counts, explained, shrink)
    error = AssertionError(report.text)
    error.fp4lab_report = report  # type: ignore[attr-defined]
    raise error


def _declined(declined: int, used: int) -> str:
    return f"; the kernel declined {declined} of {used}" if declined else ""


def _failures(trial: Trial, used: list[Case]) -> tuple[list[_Failure], int]:
    """The cases that the kernel fails, and the number of those that it declines."""
    declined, failures = 0, []
    for c in used:
        try:
            verdict = trial.verdict(c.x, _turned(c.random, trial.options["columnwise"], c.x))
        except NotImplementedError:
            declined += 1
        except NotJudged as error:
            raise AssertionError(f"case {c.name}: {error}") from None
        except Mutated as error:
            failures.append(_Failure(c, None, str(error), mutated=True))
        except WrongSizes as error:
            failures.append(_Failure(c, None, str(error), answer=error.answer))
        except Exception as error:
            failures.append(_Failure(c, None, f"{type(error).__name__}: {error}"))
        else:
            if not verdict:
                failures.append(_Failure(c, verdict, verdict.headline))
    return failures, declined


def _turned(random: np.ndarray | None, columnwise: bool, x: np.ndarray) -> np.ndarray | None:
    if random is None or not columnwise:
        return random
    return np.ascontiguousarray(random.reshape(x.shape[1], x.shape[0]))


def _report(trial: Trial, level: str, used: list[Case], failures: list[_Failure],
            counts: tuple[int, int, int, int], explained: int, shrink: bool) -> KernelReport:  # fmt: skip
    d, declined = trial.dialect, counts[2]
    lines = [f"{d.name}: {len(failures)} of {len(used) - declined} cases differ{_declined(declined, len(used))}"]
    lines += _families(used, failures)
    mutated = [f for f in failures if f.mutated]
    if mutated:
        first = mutated[0]
        lines.append(f"  case {first.case.name}: {first.text} (in {len(mutated)} of {len(used) - declined} cases)")
    broken = [f for f in failures if f.verdict is None and not f.mutated]
    for f in broken[:3]:
        lines.append(f"  case {f.case.name}, {f.case.x.shape[0]}x{f.case.x.shape[1]}: {f.text}")
    judged = _spread(sorted((f for f in failures if f.verdict is not None), key=_weight))
    others = [f.answer for f in failures if f.verdict is None]
    found = search([f.verdict for f in judged], others, explained)  # type: ignore[misc]
    if judged:
        lines += _cause_lines(found, len(failures), explained)
        lines += _shown(judged[found.shown], found.report)
        lines += _smallest(trial, min(judged, key=lambda f: f.case.x.size), shrink)
    elif mutated:
        c = min((f.case for f in mutated), key=lambda c: c.x.size)
        random = _turned(c.random, trial.options["columnwise"], c.x)
        lines += ["to reproduce:", "", mutation_reproducer(trial, c.x, random)]
    return KernelReport(d.name, level, *counts, found.causes, "\n".join(lines), found.partial, len(mutated))


def _families(used: list[Case], failures: list[_Failure]) -> list[str]:
    """A line for each family with a failing case."""
    of_family: dict[str, list[int]] = {}
    for c in used:
        of_family.setdefault(c.family, [0, 0])[1] += 1
    for f in failures:
        of_family[f.case.family][0] += 1
    lines = []
    for c in {f.case.family: f.case for f in failures}.values():
        bad, all_ = of_family[c.family]
        lines.append(f"  {c.family}: {bad} of {all_} differ; it tests {c.cause}")
    return lines


def _weight(f: _Failure) -> tuple[int, int]:
    v = f.verdict
    assert v is not None
    return -(v.codes_different + 16 * v.scales_different), f.case.x.size


def _cause_lines(found: Search, failing: int, explained: int) -> list[str]:
    """What explains the failing cases: a cause only if it explains every one of them."""
    if not explained:
        return ["causes were not searched for (explained=0)"]
    names = list(found.causes)
    shown = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
    if names:
        return [f"cause: {shown} (explains all {failing} failing cases)"]
    lines = [f"{name} explains {count} of {failing} failing cases; it is not the cause of all"
             for name, count in found.partial[:3]]  # fmt: skip
    return [f"cause: none of the table explains all {failing} failing cases", *lines, _IDENTIFY]


def _shown(f: _Failure, report: Report | None) -> list[str]:
    assert f.verdict is not None
    lines = ["", f"case {f.case.name}, {f.case.x.shape[0]}x{f.case.x.shape[1]}:", f.verdict.text.rstrip()]
    return lines if report is None else [*lines, report.text.rstrip()]


def _smallest(trial: Trial, f: _Failure, shrink: bool) -> list[str]:
    """The smallest input that fails, with lines to paste."""
    x, random, verdict = f.case.x, f.case.random, f.verdict
    assert verdict is not None
    if shrink and (random is None or not trial.options["columnwise"]):
        x, random, verdict = shrunk(trial, x, random, verdict)
    return ["", f"smallest input found, {x.shape[0]}x{x.shape[1]} (of case {f.case.name}): "
            f"{verdict.headline}", "to reproduce:", "", reproducer(trial, x, random)]  # fmt: skip


def _spread(judged: list[_Failure]) -> list[_Failure]:
    """The same cases, one of each family before the second of any."""
    seen: dict[str, int] = {}
    keyed = []
    for item in judged:
        turn = seen[item.case.family] = seen.get(item.case.family, -1) + 1
        keyed.append((turn, item))
    return [item for _, item in sorted(keyed, key=lambda k: k[0])]


def assert_stochastic(
    fn: Callable[[Any, int], Any],
    x: Any,
    dialect: _tables.DialectLike = "nvfp4.te",
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
        fn: called as fn(x, i) for i in range(samples); each call must draw bits of its own. x is a
            copy in every call; a kernel that changes it fails.
        x: one input, as quantize takes it.
        samples: the number of runs, 1 to 2^20.
        rounding, random_bits: the distribution; random_bits are those that the kernel takes.
        error_rate: the largest probability with which a right kernel is refused.
        amax, scale_layout, nibbles: as fp4lab.verify.

    Returns:
        The verdict in lines.

    Raises:
        AssertionError: if the codes are not distributed as the rounding says, or a scale differs.
    """
    callable_(fn, "fn(x, i), which returns (codes, scales, tensor_scale)")
    samples, error_rate = integer(samples, "samples", 1, 2**20), probability(error_rate, "error_rate")
    d = _tables.dialect(dialect)
    if d.stochastic and rounding == "stochastic":
        rounding = "nearest"  # the dialect's own
    runs, kernel, array = [], None, matrix(x)
    numbers = magnitudes(amax)
    for i in range(samples):
        codes, scales, number = _run(fn, x, i)
        a = answer_of(array, codes, scales, d.name, tensor_scale=number, amax=amax if i == 0 else None,
                      rounding=rounding, random_bits=random_bits, scale_layout=scale_layout,
                      nibbles=nibbles)  # fmt: skip
        kernel = a.kernel
        runs.append(a.parts)
    accepted, _, text, _ = _core.verify_runs(kernel, array, runs, numbers, error_rate)
    if not accepted:
        raise AssertionError(text)
    return text


def _run(fn: Callable[[Any, int], Any], x: Any, i: int) -> tuple[Any, Any, Any]:
    """(codes, scales, tensor scale) of run i on a copy of x. AssertionError for a run that cannot be judged."""
    try:
        return parts_of(Watched(x=x).call(lambda given: fn(given, i), "x"))
    except NotImplementedError:
        raise AssertionError(f"run {i}: the kernel declines the input: nothing is compared") from None
    except (Mutated, NotJudged) as error:
        raise AssertionError(f"run {i}: {error}") from None


_ieee.guard(globals())
