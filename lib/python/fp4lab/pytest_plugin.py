"""The pytest plugin: directed cases as fixtures, and a report of kernels.

Options: --fp4lab-dialect NAME, --fp4lab-level LEVEL, --fp4lab-report FILE.
Fixtures: fp4lab_dialect, fp4lab_level, fp4lab_cases, fp4lab_kernel.
Marker: @pytest.mark.fp4lab_kernel(dialect, level="quick").
"""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

_ENTRIES = pytest.StashKey[list]()
_CHECKED = pytest.StashKey[dict]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("fp4lab", "kernels of 4-bit formats")
    group.addoption("--fp4lab-dialect", metavar="NAME", default=None,
                    help="the dialect of the fixtures, in place of each test's own")  # fmt: skip
    group.addoption("--fp4lab-level", metavar="LEVEL", default=None,
                    choices=("quick", "standard", "thorough"),
                    help="the level of the directed cases: quick or thorough")  # fmt: skip
    group.addoption("--fp4lab-report", metavar="FILE", default=None,
                    help="write the outcome of every kernel test to this JSON file")  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        'fp4lab_kernel(dialect="nvfp4.te", level="quick"): a test of a kernel; its dialect and '
        "level go to the fixtures and to --fp4lab-report",
    )
    config.stash[_ENTRIES] = []
    name = config.getoption("--fp4lab-dialect")
    if name is not None:
        import fp4lab

        try:
            fp4lab.dialect(name)
        except ValueError as error:
            raise pytest.UsageError(f"--fp4lab-dialect: {error}") from None


def _asked(item: Any) -> tuple[str, str]:
    """The dialect and level of a test: the option's, else the marker's, else nvfp4.te, quick."""
    marker = item.get_closest_marker("fp4lab_kernel")
    arguments = {} if marker is None else dict(marker.kwargs)
    if marker is not None:
        arguments.update(zip(("dialect", "level"), marker.args))
    config = item.config
    dialect = config.getoption("--fp4lab-dialect") or arguments.get("dialect", "nvfp4.te")
    return dialect, config.getoption("--fp4lab-level") or arguments.get("level", "quick")


@pytest.fixture
def fp4lab_dialect(request: pytest.FixtureRequest) -> str:
    """The name of the dialect under test."""
    return _asked(request.node)[0]


@pytest.fixture
def fp4lab_level(request: pytest.FixtureRequest) -> str:
    """The level of the directed cases."""
    return _asked(request.node)[1]


@pytest.fixture
def fp4lab_cases(fp4lab_dialect: str, fp4lab_level: str) -> list:
    """The directed cases of the dialect, as a list of fp4lab.Case."""
    import fp4lab

    return list(fp4lab.cases(fp4lab_dialect, fp4lab_level))


@pytest.fixture
def fp4lab_kernel(request: pytest.FixtureRequest, fp4lab_dialect: str, fp4lab_level: str) -> Any:
    """fp4lab_kernel(fn, **options): assert_kernel with the test's dialect and level; the counts go
    to the report.
    """
    from fp4lab import testing

    def check(fn: Any, **options: Any) -> Any:
        facts: dict[str, Any] = {}
        request.node.stash[_CHECKED] = facts
        try:
            report = testing.assert_kernel(fn, fp4lab_dialect, fp4lab_level, **options)
        except AssertionError as error:
            report = getattr(error, "fp4lab_report", None)
            if report is not None:
                facts.update(_facts(report))
            raise
        facts.update(_facts(report))
        return report

    return check


def _facts(report: Any) -> dict[str, Any]:
    return {"cases": report.cases, "different": report.different, "declined": report.declined,
            "left_out": report.left_out, "causes": list(report.causes)}  # fmt: skip


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo) -> Any:
    outcome = yield
    report = outcome.get_result()
    wanted = item.get_closest_marker("fp4lab_kernel") is not None or _CHECKED in item.stash
    if not wanted or (report.when != "call" and report.outcome == "passed"):
        return
    dialect, level = _asked(item)
    entry = {"test": item.nodeid, "dialect": dialect, "level": level, "outcome": report.outcome}
    entry.update(item.stash.get(_CHECKED, {}))
    if report.failed and call.excinfo is not None:
        entry["message"] = str(call.excinfo.value)
    item.config.stash[_ENTRIES].append(entry)


def pytest_sessionfinish(session: pytest.Session) -> None:
    path = session.config.getoption("--fp4lab-report")
    if path is None:
        return
    import fp4lab

    report = {"fp4lab": fp4lab.__version__, "kernels": session.config.stash[_ENTRIES]}
    temporary = f"{path}.{os.getpid()}"
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(report, file, indent=2)
        file.write("\n")
    os.replace(temporary, path)
