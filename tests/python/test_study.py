"""Studies: tables of committed results, and runs by the program."""

import json
import os
import pickle
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import pytest
from fp4lab import study

RESULTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../studies/results")


def test_results_as_tables():
    pytest.importorskip("pandas", reason="pandas is absent")
    results = study.load(os.path.join(RESULTS, "token-gap-laptop"))
    arms, seeds = len(results.data["study"]["arms"]), len(results.data["study"]["seeds"])
    budgets = len(results.data["study"]["budgets"])
    assert len(results.runs) == arms * seeds
    assert len(results.losses) == arms * seeds * budgets
    for _, gap in results.gaps.iterrows():
        at = results.losses[results.losses.tokens == gap.tokens]
        column = "validation_loss_high" if gap.precision == "high" else "validation_loss"
        mean = at.groupby("arm")[column].mean()
        assert gap["mean"] == pytest.approx(mean[gap.arm] - mean[gap.reference], abs=1e-9)
    assert {"interval_t_low", "interval_t_high"} <= set(results.gaps.columns)
    assert len(results.token_ratios) and len(results.criteria) and len(results.curves)


def test_other_files_are_refused(tmp_path):
    pytest.importorskip("pandas", reason="pandas is absent")
    (tmp_path / "results.json").write_text("{}")
    with pytest.raises(ValueError, match="no results.json of a study"):
        study.load(tmp_path)
    (tmp_path / "results.json").write_text("{")
    with pytest.raises(ValueError, match="is no JSON"):
        study.load(tmp_path)


def test_pandas_is_asked_for_by_name(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"pip install 'fp4lab\[study\]'"):
        study.load(RESULTS)


def test_a_missing_program_is_one_clear_error(monkeypatch):
    monkeypatch.delenv("FP4LAB_PROGRAM", raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("fp4lab._program._PATH", "/nowhere/fp4lab")  # a package that carries none
    with pytest.raises(FileNotFoundError, match="FP4LAB_PROGRAM"):
        study.program()
    monkeypatch.setenv("FP4LAB_PROGRAM", "/nowhere/fp4lab")
    with pytest.raises(FileNotFoundError, match="/nowhere/fp4lab"):
        study.run("study.json", "out")


def test_the_program_runs_and_its_errors_are_raised(tmp_path, monkeypatch):
    fake = tmp_path / "fp4lab"
    fake.write_text('#!/bin/sh\necho "$@" > "$5/called"\n[ "$3" != bad.json ] || { echo "error: bad.json: is bad" >&2; exit 1; }\n')
    fake.chmod(0o755)
    monkeypatch.setenv("FP4LAB_PROGRAM", str(fake))
    assert study.run("good.json", tmp_path, "--jobs", "1") == tmp_path
    assert (tmp_path / "called").read_text() == f"study run good.json --out-dir {tmp_path} --jobs 1\n"
    with pytest.raises(RuntimeError, match="exit code 1: error: bad.json: is bad"):
        study.run("bad.json", tmp_path)


TINY = {
    "name": "tiny",
    "model": {"layers": 1, "d_model": 64, "heads": 2, "ffn": 64, "sequence": 32},
    "schedule": {"learning_rate": 0.01, "warmup_steps": 3},
    "data": {"source": "synthetic", "synthetic_bytes": 20000},
    "batch": 4,
    "evaluation": {"tokens": 512, "chunk_tokens": 128},
    "arms": {
        "bf16": {"recipe": "bf16"},
        "nvfp4": {"recipe": "te_nvfp4"},
        "twin": {"recipe": "te_nvfp4"},
    },
    "seeds": [1, 2],
    "budgets": [1280, 2560],
}


def timeless(folder):
    results = json.loads((folder / "results.json").read_text())
    results.pop("sha256")
    for one in results["runs"]:
        one.pop("seconds"), one.pop("tokens_per_second")
    return results


@pytest.fixture
def tiny(tmp_path):
    if "FP4LAB_PROGRAM" not in os.environ:
        pytest.skip("FP4LAB_PROGRAM is absent")
    file = tmp_path / "tiny.json"
    file.write_text(json.dumps(TINY))
    return file


class Counting:
    """An executor that counts its tasks; the first `fails` of them end as with a killed worker."""

    def __init__(self, executor, fails=0):
        self.executor, self.fails, self.tasks = executor, fails, 0

    def submit(self, function, *arguments):
        self.tasks += 1
        if self.tasks <= self.fails:
            return self.executor.submit(os.strerror, "no number")  # raises TypeError
        # What another machine would get.
        function, arguments = pickle.loads(pickle.dumps((function, arguments)))
        return self.executor.submit(function, *arguments)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("pool", [ThreadPoolExecutor, ProcessPoolExecutor])
def test_the_runs_of_a_study_on_an_executor(tiny, tmp_path, pool, shared):
    study.run(tiny, tmp_path / "whole")
    with pool(2) as executor:
        counting = Counting(executor, fails=1)
        out = study.run(tiny, tmp_path / "out", executor=counting, shared=shared)
        assert timeless(out) == timeless(tmp_path / "whole")
        assert counting.tasks == 5  # four runs, as twins are one, and one of them twice
        study.run(tiny, out, executor=counting, shared=shared)
        assert counting.tasks == 5
        (next((out / "runs").iterdir()) / "result.json").write_text("{")
        study.run(tiny, out, executor=counting, shared=shared)
        assert counting.tasks == 6
        assert timeless(out) == timeless(tmp_path / "whole")


def test_a_run_that_fails_again_and_again_is_one_clear_error(tiny, tmp_path):
    with ThreadPoolExecutor(1) as executor:
        counting = Counting(executor, fails=1000)
        with pytest.raises(RuntimeError, match=r"4 of 6 runs failed, first bf16:1: TypeError"):
            study.run(tiny, tmp_path / "out", executor=counting, attempts=2)
        assert counting.tasks == 8
        with pytest.raises(ValueError, match="--quick: is not for runs on an executor"):
            study.run(tiny, tmp_path / "out", "--quick", executor=executor)


def test_a_pool_that_lost_a_worker_keeps_what_is_complete(tiny, tmp_path):
    with ProcessPoolExecutor(1) as executor:
        executor.submit(os.getpid).result()
        dying = executor.submit(os._exit, 1)
        assert dying.exception() is not None
        with pytest.raises(RuntimeError, match="BrokenProcessPool"):
            study.run(tiny, tmp_path / "out", executor=executor)
    with ProcessPoolExecutor(1) as executor:
        study.run(tiny, tmp_path / "out", executor=executor)
    assert len(timeless(tmp_path / "out")["runs"]) == 6
