"""Generated kernels are judged in processes of their own; those that cheat fail."""

import re
import textwrap

import fp4lab
import pytest
from fp4lab import testing

# MXFP4 by the formulas of the OCP specification, in numpy alone.
RIGHT = '''
import numpy as np

GRID = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def quantize(x):
    x = np.asarray(x, np.float32)
    rows, cols = x.shape
    padded = np.zeros((rows, -(-cols // 32) * 32), np.float32)
    padded[:, :cols] = x
    blocks = padded.reshape(rows, -1, 32)
    with np.errstate(all="ignore"):
        amax = np.fmax.reduce(np.abs(blocks), axis=2, initial=np.float32(0))
        exponent = (amax.view(np.uint32) >> 23).astype(int)
        scale = np.where(exponent == 255, 255, np.maximum(exponent - 2, 0)).astype(np.uint8)
        factor = np.where(scale == 255, np.nan, 2.0 ** (127.0 - scale))
        v = blocks.astype(np.float64) * factor[:, :, None]
        magnitude = np.minimum(np.abs(v), 6)
        below = np.searchsorted(GRID, magnitude, side="right") - 1
        above = np.minimum(below + 1, 7)
        middle = (GRID[below] + GRID[above]) / 2
        up = (magnitude > middle) | ((magnitude == middle) & (below % 2 == 1))
    code = np.where(up, above, below) + np.where(np.signbit(v), 8, 0)
    code = np.where(np.isnan(v), 7, code).reshape(rows, -1)[:, :cols].astype(np.uint8)
    even = np.zeros((rows, -(-cols // 2) * 2), np.uint8)
    even[:, :cols] = code
    return even[:, 0::2] | even[:, 1::2] << 4, scale
'''

# Kernels that a program may write to pass a test without the formulas.
CHEATS = {
    "zeros": """
        def kernel(x):
            codes, scales = quantize(x)
            return codes * 0, scales * 0
    """,
    "the first answer of a shape": """
        known = {}

        def kernel(x):
            if x.shape not in known:
                known[x.shape] = quantize(x)
            return known[x.shape]
    """,
    "the first answer of an amax and a sum": """
        known = {}

        def kernel(x):
            key = x.shape, float(np.nanmax(np.abs(x))), float(np.sort(x, axis=None).sum())
            return known.setdefault(key, quantize(x))
    """,
    "the first answer at an address": """
        known = {}

        def kernel(x):
            key = x.__array_interface__["data"][0], x.shape
            return known.setdefault(key, quantize(x))
    """,
    "sizes that were memorised": """
        def kernel(x):
            codes, scales = quantize(x)
            return (codes, scales) if x.shape[1] % 32 == 0 else (codes * 0, scales)
    """,
    "fp4lab": """
        def kernel(x):
            import fp4lab
            q = fp4lab.quantize(x, "mxfp4.floor")
            return q.data, q.scale_inv
    """,
    "fp4lab's extension": """
        import glob, importlib.machinery, importlib.util, sysconfig

        def kernel(x):
            (path,) = glob.glob(sysconfig.get_paths()["platlib"] + "/fp4lab/_core*.so")
            loader = importlib.machinery.ExtensionFileLoader("_core", path)
            core = importlib.util.module_from_spec(importlib.util.spec_from_loader("_core", loader))
            return core.quantize(x)
    """,
    "fp4lab's program": """
        import subprocess

        def kernel(x):
            return subprocess.run(["fp4lab", "quantize", "x.npy"], check=True, capture_output=True)
    """,
    "the frames of its caller": """
        import gc, sys

        def kernel(x):
            rows, blocks = x.shape[0], -(-x.shape[1] // 32)
            wanted = {"codes": (rows, -(-x.shape[1] // 2)), "scales": (rows, blocks)}
            things, frame = list(gc.get_objects()), sys._getframe()
            while frame is not None:
                things += [*frame.f_locals.values(), *frame.f_globals.values()]
                frame = frame.f_back
            arrays = [t for t in things if isinstance(t, np.ndarray) and t.dtype == np.uint8]
            arrays += [a for t in things if type(t).__name__ == "QTensor" for a in (t.data, t.scale_inv)]
            found = {n: next((a for a in arrays if a.shape == s), np.zeros(s, np.uint8)) for n, s in wanted.items()}
            return found["codes"], found["scales"]
    """,
    "fp4lab patched at import": """
        import sys, types

        class Everything(types.ModuleType):
            def __getattr__(self, name):
                return lambda *a, **k: True

        for name in ("fp4lab", "fp4lab._judge", "fp4lab._core", "fp4lab.testing", "fp4lab.testing._trial"):
            sys.modules[name] = Everything(name)

        def kernel(x):
            codes, scales = quantize(x)
            return codes * 0, scales
    """,
    "its own process patched": """
        import json, sys

        main = sys.modules["__main__"]
        json.loads = lambda line: []
        main._parts = lambda result: [True, True, None]

        def kernel(*arrays):
            return True, True
    """,
    "its input changed": """
        def kernel(x):
            answer = quantize(x)
            x[:] = 0
            x[0, 0] = 0.7734375  # the first element changes, though row 0 may be zeros
            return answer
    """,
    "memory beside its input": """
        import ctypes

        def kernel(x):
            answer = quantize(x)
            ctypes.memset(x.__array_interface__["data"][0] - 16, 7, 8)
            return answer
    """,
    "memory that it did not write": """
        def kernel(x):
            codes, scales = quantize(x)
            out = np.empty((64 + codes.shape[0], codes.shape[1]), np.uint8)[: codes.shape[0]]
            out[codes != 0] = codes[codes != 0]
            return out, scales
    """,
    "the state of its process": """
        calls = []

        def kernel(x):
            calls.append(1)
            codes, scales = quantize(x)
            return codes ^ (len(calls) == 5), scales
    """,
    "declining": """
        def kernel(x):
            if x.size > 64:
                raise NotImplementedError
            return quantize(x)
    """,
    "another form": """
        def kernel(x):
            return True
    """,
    "its own end": """
        import os

        def kernel(x):
            os._exit(0)
    """,
}


