"""Every example of the docstrings and of the package's README runs as it is printed."""

import doctest
import importlib
import os

import pytest

MODULES = ["fp4lab", "fp4lab._judge", "fp4lab._products", "fp4lab._qtensor", "fp4lab._quantize",
           "fp4lab._tables", "fp4lab.testing", "fp4lab.testing._bytes", "fp4lab.testing._product",
           "fp4lab.testing._wrong"]  # fmt: skip
README = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib/python/README.md")


@pytest.mark.parametrize("name", MODULES)
def test_docstrings(name):
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert result.attempted > 0 and result.failed == 0


def test_readme():
    result = doctest.testfile(README, module_relative=False, optionflags=doctest.ELLIPSIS)
    assert result.attempted > 3 and result.failed == 0
