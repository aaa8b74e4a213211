"""The program that the package carries: fp4lab on the path, and python -m fp4lab."""

import os
import subprocess
import sys

import fp4lab
import pytest
from fp4lab import _program, study


@pytest.fixture(autouse=True)
def carried():
    if _program.carried() is None:
        pytest.skip("this wheel was built without the program")


def run(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, **options)


def installed():
    return os.path.join(os.path.dirname(sys.executable), "fp4lab")


@pytest.mark.parametrize("command", [[installed()], [sys.executable, "-m", "fp4lab"]])
def test_both_names_run_the_program(command, tmp_path):
    shown = run(*command, "--version")
    assert shown.returncode == 0 and shown.stdout.startswith(f"fp4lab {fp4lab.__version__}, commit ")
    mistaken = run(*command, "verfy")
    assert mistaken.returncode == 2
    assert mistaken.stderr == 'error: "verfy" is not known here; did you mean "verify"?\n'
    assert "Usage: fp4lab dialects" in run(*command, "dialects", "--help").stdout
    cases = run(*command, "cases", "--family", "signs", "--out-dir", "in", cwd=tmp_path)
    assert cases.stdout == "1 cases in in\n" and (tmp_path / "in/0000.x.npy").exists()


def test_streams_and_exit_codes_are_the_programs_own(tmp_path):
    pipe = " | ".join(f"'{installed()}' {words} --family element-ties" for words in
                      ("cases", "cases answer --deviation truncation", "verify"))  # fmt: skip
    pipe = pipe.replace("--deviation truncation --family element-ties", "--deviation truncation")
    judged = run("bash", "-c", pipe)
    assert judged.returncode == 1 and judged.stdout.startswith("nvfp4.te: ")


def test_studies_run_by_the_program_of_the_package(monkeypatch):
    monkeypatch.delenv("FP4LAB_PROGRAM", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    assert study.program() == _program.carried()


def test_a_package_without_the_program_says_so(monkeypatch):
    monkeypatch.setattr(_program, "_PATH", "/nowhere/fp4lab")
    assert _program.carried() is None
    with pytest.raises(SystemExit, match="built without the program"):
        _program.main()
