"""Every example of the docstrings and of the package's README runs as it is printed."""

import doctest
import importlib
import os

import pytest

MODULES = ["fp4lab", "fp4lab._judge", "fp4lab._measure", "fp4lab._products", "fp4lab._qtensor", "fp4lab._quantize",
           "fp4lab._tables", "fp4lab.check.extract", "fp4lab.testing", "fp4lab.testing._bytes", "fp4lab.testing._product",
           "fp4lab.testing._wrong"]  # fmt: skip
README = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib/python/README.md")


@pytest.mark.parametrize("name", MODULES)
def test_docstrings(name):
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert result.attempted > 0 and result.failed == 0


def run_readme(part, before=""):
    """Runs the examples of a part of the README, behind the names that the examples `before` make."""
    names = {}
    for text in (before, part):
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
        test = doctest.DocTestParser().get_doctest(text, names, "README.md", README, 0)
        runner.run(test, clear_globs=False)
        names = test.globs
        assert runner.failures == 0
    assert runner.tries > 3


def readme_parts():
    """(the README without its section on PyTorch, that section)."""
    with open(README, encoding="utf-8") as file:
        before, section = file.read().split("## PyTorch\n")
    section, after = section.split("\n## ", 1)
    return before + "\n## " + after, section


def test_readme():
    run_readme(readme_parts()[0])


def test_readme_on_pytorch():
    pytest.importorskip("torch")
    rest, section = readme_parts()
    run_readme(section, rest.split("## Judge")[0])