@pytest.fixture
def kernel_file(tmp_path):
    def write(text="", name="kernel.py"):
        path = tmp_path / name
        path.write_text(RIGHT + textwrap.dedent(text))
        return str(path)

    return write


def judged(path, function="kernel", **options):
    options = {"shapes": 4, "largest": (40, 130), "explained": 1, "shrink": False, **options}
    return testing.judge_generated(f"{path}:{function}", "mxfp4.floor", **options)


def test_a_right_kernel_passes_with_fresh_inputs_and_with_a_seed(kernel_file):
    path = kernel_file()
    first, second = judged(path, "quantize"), judged(path, "quantize")
    for report in (first, second):
        assert report.accepted and report.score == 1.0, report.text
        assert report.inputs > 30 and report.right == report.inputs
    assert first.seed != second.seed
    assert f"(seed={first.seed})" in first.text
    again = judged(path, "quantize", seed=first.seed)
    assert (again.inputs, again.right, again.seed) == (first.inputs, first.right, first.seed)
    assert testing.assert_generated(f"{path}:quantize", "mxfp4.floor", shapes=2, largest=(8, 64)).accepted


@pytest.mark.parametrize("cheat", CHEATS.values(), ids=CHEATS.keys())
def test_a_kernel_that_cheats_fails(cheat, kernel_file):
    report = judged(kernel_file(cheat))
    assert not report.accepted and report.score < 1.0 and report.different > 0, report.text
    assert report.text.splitlines()[0].endswith(f"inputs right (seed={report.seed})")


def test_answers_of_no_use_score_nothing(kernel_file):
    for name in ("zeros", "fp4lab", "fp4lab's program", "its own process patched", "another form", "its own end",
                 "the frames of its caller"):
        report = judged(kernel_file(CHEATS[name]))
        assert report.score == 0.0, (name, report.text)


