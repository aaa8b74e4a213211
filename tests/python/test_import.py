"""`import fp4lab` loads no numpy: names come with their modules at their first use."""

import ast
import subprocess
import sys

import fp4lab
import pytest


def _run(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize("use", ["fp4lab.__version__", "fp4lab.Error", "fp4lab.dialect('nvfp4.te')",
                                 "fp4lab.Recipe.named('te_nvfp4')", "dir(fp4lab)"])  # fmt: skip
def test_no_numpy_is_loaded(use):
    assert _run(f"import sys, fp4lab; {use}; print('numpy' in sys.modules)") == ["False"]


def test_every_public_name_is_there_in_a_fresh_process():
    code = "import fp4lab\nfor name in fp4lab.__all__: print(name, getattr(fp4lab, name) is not None)"
    words = _run(code)
    assert words[::2] == fp4lab.__all__ and set(words[1::2]) == {"True"}
    assert set(_run("from fp4lab import *; print(*dir())")) >= set(fp4lab.__all__)


def test_type_checkers_see_the_names_that_the_modules_define():
    with open(fp4lab.__file__, encoding="utf-8") as file:
        body = ast.parse(file.read()).body
    (block,) = (node for node in body if isinstance(node, ast.If))
    seen = {alias.name: node.module for node in block.body for alias in node.names}
    assert set(seen) == set(fp4lab.__all__) - {"Error", "check_dialects"}
    assert set(seen.values()) == set(fp4lab._HOMES)
    for name, home in seen.items():
        assert getattr(fp4lab, name) is getattr(sys.modules[f"fp4lab.{home}"], name)
    assert set(fp4lab.__all__) <= set(dir(fp4lab))


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'fp4lab' has no attribute 'quantise'"):
        fp4lab.quantise
    with pytest.raises(ImportError, match="cannot import name 'np'"):
        from fp4lab import np  # noqa: F401
