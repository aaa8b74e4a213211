"""Where the rows of `observe` go: files, TensorBoard, wandb, or a function of one's own."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from .. import _measure

Row: TypeAlias = "dict[str, Any]"
Writer: TypeAlias = Callable[[Sequence[Row]], None]

# The keys of every row before its diagnostics, and behind them.
HEAD = ("step", "name", "format", "rows", "columns")
TAIL = ("elements", "not_finite")


def _numbers() -> list[str]:
    return [d.key for d in _measure.diagnostics()]


def _append(path: str, text: str) -> None:
    with open(path, "a", encoding="utf-8") as file:
        file.write(text)


class JsonLines:
    """Appends a line for each row, as `fp4lab train` writes diagnostics.jsonl: under the names of
    training logs."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)

    def __call__(self, rows: Sequence[Row]) -> None:
        names = {d.key: d.log_key for d in _measure.diagnostics()}
        lines = [json.dumps({names.get(k, k): v for k, v in row.items()}) for row in rows]
        _append(self.path, "".join(line + "\n" for line in lines))


class Csv:
    """Appends a line for each row, below a head of column names where the file is new."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)

    def __call__(self, rows: Sequence[Row]) -> None:
        text = io.StringIO()
        table = csv.DictWriter(text, [*HEAD, *_numbers(), *TAIL], lineterminator="\n")
        if not os.path.exists(self.path) or not os.path.getsize(self.path):
            table.writeheader()
        table.writerows(rows)
        _append(self.path, text.getvalue())


def _scalars(row: Row) -> dict[str, float]:
    """{"sqnr_db/blocks.0.mlp.up.fprop.input": number}: a chart for each diagnostic."""
    return {f"{key}/{row['name']}": row[key] for key in _numbers()}


class TensorBoard:
    """Adds a scalar for each number to a SummaryWriter, or to what has its add_scalar."""

    def __init__(self, writer: Any) -> None:
        self.writer = writer

    def __call__(self, rows: Sequence[Row]) -> None:
        for row in rows:
            for tag, value in _scalars(row).items():
                self.writer.add_scalar(tag, value, row["step"])


class Wandb:
    """Logs the numbers of a step to a run of wandb, or to what has its log."""

    def __init__(self, run: Any) -> None:
        self.run = run

    def __call__(self, rows: Sequence[Row]) -> None:
        steps: dict[int, dict[str, float]] = {}
        for row in rows:
            steps.setdefault(row["step"], {}).update(_scalars(row))
        for step, numbers in steps.items():
            self.run.log(numbers, step=step)


_BY_SUFFIX = {".jsonl": JsonLines, ".csv": Csv}
_BY_METHOD = {"add_scalar": TensorBoard, "log": Wandb}


def writer_of(target: Any) -> Writer:
    """The writer of a path, a SummaryWriter, a run of wandb or a function of rows."""
    if isinstance(target, (str, os.PathLike)):
        suffix = os.path.splitext(os.fspath(target))[1]
        if suffix not in _BY_SUFFIX:
            raise ValueError(f"to: {os.fspath(target)} ends in none of: {', '.join(_BY_SUFFIX)}")
        return _BY_SUFFIX[suffix](target)
    for method, kind in _BY_METHOD.items():
        if callable(getattr(target, method, None)):
            return kind(target)
    if callable(target):
        return target
    raise TypeError(
        f"to: {type(target).__name__} is neither a path, nor has it add_scalar (TensorBoard) or log (wandb), nor is "
        "it a function of rows"
    )


def writers_of(to: Any) -> list[Writer]:
    """Those of one target, of several in a list, or of None."""
    if to is None:
        return []
    return [writer_of(t) for t in (to if isinstance(to, (list, tuple)) else [to])]
