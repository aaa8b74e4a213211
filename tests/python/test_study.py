"""Studies: tables of committed results, and runs by the program."""

import os
import sys

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
