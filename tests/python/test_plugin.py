"""The pytest plugin, as an installed package offers it."""

import importlib.metadata
import json

import pytest

pytest_plugins = ["pytester"]


@pytest.fixture(autouse=True)
def plugin(pytester):
    names = [e.name for e in importlib.metadata.entry_points(group="pytest11")]
    if "fp4lab" not in names:
        pytest.skip("the package is not installed, so that pytest knows no plugin of it")


TESTS = """
import fp4lab, pytest
from fp4lab.testing import wrong_kernels

def right(x):
    return fp4lab.quantize(x, "mxfp4.rceil")

def test_fixtures(fp4lab_dialect, fp4lab_level, fp4lab_cases):
    assert fp4lab_dialect == DIALECT and fp4lab_level == LEVEL
    assert len(fp4lab_cases) == len(list(fp4lab.cases(DIALECT, LEVEL)))

@pytest.mark.fp4lab_kernel("mxfp4.rceil")
def test_right(fp4lab_kernel):
    fp4lab_kernel(right)

@pytest.mark.fp4lab_kernel("mxfp4.floor", level="quick")
def test_wrong(fp4lab_kernel):
    k = next(k for k in wrong_kernels("mxfp4.floor", scale_layout="linear") if k.name == "ties-away")
    fp4lab_kernel(k)

@pytest.mark.fp4lab_kernel("nvfp4.te")
def test_of_my_own(fp4lab_dialect):
    assert fp4lab_dialect == "nvfp4.te"
"""


def test_fixtures_markers_and_report(pytester):
    pytester.makepyfile("DIALECT, LEVEL = 'nvfp4.te', 'quick'" + TESTS)
    result = pytester.runpytest_subprocess("--fp4lab-report", "report.json", "--strict-markers")
    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines(["*cause: ties-away*"])
    report = json.loads((pytester.path / "report.json").read_text())
    kernels = {k["test"].split("::")[1]: k for k in report["kernels"]}
    assert set(kernels) == {"test_right", "test_wrong", "test_of_my_own"}
    assert kernels["test_right"]["outcome"] == "passed" and kernels["test_right"]["different"] == 0
    wrong = kernels["test_wrong"]
    assert wrong["outcome"] == "failed" and wrong["causes"][0] == "ties-away"
    assert wrong["dialect"] == "mxfp4.floor" and "to reproduce" in wrong["message"]
    assert kernels["test_of_my_own"]["outcome"] == "passed"


def test_options_go_before_markers(pytester):
    pytester.makepyfile("DIALECT, LEVEL = 'mxfp4.floor', 'thorough'" + TESTS)
    result = pytester.runpytest_subprocess(
        "--fp4lab-dialect", "mxfp4.floor", "--fp4lab-level", "thorough", "-k", "fixtures or right"
    )
    result.assert_outcomes(passed=1, failed=1, deselected=2)


def test_unknown_dialects_are_a_usage_error(pytester):
    result = pytester.runpytest_subprocess("--fp4lab-dialect", "nvfp4.tee")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*nvfp4.tee*did you mean*nvfp4.te*"])
