"""The tests run against the installed package, never against the source folder."""

import os

import fp4lab
import pytest

HERE = os.path.dirname(os.path.abspath(__file__))


# Of the cases of a test that is marked `sweep`, the default run takes one in so many.
SAMPLED = 8


def pytest_addoption(parser):
    parser.addoption("--sweep", action="store_true", help="run the tests marked `sweep`, with all their cases, and no others")


def pytest_configure(config):
    config.addinivalue_line("markers", f"sweep: takes a minute or more; without --sweep, one case in {SAMPLED} runs")


def pytest_collection_modifyitems(config, items):
    marked = [item for item in items if item.get_closest_marker("sweep")]
    kept, left_out = marked, [item for item in items if not item.get_closest_marker("sweep")]
    if not config.getoption("--sweep"):
        left_out = [item for place, item in enumerate(marked) if place % SAMPLED]
        kept = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=left_out)
    items[:] = kept


def pytest_terminal_summary(terminalreporter):
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = {}
    for report in skipped:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reasons[reason] = reasons.get(reason, 0) + 1
    for reason, count in sorted(reasons.items()):
        terminalreporter.write_line(f"not run: {count} x {reason}")
    terminalreporter.write_line(f"fp4lab {fp4lab.__version__} of {os.path.dirname(fp4lab.__file__)}")


@pytest.fixture(scope="session")
def normal():
    import numpy as np

    return np.random.default_rng(0).standard_normal((64, 128), np.float32)
