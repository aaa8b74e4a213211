"""The causes of a kernel's failures over all cases that it fails."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from .._judge import Report, Verdict

# How many times `explained` cases are looked at where the first ones have no cause.
_MORE = 6


@dataclass
class Search:
    """What the search found.

    Attributes:
        causes: those that explain every case.
        partial: (cause, cases that it explains) of the others, the best first.
        shown: the case to show: of those with a report, one that is as clear as any.
        reports: the reports by case.
    """

    causes: tuple[str, ...] = ()
    partial: tuple[tuple[str, int], ...] = ()
    shown: int = 0
    reports: dict[int, Report] = field(default_factory=dict)


def search(verdicts: Sequence[Verdict], explained: int) -> Search:
    """Looks for causes that explain every one of these verdicts.

    Single causes are sought for the first `explained` verdicts, and for more while none has any;
    where single causes are absent, pairs for the first verdict. What explains all that were looked
    at is then tried on all others, and so are the counts of what does not.
    """
    found = Search()
    if not explained or not verdicts:
        return found
    for i, verdict in enumerate(verdicts):
        if i >= explained and (_causes_of(found) or i >= _MORE * explained):
            break
        found.reports[i] = verdict.explain(pairs=False)
    pairs = not _causes_of(found)
    if pairs:
        found.reports = {0: verdicts[0].explain()}
        if not _causes_of(found):
            return found
    for i, verdict in enumerate(verdicts):
        if i not in found.reports:
            found.reports[i] = verdict.explain(pairs=pairs)
    counts: dict[str, int] = {}
    for i in range(len(verdicts)):
        for cause in found.reports[i].causes:
            counts[cause] = counts.get(cause, 0) + 1
    ranked = sorted(counts.items(), key=lambda item: -item[1])
    found.causes = tuple(name for name, count in ranked if count == len(verdicts))
    found.partial = tuple(item for item in ranked if item[1] < len(verdicts))
    found.shown = _clearest(found.reports, (found.causes or tuple(name for name, _ in ranked))[:1])
    return found


def _causes_of(found: Search) -> bool:
    return any(report.causes for report in found.reports.values())


def _clearest(reports: dict[int, Report], best: tuple[str, ...]) -> int:
    """The first case whose bytes force the best cause, else the first that it explains."""
    having = [i for i in sorted(reports) if set(best) <= set(reports[i].causes)]
    forced = [i for i in having if reports[i].verdict == "cause"]
    return (forced or having or [0])[0]
