"""The parity of training runs with a baseline's."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from typing import Any

from . import _core, _ieee


def _column(values: Any) -> list[Any]:
    """A column as a list that JSON can hold."""
    if hasattr(values, "tolist"):
        values = values.tolist()
    return [str(v) if isinstance(v, float) and not math.isfinite(v) else v for v in values]


def _run(run: Any) -> Any:
    """A path as text; a mapping of columns, or a DataFrame, as an object of lists."""
    if isinstance(run, (str, os.PathLike)):
        return os.fspath(run)
    columns = {str(name): run[name] for name in (run.columns if hasattr(run, "columns") else run)}
    return {n: _column(v) for n, v in columns.items() if not isinstance(v, (str, bytes))}


def _runs(runs: Any) -> list[Any]:
    is_one = isinstance(runs, (str, os.PathLike, Mapping)) or hasattr(runs, "columns")
    return [_run(r) for r in ([runs] if is_one else runs)]


def parity(
    runs: Any,
    baseline: Any,
    *,
    margin: float = 0.5,
    confidence: float = 0.95,
    last: float = 1 / 3,
    from_step: float | None = None,
    to_step: float | None = None,
    by: str = "steps",
    loss: str = "",
    paired: bool = False,
) -> dict[str, Any]:
    """Whether training runs are equivalent to a baseline's within a margin of the loss.

    The result is that of `fp4lab parity --json`: "status" ("equivalent", "different" or "not told
    apart"), "verdict" (a sentence), "gap", "power", "metrics", "spikes", "course", "next" and
    more; "text" is what the command prints.

    Args:
        runs: a log or several, one per run. A log is a path (CSV, JSON Lines of MaxText,
            Megatron-LM, torchtitan or `fp4lab train`, a TensorBoard event file or its folder,
            RESULTS#ARM of a study) or a mapping of columns, as a DataFrame: "step", "loss", ...
        baseline: the same of the baseline.
        margin: the largest gap that counts as none, in percent of the loss.
        confidence: of the tests and intervals.
        last: the share of the common steps that is compared, the last ones.
        from_step: compare from this step on, instead of `last`.
        to_step: compare up to this step, instead of `last`.
        by: compare at equal "steps" or "tokens".
        loss: the name of the loss in the logs, if it is another one.
        paired: whether run i of both sides has one seed.

    Raises:
        Error: for files that cannot be read, with file, line and remedy.

    >>> import fp4lab
    >>> run = {"step": list(range(90)), "loss": [3 + 1 / (1 + t) for t in range(90)]}
    >>> fp4lab.parity(run, run)["status"]
    'equivalent'
    """
    question = {
        "runs": _runs(runs),
        "baseline": _runs(baseline),
        "margin": float(margin),
        "confidence": float(confidence),
        "last": float(last),
        "by": by,
        "loss": loss,
        "paired": bool(paired),
    }
    for name, value in (("from", from_step), ("to", to_step)):
        if value is not None:
            question[name] = float(value)
    document, text = _core.parity(json.dumps(question))
    return {**json.loads(document), "text": text}


_ieee.guard(globals())
