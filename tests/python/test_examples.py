"""The examples in Python files beside the notebooks, but for those of PyTorch and JAX."""

import os
import runpy
import subprocess
import sys

import pytest

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../notebooks")


def test_my_kernel(tmp_path):
    """As its first lines say: by pytest, and as a program."""
    example = os.path.join(FOLDER, "test_my_kernel.py")
    for command in (["-m", "pytest", "-q", "-p", "no:cacheprovider", example], [example]):
        done = subprocess.run([sys.executable, *command], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    assert "cause: ties-toward-zero (explains all" in done.stdout
    assert done.stdout.endswith("83 of 83 cases as the dialect has them; the kernel declined 11 of 94\n")


def test_study_loaded(tmp_path, monkeypatch, capsys):
    pytest.importorskip("pandas", reason="pandas is absent")
    matplotlib = pytest.importorskip("matplotlib", reason="matplotlib is absent")
    matplotlib.use("agg")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["study_loaded.py"])
    example = runpy.run_path(os.path.join(FOLDER, "study_loaded.py"), run_name="__main__")
    printed = capsys.readouterr().out
    assert printed.startswith("token-gap-laptop\n") and "failed: gap of fp8" in printed
    table = example["table"]
    # The rows of the table of studies/results/README.md, at 4.10 million tokens.
    assert [round(v, 4) for v in table["mean"][4096000]] == [0.0142, 0.0526, 0.0887]
    assert list(table.index) == ["fp8", "nvfp4", "mxfp4"] and round(table["half"][4096000]["fp8"], 4) == 0.0083
    (axes,) = example["gap_figure"](table).axes
    assert [text.get_text() for text in axes.get_legend().get_texts()] == list(table.index)
    assert (tmp_path / "study_loaded.png").stat().st_size > 10_000
    matplotlib.pyplot.close("all")
