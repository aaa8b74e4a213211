"""The tests run against the installed package, never against the source folder."""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import fp4lab  # noqa: E402
import pytest  # noqa: E402
import torch  # noqa: E402


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)  # tests that ask for more say so
    torch.manual_seed(0)


def pytest_terminal_summary(terminalreporter):
    terminalreporter.write_line(f"fp4lab {fp4lab.__version__}, torch {torch.__version__}")
