"""The causes of a kernel's failures over all cases that it fails."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .. import _arrays, _core
from .._judge import Report, Verdict, explanation_of

# How many times `explained` cases are looked at where the first ones have no clear cause.
_MORE = 6
# The causes that are tried on the cases whose reports do not name them.
_TRIED = 8


@dataclass
class Search:
    """What the search found.

    Attributes:
        causes: those that explain every case.
        partial: (cause, cases that it explains) of the others, the best first.
        shown: the case to show: of those with a report, one that is as clear as any.
        reports: the reports by case, of the cases that were searched, without directed cases that tell
            causes apart.
        report: the whole report of `shown`.
    """

    causes: tuple[str, ...] = ()
    partial: tuple[tuple[str, int], ...] = ()
    shown: int = 0
    reports: dict[int, Report] = field(default_factory=dict)
    report: Report | None = None


def search(verdicts: Sequence[Verdict], others: Sequence[Any], explained: int) -> Search:
    """Looks for causes that explain every failing case.

    Single causes are sought for the first `explained` verdicts, and for more while none is clear. They are
    tried on all others. Where none explains all, single causes are sought for every verdict. Where still
    none does, pairs are sought for the first verdict that the best one leaves, and tried on all.

    Args:
        verdicts: of the answers that were compared.
        others: the answers of sizes that fit no layout, and None for cases without an answer.
        explained: the first verdicts that are searched; 0: no search.
    """
    found = Search()
    if not explained or not verdicts:
        return found
    answers = [v._answer for v in verdicts]
    for i in range(min(len(verdicts), _MORE * explained)):
        if i >= explained and any(report.verdict == "cause" for report in found.reports.values()):
            break
        _explain(found, i, verdicts[i])
    if any(report.causes for report in found.reports.values()):
        _rank(found, answers, others)
        if not found.causes and len(found.reports) < len(verdicts):
            for i in range(len(found.reports), len(verdicts)):
                _explain(found, i, verdicts[i])
            _rank(found, answers, others)
    if not found.causes:
        _search_pairs(found, verdicts, [*answers, *others])
    if found.report is None:
        found.report = verdicts[found.shown].explain(pairs=False)
    return found


def _explain(found: Search, i: int, verdict: Verdict) -> None:
    found.reports[i] = explanation_of(verdict._answer, pairs=False, deciding_case=False)


def _rank(found: Search, answers: Sequence[Any], others: Sequence[Any]) -> None:
    """Counts the cases that each cause explains: those whose report names it, and of the most frequent causes
    also those in which the library's own kernel writes the same bytes with it.
    """
    counts: dict[str, int] = {}
    facts_of: dict[str, dict[str, Any]] = {}
    for report in found.reports.values():
        for facts in report.facts.get("causes", ()):
            facts_of.setdefault(facts["name"], facts)
            counts[facts["name"]] = counts.get(facts["name"], 0) + 1
    for name in sorted(counts, key=lambda name: -counts[name])[:_TRIED]:
        unnamed = [a for i, a in enumerate(answers) if i not in found.reports or name not in found.reports[i].causes]
        counts[name] += sum(_gives(a, facts_of[name]) for a in [*unnamed, *others])
    ranked = sorted(counts.items(), key=lambda item: -item[1])
    total = len(answers) + len(others)
    found.causes = tuple(name for name, count in ranked if count == total)
    found.partial = tuple(item for item in ranked if item[1] < total)
    found.shown = _clearest(found.reports, ranked[0][0])


def _search_pairs(found: Search, verdicts: Sequence[Verdict], answers: Sequence[Any]) -> None:
    """Pairs of causes for a verdict that the best single one leaves; those that explain all are the causes."""
    best = found.partial[0][0] if found.partial else None
    at = next((i for i in range(len(verdicts)) if i not in found.reports or best not in found.reports[i].causes), 0)
    report = verdicts[at].explain()
    counts = {facts["name"]: sum(_gives(a, facts) for a in answers) for facts in report.facts.get("causes", ())}
    ranked = sorted({**dict(found.partial), **counts}.items(), key=lambda item: -item[1])
    found.causes = tuple(name for name, count in counts.items() if count == len(answers))
    found.partial = tuple(item for item in ranked if 0 < item[1] < len(answers))
    if found.causes or not best:
        found.report, found.shown = report, at


def _gives(answer: Any, cause: dict[str, Any]) -> bool:
    """Whether the library's kernel with the deviations and the dialect of a cause writes an answer's bytes."""
    if answer is None:
        return False
    dialect, rounding, layout, *transform = answer.kernel
    kernel = (cause["dialect"] or dialect, rounding, layout, *transform)
    x = np.ascontiguousarray(answer.x.T) if answer.columnwise else answer.x
    try:
        codes, scales, number = _core.run_wrong_kernel(kernel, x, cause["deviations"], answer.amax, answer.random)
    except ValueError:  # it does not take this input
        return False
    theirs_codes, theirs_scales, theirs_number = answer.parts
    bits = [np.asarray(n, np.float32).view(np.uint32).tolist() for n in (number, theirs_number)]
    return (np.array_equal(codes.reshape(-1), theirs_codes) and np.array_equal(_arrays.scales(scales, "scales")[0], theirs_scales)
            and (not theirs_number or bits[0] == bits[1]))  # fmt: skip


def _clearest(reports: dict[int, Report], best: str) -> int:
    """The first case whose bytes force the best cause, else the first that it explains."""
    having = [i for i in sorted(reports) if best in reports[i].causes]
    forced = [i for i in having if reports[i].verdict == "cause"]
    return (forced or having)[0]
