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


def test_junit_properties_and_the_markdown_summary(pytester, monkeypatch):
    import xml.etree.ElementTree

    pytester.makepyfile("DIALECT, LEVEL = 'nvfp4.te', 'quick'" + TESTS)
    summary = pytester.path / "summary.md"
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    pytester.runpytest_subprocess("--junit-xml", "junit.xml").assert_outcomes(passed=3, failed=1)
    tests = {}
    for case in xml.etree.ElementTree.parse(pytester.path / "junit.xml").getroot().iter("testcase"):
        tests[case.get("name")] = {p.get("name"): p.get("value") for p in case.iter("property")}
    assert tests["test_fixtures"] == {}
    right, wrong = tests["test_right"], tests["test_wrong"]
    assert right["fp4lab_dialect"] == "mxfp4.rceil" and right["fp4lab_different"] == "0"
    assert "fp4lab_causes" not in right
    assert wrong["fp4lab_causes"].split(", ")[0] == "ties-away" and int(wrong["fp4lab_different"]) > 0
    assert tests["test_of_my_own"] == {"fp4lab_dialect": "nvfp4.te", "fp4lab_level": "quick"}

    before, title, *_ = summary.read_text().split("\n")
    assert (before, title) == ("before", "### fp4lab: 1 of 3 kernel tests failed")
    (row,) = [line for line in summary.read_text().split("\n") if "test_wrong" in line]
    cells = [cell.strip() for cell in row.strip("|").split(" | ")]
    assert cells[1:3] == ["mxfp4.floor", "failed"] and cells[4] == wrong["fp4lab_different"]
    assert cells[5] == wrong["fp4lab_causes"]

    other = pytester.path / "other.md"
    pytester.runpytest_subprocess("--fp4lab-summary", str(other), "-k", "right")
    assert "| passed |" in other.read_text() and summary.read_text().count("###") == 1
    pytester.runpytest_subprocess("-k", "fixtures")  # no kernel test, nothing to add
    assert summary.read_text().count("###") == 1


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


OPTIONS = """
import fp4lab, pytest

@pytest.mark.fp4lab_kernel("nvfp4.te", scale_layout="128x4", nibbles="high-first", tensor_scale_is="divisor", families=["randn", "tails"])
def test_conventions(fp4lab_kernel):
    def kernel(x):
        q = fp4lab.quantize(x, scale_layout="128x4", nibbles="high-first")
        return q.data, q.scale_inv, q.tensor_scale("divisor")

    assert fp4lab_kernel(kernel).cases < 20

@pytest.mark.fp4lab_kernel("nvfp4.te", "quick", rounding="stochastic", random_bits=8)
def test_random_bits(fp4lab_kernel, fp4lab_cases):
    assert all(c.random is not None for c in fp4lab_cases)
    fp4lab_kernel(lambda x, random: fp4lab.quantize(x, rounding="stochastic", random_bits=8, random=random))

@pytest.mark.fp4lab_kernel(columnwise=True, families="randn")
def test_columns(fp4lab_kernel, fp4lab_cases):
    assert {c.family for c in fp4lab_cases} == {"randn"}
    fp4lab_kernel(lambda x: fp4lab.quantize(x, columnwise=True))
    fp4lab_kernel(fp4lab.quantize, columnwise=False)

@pytest.mark.fp4lab_kernel("nvfp4.te", dtype="bfloat16", rht=True, allow_declined=True)
def test_transform(fp4lab_kernel, fp4lab_cases):
    assert all(c.is_bf16 for c in fp4lab_cases)

    def kernel(x):
        if x.shape[0] > 16:
            raise NotImplementedError
        return fp4lab.quantize(x, rht=True)

    assert fp4lab_kernel(kernel).declined

@pytest.mark.fp4lab_kernel("nvfp4.te", explained=1)
def test_writes(fp4lab_kernel):
    def kernel(x):
        q = fp4lab.quantize(x)
        x[...] = 0
        return q

    fp4lab_kernel(kernel)
"""


def test_the_marker_takes_the_conventions_of_assert_kernel(pytester):
    pytester.makepyfile(OPTIONS)
    result = pytester.runpytest_subprocess("--fp4lab-report", "report.json", "--strict-markers")
    result.assert_outcomes(passed=4, failed=1)
    report = json.loads((pytester.path / "report.json").read_text())
    (wrong,) = [k for k in report["kernels"] if k["outcome"] == "failed"]
    assert "changed its argument x" in wrong["message"] and wrong["mutations"] == wrong["different"] > 0


def test_every_option_of_assert_kernel_is_an_option_of_the_marker(pytester):
    import inspect

    from fp4lab import testing

    values = {n: p.default for n, p in inspect.signature(testing.assert_kernel).parameters.items() if n != "fn"}
    pytester.makepyfile(f"""
import fp4lab, pytest

@pytest.mark.fp4lab_kernel(**{values!r})
def test_all(fp4lab_kernel):
    fp4lab_kernel(fp4lab.quantize)
""")
    pytester.runpytest_subprocess().assert_outcomes(passed=1)


TYPOS = """
import pytest

@pytest.mark.fp4lab_kernel("nvfp4.te", scale_layuot="128x4")
def test_a(fp4lab_kernel):
    pass

@pytest.mark.fp4lab_kernel("nvfp4.te", nibble="bytes")
def test_b():
    pass

@pytest.mark.fp4lab_kernel("nvfp4.te", "quick", "bfloat16")
def test_c():
    pass

@pytest.mark.fp4lab_kernel("nvfp4.te", dialect="nvfp4.te")
def test_d():
    pass
"""


def test_unknown_keywords_of_the_marker_are_errors(pytester):
    pytester.makepyfile(TYPOS)
    result = pytester.runpytest_subprocess("--fp4lab-report", "report.json")
    result.assert_outcomes(errors=4)
    result.stdout.fnmatch_lines(
        ['*"scale_layuot" is not one of*did you mean "scale_layout"?*', '*"nibble" is not one of*"nibbles"?*',
         "*3 arguments without a name*", "*dialect is given twice*"]
    )  # fmt: skip
    report = json.loads((pytester.path / "report.json").read_text())
    assert [k["outcome"] for k in report["kernels"]] == ["failed"] * 4
