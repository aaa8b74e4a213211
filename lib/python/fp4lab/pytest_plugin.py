"""The pytest plugin: directed cases as fixtures, and a report of kernels.

Options: --fp4lab-dialect NAME, --fp4lab-level LEVEL, --fp4lab-report FILE, --fp4lab-summary FILE.
Fixtures: fp4lab_dialect, fp4lab_level, fp4lab_cases, fp4lab_kernel.
Marker: @pytest.mark.fp4lab_kernel(dialect, level="quick", **options), with the options of
fp4lab.testing.assert_kernel.
The report of --junit-xml has dialect, level, counts and causes as properties of the tests.
"""

from __future__ import annotations

import inspect
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
    group.addoption("--fp4lab-summary", metavar="FILE", default=os.environ.get("GITHUB_STEP_SUMMARY"),
                    help="add a table of the kernel tests with causes to this Markdown file "
                         "[the summary of a GitHub job]")  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        'fp4lab_kernel(dialect="nvfp4.te", level="quick", **options): a test of a kernel; dialect, level and the '
        "options of fp4lab.testing.assert_kernel go to the fixtures, dialect and level to --fp4lab-report",
    )
    config.stash[_ENTRIES] = []
    name = config.getoption("--fp4lab-dialect")
    if name is not None:
        import fp4lab

        try:
            fp4lab.dialect(name)
        except ValueError as error:
            raise pytest.UsageError(f"--fp4lab-dialect: {error}") from None


def _marked(item: Any) -> dict[str, Any]:
    """The arguments of a test's marker by name. Raises TypeError for those that assert_kernel does not take."""
    marker = item.get_closest_marker("fp4lab_kernel")
    if marker is None:
        return {}
    from fp4lab import testing
    from fp4lab._arguments import did_you_mean

    known = list(inspect.signature(testing.assert_kernel).parameters)[1:]  # all but the kernel
    if len(marker.args) > 2:
        raise TypeError(f"fp4lab_kernel: {len(marker.args)} arguments without a name; it takes dialect and level, "
                        "and the others by name")  # fmt: skip
    arguments = dict(zip(("dialect", "level"), marker.args))
    for name, value in marker.kwargs.items():
        if name not in known:
            raise TypeError(f'fp4lab_kernel: "{name}" is not one of: {", ".join(known)}{did_you_mean(name, known)}')
        if name in arguments:
            raise TypeError(f"fp4lab_kernel: {name} is given twice")
        arguments[name] = value
    return arguments


def _options(item: Any) -> dict[str, Any]:
    """The options of a test's marker, without dialect and level."""
    return {k: v for k, v in _marked(item).items() if k not in ("dialect", "level")}


def _name_of(dialect: Any) -> str:
    """The name of a dialect, which a dict or a path may spell out; what is none as text, for the test to refuse."""
    if isinstance(dialect, str) and not dialect.endswith(".json"):
        return dialect
    import fp4lab

    try:
        return fp4lab.dialect(dialect).name
    except (TypeError, ValueError):
        return str(dialect)


def _asked(item: Any) -> tuple[str, str]:
    """The dialect and level of a test: the option's, else the marker's, else nvfp4.te, quick."""
    try:
        arguments = _marked(item)
    except TypeError:  # reported where the test is set up
        arguments = {}
    config = item.config
    dialect = config.getoption("--fp4lab-dialect") or arguments.get("dialect", "nvfp4.te")
    return _name_of(dialect), config.getoption("--fp4lab-level") or arguments.get("level", "quick")


def pytest_runtest_setup(item: pytest.Item) -> None:
    try:
        _marked(item)
    except TypeError as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture
def fp4lab_dialect(request: pytest.FixtureRequest) -> str:
    """The name of the dialect under test."""
    return _asked(request.node)[0]


@pytest.fixture
def fp4lab_level(request: pytest.FixtureRequest) -> str:
    """The level of the directed cases."""
    return _asked(request.node)[1]


@pytest.fixture
def fp4lab_cases(request: pytest.FixtureRequest, fp4lab_dialect: str, fp4lab_level: str) -> list:
    """The directed cases of the dialect, as a list of fp4lab.Case; seed, families, dtype, rounding and random_bits
    are the marker's.
    """
    import fp4lab

    options = _options(request.node)
    taken = {k: options[k] for k in ("seed", "families", "rounding", "random_bits") if k in options}
    bf16_only = options.get("dtype") in ("bfloat16", "bf16")
    return list(fp4lab.cases(fp4lab_dialect, fp4lab_level, bf16_only=bf16_only, **taken))


@pytest.fixture
def fp4lab_kernel(request: pytest.FixtureRequest, fp4lab_dialect: str, fp4lab_level: str) -> Any:
    """fp4lab_kernel(fn, **options): assert_kernel with the test's dialect and level and the marker's
    options, which these go before; the counts go to the report.
    """
    from fp4lab import testing

    def check(fn: Any, **options: Any) -> Any:
        facts: dict[str, Any] = {}
        request.node.stash[_CHECKED] = facts
        try:
            asked = {"dialect": fp4lab_dialect, "level": fp4lab_level, **_options(request.node), **options}
            report = testing.assert_kernel(fn, **asked)
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
            "left_out": report.left_out, "causes": list(report.causes),
            "partial_causes": dict(report.partial), "mutations": report.mutations}  # fmt: skip


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
    item.user_properties += _properties(entry)


def _causes(entry: dict[str, Any]) -> str:
    """The causes of an entry; where none explains all differences, those that explain some, with their share."""
    if entry.get("causes"):
        return ", ".join(entry["causes"])
    return ", ".join(f"{name} (in part: {count})" for name, count in entry.get("partial_causes", {}).items())


def _properties(entry: dict[str, Any]) -> list[tuple[str, str]]:
    """What the JUnit report says of a kernel test."""
    facts = {name: entry[name] for name in ("dialect", "level", "cases", "different", "declined") if name in entry}
    if _causes(entry):
        facts["causes"] = _causes(entry)
    return [(f"fp4lab_{name}", str(value)) for name, value in facts.items()]


def _markdown(entries: list[dict[str, Any]]) -> str:
    """The kernel tests as a table."""
    wrong = sum(entry["outcome"] == "failed" for entry in entries)
    lines = [f"### fp4lab: {wrong} of {len(entries)} kernel tests failed", "",
             "| test | dialect | outcome | cases | different | causes |", "|---|---|---|---|---|---|"]  # fmt: skip
    for entry in entries:
        cells = [entry["test"], entry["dialect"], entry["outcome"], entry.get("cases", "-"),
                 entry.get("different", "-"), _causes(entry) or "-"]  # fmt: skip
        lines.append("| " + " | ".join(str(cell).replace("|", "\\|").replace("\n", " ") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def pytest_sessionfinish(session: pytest.Session) -> None:
    summary, entries = session.config.getoption("--fp4lab-summary"), session.config.stash[_ENTRIES]
    if summary and entries:
        with open(summary, "a", encoding="utf-8") as file:
            file.write(_markdown(entries))
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
