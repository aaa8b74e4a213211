"""Studies: results as pandas DataFrames, and runs by the program fp4lab.

pandas is needed by load alone.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import _ieee

if TYPE_CHECKING:
    import pandas

_SCHEMA = "fp4lab.study.results/1"


@dataclass(frozen=True)
class Results:
    """The results of a study as tables; losses in nats a token.

    Attributes:
        name: of the study.
        losses: a row for each arm, seed and budget: the losses at the end of each branch.
        curves: a row for each arm, seed and evaluation during the run.
        gaps: a row for each arm, reference and budget: mean difference of losses, intervals.
        token_ratios: a row for each ratio of tokens at equal loss.
        criteria: a row for each registered claim, with its status.
        runs: a row for each arm and seed: status, seconds, tokens_per_second.
        data: results.json as it is.
    """

    name: str
    losses: pandas.DataFrame = field(repr=False)
    curves: pandas.DataFrame = field(repr=False)
    gaps: pandas.DataFrame = field(repr=False)
    token_ratios: pandas.DataFrame = field(repr=False)
    criteria: pandas.DataFrame = field(repr=False)
    runs: pandas.DataFrame = field(repr=False)
    data: dict[str, Any] = field(repr=False)


def _pandas() -> Any:
    try:
        import pandas
    except ImportError as error:
        raise ImportError("fp4lab.study.load needs pandas: pip install 'fp4lab[study]'") from error
    return pandas


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """A row with intervals as two columns, _low and _high."""
    flat: dict[str, Any] = {}
    for key, value in row.items():
        if key.startswith("interval") or key.endswith("_interval_t"):
            low, high = value if isinstance(value, list) else (None, None)
            flat[key + "_low"], flat[key + "_high"] = low, high
        else:
            flat[key] = value
    return flat


def load(path: str | os.PathLike[str]) -> Results:
    """The results of a study.

    Args:
        path: a results.json, or the folder with one.

    Raises:
        ImportError: without pandas.
        ValueError: for a file that is no results.json.
    """
    pandas = _pandas()
    place = Path(path)
    if place.is_dir():
        place = place / "results.json"
    try:
        data = json.loads(place.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"{place}: is no JSON: {error}") from error
    if not isinstance(data, dict) or data.get("schema") != _SCHEMA:
        raise ValueError(f"{place}: is no results.json of a study (schema {_SCHEMA})")
    losses, curves, runs = [], [], []
    for run_ in data["runs"]:
        key = {"arm": run_["arm"], "seed": run_["seed"]}
        losses += [{**key, **point} for point in run_.get("points", ())]
        curves += [{**key, **point} for point in run_.get("curve", ()) if isinstance(point, dict)]
        runs.append({**key, **{k: run_.get(k) for k in ("status", "diverged_at", "seconds",
                                                        "tokens_per_second")}})  # fmt: skip
    analysis = data.get("analysis", {})
    table = lambda name: pandas.DataFrame([_flat(r) for r in analysis.get(name, ())])  # noqa: E731
    return Results(
        name=data["name"],
        losses=pandas.DataFrame(losses),
        curves=pandas.DataFrame(curves),
        gaps=table("gaps"),
        token_ratios=table("token_ratios"),
        criteria=table("criteria"),
        runs=pandas.DataFrame(runs),
        data=data,
    )


def program() -> str:
    """The path of the program fp4lab: FP4LAB_PROGRAM, or the first one on the PATH.

    Raises:
        FileNotFoundError: if there is none, with the remedy.
    """
    named = os.environ.get("FP4LAB_PROGRAM")
    if named:
        if not os.access(named, os.X_OK):
            raise FileNotFoundError(f"FP4LAB_PROGRAM={named}: is no program")
        return named
    found = shutil.which("fp4lab")
    if found is None:
        raise FileNotFoundError(
            "the program fp4lab is not on the PATH: build it (tools/run) and set FP4LAB_PROGRAM to "
            "build/fp4lab"
        )
    return found


def run(
    file: str | os.PathLike[str], out_dir: str | os.PathLike[str], *arguments: str
) -> Path:
    """Trains the runs of a study by the program fp4lab; an interrupted study goes on.

    Args:
        file: the study's JSON.
        out_dir: the folder of its results.
        *arguments: further options of `fp4lab study run`.

    Returns:
        The folder, for load.

    Raises:
        FileNotFoundError: if the program is not found.
        RuntimeError: if it fails, with its last line.
    """
    command = [program(), "study", "run", os.fspath(file), "--out-dir", os.fspath(out_dir)]
    result = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        lines = (result.stderr or result.stdout).strip().splitlines() or ["no output"]
        raise RuntimeError(f"{' '.join(command)}: exit code {result.returncode}: {lines[-1]}")
    return Path(out_dir)


_ieee.guard(globals())
