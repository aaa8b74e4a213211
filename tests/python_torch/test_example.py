"""The example beside the notebooks, and the section of the README, run as they are printed."""

import importlib.util
import os
import runpy

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")


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
