"""The tests run against the installed package, never against the source folder."""

import os

import fp4lab
import pytest

HERE = os.path.dirname(os.path.abspath(__file__))


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