def test_the_message_says_what_was_done(kernel_file):
    expected = {
        "fp4lab": "a kernel that is judged does not use fp4lab",
        "fp4lab's program": "a kernel that is judged does not use fp4lab",
        "its input changed": r"the kernel changed its argument x: the first element at \[0, 0\]",
        "memory beside its input": r"the kernel wrote beside its arguments \([1-8] bytes\)",
        "declining": "the kernel declines this input",
        "another form": "the kernel returned bool",
        "its own end": "the kernel's process ended with exit code 0",
    }
    for name, text in expected.items():
        report = judged(kernel_file(CHEATS[name]))
        assert re.search(text, report.text), (name, report.text)


def test_a_wrong_kernel_has_its_cause_and_a_seed_that_repeats_it(kernel_file):
    path = kernel_file("def kernel(x):\n    codes, scales = quantize(x)\n    return codes << 4 | codes >> 4, scales\n")
    with pytest.raises(AssertionError, match="codes-high-first") as error:
        testing.assert_generated(f"{path}:kernel", "mxfp4.floor", shapes=3, largest=(16, 64), explained=1, shrink=False)
    report = error.value.fp4lab_report
    again = judged(path, seed=report.seed, shapes=3, largest=(16, 64))
    assert (again.inputs, again.right, again.different) == (report.inputs, report.right, report.different)


def test_a_kernel_that_does_not_load_scores_nothing(kernel_file, tmp_path):
    for text, function, problem in (
        ("def kernel(x) return 1", "kernel", "SyntaxError"),
        ("import no_such_package", "kernel", "ModuleNotFoundError"),
        ("", "quantise", "kernel.py has no function 'quantise'; did you mean 'quantize'"),
    ):
        report = judged(kernel_file(text), function)
        assert report.score == 0.0 and not report.accepted and problem in report.text, report.text


def test_a_kernel_that_hangs_is_ended(kernel_file):
    report = judged(kernel_file("def kernel(x):\n    while True: pass\n"), timeout=0.5, shapes=1)
    assert report.score == 0.0 and report.different > report.inputs > 0 and "took too long" in report.text


def test_what_does_not_name_a_kernel_is_refused_in_one_line(kernel_file):
    path = kernel_file()
    for kernel, error, text in (
        (fp4lab.quantize, TypeError, "kernel is a callable, which this process has imported: name it"),
        (path, ValueError, "name a file or module and its function"),
        (path + "x.py:quantize", fp4lab.Error, "there is no file"),
        (5, TypeError, "kernel is 5"),
    ):
        with pytest.raises(error, match=text):
            testing.judge_generated(kernel, "mxfp4.floor")
    for options, text in (
        ({"largest": 5}, "largest is 5: two integers are taken"),
        ({"multiple": (0, 1)}, r"multiple\[0\]"),
        ({"shapes": 0}, "shapes"),
        ({"level": "slow"}, "level"),
    ):
        with pytest.raises((TypeError, ValueError), match=text):
            judged(path, "quantize", **options)


def test_shapes_are_drawn_within_their_limits(kernel_file):
    path = kernel_file(
        """
        def kernel(x):
            assert x.shape[0] % 16 == 0 and x.shape[1] % 32 == 0, x.shape
            return quantize(x)
        """
    )
    report = judged(path, multiple=(16, 32), largest=(64, 128), shapes=8)
    assert report.accepted and report.left_out > 0, report.text


def test_other_processes_get_other_dtypes_and_random_bits(kernel_file):
    path = kernel_file(
        """
        def kernel(x):
            assert x.dtype.name in ("bfloat16", "uint16")
            if x.dtype == np.uint16:
                x = (x.astype(np.uint32) << 16).view(np.float32)
            return quantize(np.asarray(x, np.float32))

        def random(x, bits):
            assert bits.dtype == np.uint16 and bits.shape == x.shape
            return quantize(x)
        """
    )
    assert judged(path, dtype="bfloat16").accepted
    report = testing.judge_generated(f"{path}:random", "nvfp4.te.stochastic", shapes=2, explained=0, shrink=False)
    assert "AssertionError" not in report.text and not report.accepted
