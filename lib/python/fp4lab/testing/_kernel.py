"""Directed cases for a kernel, and the report on those that it fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import _core, _ieee, _tables
from .._arrays import amaxes, matrix
from .._judge import LEVELS, Case, Report, Verdict, _answer, cases
from .._quantize import TE_SIGN_MASK, hadamard_size, rounding_label
from ._trial import NotJudged, Trial, reproducer, shrunk


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
    trial = Trial(fn, d, dtype, takes_random, {
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
        except NotJudged as error:
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


def _report(trial: Trial, level: str, used: list[Case],
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
        x, random, its_verdict = shrunk(trial, x, random, its_verdict)
    lines += ["", f"smallest input found, {x.shape[0]}x{x.shape[1]} (of case {smallest.name}): "
              f"{its_verdict.headline}", "to reproduce:", ""]  # fmt: skip
    lines.append(reproducer(trial, x, random))
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
    d = _tables.dialect(dialect)
    if d.stochastic:
        rounding = "nearest"  # the dialect's own
    runs, kernel, array = [], None, matrix(x)
    for i in range(samples):
        run = Trial(lambda _, i=i: fn(x, i), d, "float32", False, {})
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


_ieee.guard(globals())
