"""The example beside the notebooks, the README's section, the guide and docstrings, run as they are printed."""

import doctest
import importlib
import importlib.util
import os
import runpy

import pytest

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")

GUIDE = os.path.join(ROOT, "docs/guides/pytorch.md")
MODULES = ("_attribute", "_convert", "_observe")


@pytest.mark.parametrize("name", MODULES)
def test_docstrings(name):
    result = doctest.testmod(importlib.import_module(f"fp4lab.torch.{name}"))
    assert result.attempted > 0 and result.failed == 0


def test_guide():
    result = doctest.testfile(GUIDE, module_relative=False)
    assert result.attempted > 20 and result.failed == 0


def test_torch_linear():
    example = runpy.run_path(os.path.join(ROOT, "notebooks/torch_linear.py"))
    plain, nvfp4 = (example["train"](recipe, steps=40) for recipe in (None, "te_nvfp4"))
    assert plain[-1] < 0.6 * plain[0] and nvfp4[-1] < 0.6 * nvfp4[0]
    assert abs(nvfp4[-1] - plain[-1]) < 0.2 and nvfp4 != plain


def test_readme():
    path = os.path.join(ROOT, "tests/python/test_doctests.py")
    spec = importlib.util.spec_from_file_location("readme", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.test_readme_on_pytorch()
