"""Studies: results as pandas DataFrames, and runs by the program fp4lab.

pandas is needed by load alone.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import _ieee, _program

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
    """The path of the program fp4lab: FP4LAB_PROGRAM, the one that the package carries, or the first on the PATH.

    Raises:
        FileNotFoundError: if there is none, with the remedy.
    """
    named = os.environ.get("FP4LAB_PROGRAM")
    if named:
        if not os.access(named, os.X_OK):
            raise FileNotFoundError(f"FP4LAB_PROGRAM={named}: is no program")
        return named
    found = _program.carried() or shutil.which("fp4lab")
    if found is None:
        raise FileNotFoundError(
            "the program fp4lab is not on the PATH: build it (tools/run) and set FP4LAB_PROGRAM to "
            "build/fp4lab"
        )
    return found


def _call(command: list[str]) -> str:
    """The output of the program; RuntimeError with its last line where it fails."""
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        lines = (result.stderr or result.stdout).strip().splitlines() or ["no output"]
        raise RuntimeError(f"{' '.join(command)}: exit code {result.returncode}: {lines[-1]}")
    return result.stdout


def _train(program_: str | None, study: str, out_dir: str | None, only: str,
           arguments: tuple[str, ...]) -> dict[str, bytes]:  # fmt: skip
    """One run of a study, in a worker of an executor. Every argument and the result can be pickled.

    Args:
        program_: the program's path; None: program() of the worker.
        study: the text of the study's JSON.
        out_dir: the folder that workers share; None: a temporary one.
        only: ARM:SEED.
        arguments: further options of `fp4lab study run`.

    Returns:
        Without a shared folder, the results by their places in it.
    """
    with tempfile.TemporaryDirectory(prefix="fp4lab-study-") as folder:
        file = Path(folder) / "study.json"
        file.write_text(study, encoding="utf-8")
        out = Path(folder) / "out" if out_dir is None else Path(out_dir)
        _call([program_ or program(), "study", "run", str(file), "--out-dir", str(out),
               "--only", only, "--jobs", "1", *arguments])  # fmt: skip
        if out_dir is not None:
            return {}
        return {
            str(path.relative_to(out)): path.read_bytes()
            for path in [*out.glob("*.json"), *out.glob("runs/*/result.json")]
        }


def _complete(folder: Path, budgets: set[int]) -> bool:
    """Whether the run's result has every budget, or is of a run that diverged.

    Of what is wrongly taken for one, as a damaged file, `study collect` says that it is missing.
    """
    try:
        record = json.loads((folder / "result.json").read_bytes())["record"]
        return bool(record["diverged"]) or budgets <= {p["tokens"] for p in record["points"]}
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _write(path: Path, content: bytes) -> None:
    """Replaces a file as a whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.partial-{secrets.token_hex(8)}")
    try:
        partial.write_bytes(content)
        partial.replace(path)
    except OSError as error:  # of a full disk Python names no file
        raise OSError(error.errno, error.strerror, os.fspath(path)) from None
    finally:
        partial.unlink(missing_ok=True)


def run(
    file: str | os.PathLike[str],
    out_dir: str | os.PathLike[str],
    *arguments: str,
    executor: Any = None,
    shared: bool = True,
    attempts: int = 3,
    worker_program: str | None = None,
) -> Path:
    """Trains the runs of a study by the program fp4lab; an interrupted study goes on.

    With an executor, each run is a task of its own: `fp4lab study run --only` in the worker. Runs
    that are complete in out_dir are none.

    Args:
        file: the study's JSON.
        out_dir: the folder of its results.
        *arguments: further options of `fp4lab study run`.
        executor: any object whose submit(function, *arguments) returns one with result(), as
            executors of concurrent.futures, dask.distributed's client and submitit's executor are.
            None: one process here.
        shared: whether workers see out_dir at its absolute path. A run then goes on from its
            checkpoint. If not, results come as bytes, and a run whose worker ends starts again.
        attempts: tasks for one run, of which all but the last may fail.
        worker_program: the program's path in the workers. None: program() of each worker.

    Returns:
        The folder, for load.

    Raises:
        FileNotFoundError: if the program is not found.
        OSError: if out_dir cannot be written.
        RuntimeError: if it fails, with its last line; with an executor, if a run failed `attempts`
            times, or the executor takes no more tasks. Complete runs stay, and the same call goes
            on.
    """
    command = [program(), "study", "run", os.fspath(file), "--out-dir", os.fspath(out_dir)]
    if executor is None:
        _call([*command, *arguments])
        return Path(out_dir)
    out = Path(out_dir).absolute()
    selects = [a for a in arguments if a.split("=")[0] in ("--quick", "--seeds", "--device")]
    if selects:
        raise ValueError(
            f"{selects[0]}: is not for runs on an executor; name a file that has the study as it "
            "is to be run"
        )
    study = _call([program(), "study", "show", os.fspath(file)])
    runs = json.loads(_call([program(), "study", "runs", os.fspath(file), "--json"]))
    budgets = set(json.loads(study)["budgets"])
    names = {r["key"]: f"{r['arm']}:{r['seed']}" for r in reversed(runs)}  # the first of its key
    left = [n for key, n in names.items() if not _complete(out / "runs" / key, budgets)][::-1]
    _write(out / "study.json", study.encode())
    errors: dict[str, BaseException] = {}
    for _ in range(attempts):
        tasks: dict[str, Any] = {}
        for name in left:
            try:
                tasks[name] = executor.submit(
                    _train, worker_program, study, str(out) if shared else None, name, arguments
                )
            except Exception as error:  # noqa: BLE001 - a pool that lost a worker takes no more
                errors[name] = error
        for name, task in tasks.items():
            try:
                files = task.result()
            except Exception as error:  # noqa: BLE001 - of any executor: a worker that was killed
                errors[name] = error
                continue
            for place, content in files.items():
                if place == "registered.json" and (out / place).exists():
                    continue
                if place not in ("study.json", "results.json"):
                    _write(out / place, content)
            left.remove(name)
        if not left:
            break
    if left:
        name = left[0]
        raise RuntimeError(
            f"{len(left)} of {len(runs)} runs failed, first {name}: {errors[name]!r}; the others "
            f"are in {out}, and the same call goes on"
        ) from errors[name]
    _call([program(), "study", "collect", str(out)])
    return Path(out_dir)


_ieee.guard(globals())
