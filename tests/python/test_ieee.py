"""No byte, verdict or text depends on the floating-point state of the calling thread."""

import dataclasses
import functools
import inspect
import json
import os
import pickle
import subprocess
import sys

import fp4lab
import fp4lab.check
import fp4lab.study
import fp4lab.testing
import host_state
import numpy as np
import pytest

pytestmark = pytest.mark.skipif(not host_state.HERE, reason="states are set as x86-64 has them")

DIALECTS = ("nvfp4.te", "nvfp4.modelopt", "nvfp4.torchao.inference", "mxfp4.rceil", "mxfp4.torchao.even.0.18")


def _random(first, exponents, seed=1, shape=(32, 64)):
    """float32 of random signs and fractions, with these exponents; made of integers."""
    bits = np.random.default_rng(seed).integers(0, 2**32, shape, np.uint32)
    exponent = first + (np.arange(bits.size, dtype=np.uint32).reshape(shape) // 16 * 7 + (bits >> 29)) % exponents
    return (bits & 0x807FFFFF | exponent.astype(np.uint32) << 23).view(np.float32)


INPUTS = {
    "ordinary": _random(120, 8),
    "tiny": _random(0, 6),
    "wide": _random(0, 160),
    "1e-40": np.full((2, 32), 0x116C2, np.uint32).view(np.float32),
}
BF16 = {name: (x.view(np.uint32) & 0xFFFF0000).view(np.float32) for name, x in INPUTS.items()}


def flushes_subnormals(x):
    """A wrong kernel, whose bytes are the same in every state: it reads subnormal numbers as zero."""
    bits = np.ascontiguousarray(x).view(np.uint32)
    flushed = np.where(bits & 0x7F800000 == 0, bits & 0x80000000, bits).astype(np.uint32)
    q = fp4lab.quantize(flushed.view(np.float32))
    return q.data, q.scale_inv, q.amax


def right_kernel(x):
    q = fp4lab.quantize(x)
    return q.data, q.scale_inv, q.amax


def right_product(a, b, alpha):
    return fp4lab.scaled_mm(a, b, alpha=alpha, out_dtype="float32")


def stochastic_kernel(x, i):
    q = fp4lab.quantize(x, rounding="stochastic", seed=i)
    return q.data, q.scale_inv, q.amax


@functools.cache
def quantized(dialect="nvfp4.te", name="wide"):
    return fp4lab.quantize(INPUTS[name], dialect)


@functools.cache
def wrong_verdict():
    return fp4lab.verify(INPUTS["tiny"], *flushes_subnormals(INPUTS["tiny"])[:2], "nvfp4.te")


def each(function, inputs=INPUTS):
    return lambda: [function(x) for x in inputs.values()]


def saved_and_loaded(tmp):
    out = []
    for ending in ("npz", "safetensors"):
        path = os.path.join(tmp, f"w.{ending}")
        quantized().save(path, "w")
        out.append(fp4lab.QTensor.load(path))
    return out


# A run and a baseline, as columns.
RUNS = [
    {"step": np.arange(90), "loss": 2.5 + 3 / (1 + np.arange(90)) + 0.01 * np.cos((3 + 2 * i) * np.arange(90.0))}
    for i in range(2)
]


def checked(tmp):
    path, original = os.path.join(tmp, "c.safetensors"), os.path.join(tmp, "x.npy")
    quantized().save(path, "w")
    np.save(original, INPUTS["wide"])
    return json.dumps(fp4lab.check_checkpoint(path, original=original))


def compared(tmp):
    paths = [os.path.join(tmp, name) for name in ("first.npy", "second.npy")]
    for path, name in zip(paths, ("wide", "tiny")):
        np.save(path, INPUTS[name])
    return json.dumps(fp4lab.compare_dumps(*paths))


def message_of(function):
    try:
        function()
    except AssertionError as error:
        return str(error)
    return "no error"


def right_grouped(a, b, ends, sizes, alphas):
    d = np.zeros((a.shape[0], b[0].shape[0]), np.float32)
    for w, begin, size, alpha in zip(b, [0, *ends], sizes, alphas):
        rows = slice(int(begin), int(begin + size))
        part = dataclasses.replace(a, data=a.data[rows], scale_inv=a.scale_inv[rows], shape=(int(size), a.shape[1]))
        if size:
            d[rows] = fp4lab.scaled_mm(part, w, alpha=float(alpha), out_dtype="float32")
    return d


def wrong_attention(q, k, v, scale, causal):
    return np.full(q.shape, np.float32(0.5))


def calls(tmp):
    """{public name: a function of it, without arguments}."""
    q = quantized
    wrong = next(k for k in fp4lab.testing.wrong_kernels(scale_layout="linear") if k.name == "ties-away")
    product = right_product(q(), q(), 0.3)
    return {
        "quantize": lambda: [
            [fp4lab.quantize(x, d, threads=t), fp4lab.quantize(x, d, both=True)]
            for x in INPUTS.values() for d in DIALECTS for t in (1, 3)
        ] + [fp4lab.quantize(x, amax=1e-41) for x in INPUTS.values()],
        "qdq": each(lambda x: [fp4lab.qdq(x, d) for d in DIALECTS]),
        "amax": each(fp4lab.amax),
        "measure": each(lambda x: [fp4lab.measure(x, d) for d in DIALECTS]),
        "diagnostics": fp4lab.diagnostics,
        "Diagnostic.text": lambda: [d.text(1e-5 / 3) for d in fp4lab.diagnostics()],
        "rht": each(lambda x: fp4lab.rht(x, size=16), BF16),
        "replay": each(lambda x: fp4lab.replay(x, np.arange(x.size // 4, dtype=np.uint32) * 0x9E3779B9, "nvfp4.te")),
        "te_words": lambda: fp4lab.te_words((32, 64), (3, 4)),
        "encode": each(lambda x: [fp4lab.encode(x, f.name) for f in fp4lab.formats()]),
        "decode": lambda: [fp4lab.decode(np.arange(256, dtype=np.uint8), f) for f in ("e4m3", "e5m2", "e8m0")],
        "verify": each(lambda x: [str(fp4lab.verify(x, *kernel(x)[:2], "nvfp4.te"))
                                  for kernel in (right_kernel, flushes_subnormals)]),
        "explain": each(lambda x: str(fp4lab.explain(x, *wrong(x)[:2], "nvfp4.te"))),
        "identify": each(lambda x: str(fp4lab.identify(x, *right_kernel(x)[:2]))),
        "scaled_mm": lambda: [
            fp4lab.scaled_mm(q(d), q(d, name), alpha=alpha, accumulation=how, out_dtype=dtype)
            for d in ("nvfp4.te", "mxfp4.rceil") for name in INPUTS if name != "1e-40"
            for alpha in (None, 1e-41) for how in ("block", "exact", "fp32-sequential")
            for dtype in ("float32", "float16")
        ],
        "verify_mm": lambda: str(fp4lab.verify_mm(q(), q(), product, alpha=0.30000001)),
        "cases": lambda: list(fp4lab.cases()),
        "formats": fp4lab.formats,
        "dialects": fp4lab.dialects,
        "dialect": lambda: fp4lab.dialect("nvfp4.te"),
        "accumulations": fp4lab.accumulations,
        "recipes": fp4lab.recipes,
        "check_checkpoint": lambda: checked(tmp),
        "compare_dumps": lambda: compared(tmp),
        "parity": lambda: json.dumps(fp4lab.parity(*RUNS)),
        "check_dialects": lambda: str(fp4lab.check_dialects(["mxfp4.floor"])),
        "QTensor.dequantize": lambda: [q(d, name).dequantize(t) for d in DIALECTS for name in INPUTS
                                       for t in ("float32", "float16", "bfloat16")],
        "QTensor.to": lambda: q().to(scale_layout="swizzled_32_4_4"),
        "QTensor.tensor_scale": lambda: [q(name=name).tensor_scale(c) for name in INPUTS
                                         for c in ("amax", "multiplier", "divisor")],
        "QTensor.save": lambda: saved_and_loaded(tmp),
        "QTensor.load": lambda: saved_and_loaded(tmp),
        "QTensor.nbytes": lambda: q().nbytes,
        "Recipe.named": lambda: fp4lab.Recipe.named("te_nvfp4"),
        "Recipe.from_json": lambda: fp4lab.Recipe.from_json({"base": "te_nvfp4"}).resolved,
        "Verdict.explain": lambda: str(wrong_verdict().explain()),
        "Case.cause": lambda: [c.cause for c in fp4lab.cases()][:5],
        "Case.bf16": lambda: [c.bf16 for c in fp4lab.cases(bf16_only=True)],
        "testing.assert_kernel": lambda: [
            fp4lab.testing.assert_kernel(right_kernel),
            message_of(lambda: fp4lab.testing.assert_kernel(flushes_subnormals)),
        ],
        "testing.assert_stochastic": lambda: fp4lab.testing.assert_stochastic(
            stochastic_kernel, INPUTS["ordinary"][:8], samples=16),
        "testing.assert_product": lambda: fp4lab.testing.assert_product(right_product),
        "testing.assert_grouped": lambda: fp4lab.testing.assert_grouped(right_grouped, padded_to=16),
        "testing.assert_attention": lambda: message_of(
            lambda: fp4lab.testing.assert_attention(wrong_attention, "bf16")),
        "testing.assert_matches": lambda: message_of(
            lambda: fp4lab.testing.assert_matches(INPUTS["tiny"], *flushes_subnormals(INPUTS["tiny"])[:2])),
        "testing.assert_same_bytes": lambda: fp4lab.testing.assert_same_bytes(q(), fp4lab.quantize(INPUTS["wide"])),
        "testing.wrong_kernels": lambda: [[k.name, k.what] for k in fp4lab.testing.wrong_kernels()],
        "testing.WrongKernel.__call__": each(wrong),
        "testing.KernelReport.accepted": lambda: fp4lab.testing.assert_kernel(right_kernel).accepted,
        "testing.KernelReport.answered": lambda: fp4lab.testing.assert_kernel(right_kernel).answered,
        "testing.judge_generated": lambda: generated(tmp, fp4lab.testing.judge_generated),
        "testing.assert_generated": lambda: generated(tmp, report_of_assertion),
        "testing.GeneratedReport.score": lambda: generated(tmp, lambda *a, **k: fp4lab.testing.judge_generated(*a, **k).score),
        "testing.GeneratedReport.accepted": lambda: generated(
            tmp, lambda *a, **k: fp4lab.testing.judge_generated(*a, **k).accepted),
        "check.check_dialects": lambda: str(fp4lab.check.check_dialects(["mxfp4.floor"])),
        "study.load": lambda: _study(tmp).losses.to_dict(),
    }  # fmt: skip


def generated(tmp, judge):
    """The judgement of a kernel that writes zeros, without its folder's name."""
    path = os.path.join(tmp, "kernel.py")
    with open(path, "w", encoding="utf-8") as file:
        file.write("import numpy as np\n\ndef kernel(x):\n    rows, cols = x.shape\n"
                   "    return np.zeros((rows, -(-cols // 2)), np.uint8), np.zeros((rows, -(-cols // 32)), np.uint8)\n")
    report = judge(f"{path}:kernel", "mxfp4.floor", seed=7, shapes=3, largest=(16, 64), explained=1, shrink=False)
    return report if not dataclasses.is_dataclass(report) else [
        report.inputs, report.right, report.different, report.causes, report.text.replace(path, "kernel.py")]  # fmt: skip


def report_of_assertion(*arguments, **options):
    try:
        return fp4lab.testing.assert_generated(*arguments, **options)
    except AssertionError as error:
        return error.fp4lab_report


# Public names that compute nothing with numbers, each with the reason.
EXCEPTIONS = {
    "check.main": "prints check_dialects",
    "check.Comparison.agrees": "compares counts",
    "check.Comparison.skipped": "compares counts",
    "study.program": "finds a file",
    "study.run": "starts the program fp4lab, which test_the_program runs",
}


def _study(tmp):
    pytest.importorskip("pandas")
    path = os.path.join(tmp, "results.json")
    with open(path, "w", encoding="utf-8") as file:
        file.write('{"schema": "fp4lab.study.results/1", "name": "s", "runs": [{"arm": "a", "seed": 1, '
                   '"points": [{"budget": 10, "loss": 1.2345678901234567}], "curve": []}]}')  # fmt: skip
    return fp4lab.study.load(path)


def plain(value):
    """A value as numbers, texts and bytes that pickle to the same bytes."""
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, Exception):
        return repr(value)
    if isinstance(value, np.ndarray):
        return (value.shape, value.dtype.name, np.ascontiguousarray(value).view(np.uint8).tobytes())
    if isinstance(value, np.generic):
        return value.tobytes()
    if dataclasses.is_dataclass(value):
        return [plain(getattr(value, f.name)) for f in dataclasses.fields(value)]
    return value


def public_names():
    """The public functions, and public methods and properties of public classes, of the package."""
    names = []
    for prefix, module, listed in (
        ("", fp4lab, fp4lab.__all__),
        ("testing.", fp4lab.testing, fp4lab.testing.__all__),
        ("check.", fp4lab.check, dir(fp4lab.check)),
        ("study.", fp4lab.study, dir(fp4lab.study)),
    ):
        for name in listed:
            value = getattr(module, name)
            home = getattr(value, "__module__", None) or ""
            if name.startswith("_") or not home.startswith(module.__name__):
                continue
            if inspect.isclass(value) and not issubclass(value, Exception):
                names += [f"{prefix}{name}.{m}" for m, v in vars(value).items()
                          if (not m.startswith("_") or m == "__call__") and not _is_field(value, m, v)]  # fmt: skip
            elif inspect.isfunction(value):
                names.append(prefix + name)
    return names


def _is_field(cls, name, value):
    return name in {f.name for f in dataclasses.fields(cls)} or not (
        callable(value) or isinstance(value, (property, staticmethod, functools.cached_property))
    )


def test_every_public_callable_is_in_the_table(tmp_path):
    known = {*calls(str(tmp_path)), *EXCEPTIONS}
    assert sorted(set(public_names()) - known) == []
    assert sorted(known - set(public_names())) == []


@pytest.mark.parametrize("name", [n for n in public_names() if n not in EXCEPTIONS])
def test_values_and_states(name, tmp_path):
    call = calls(str(tmp_path))[name]
    got = {}
    for state in host_state.STATES:
        value, after = host_state.under(state, call)
        assert after == host_state.expected(state)
        got[state] = value
    right = pickle.dumps(plain(call()))
    assert [s for s, value in got.items() if pickle.dumps(plain(value)) != right] == []


def test_the_states_are_those_of_fesetround_and_change_arithmetic():
    third = np.float32(1) / np.array([3, -3], np.float32)
    subnormal = np.array([1], np.uint32).view(np.float32)
    one, three = np.array([1, 1], np.float32), np.array([3, -3], np.float32)
    for state in host_state.STATES:
        with host_state.state(state):
            quotients, product = one / three, subnormal * np.float32(1)
            half = np.array([0x00800001], np.uint32).view(np.float32) * np.float32(0.5)
        changed = quotients.tobytes() != third.tobytes() or 0 in (int(product.view(np.uint32)[0]),
                                                                  int(half.view(np.uint32)[0]))  # fmt: skip
        assert changed, state


def test_a_kernel_runs_in_the_state_of_its_caller():
    seen = set()

    def kernel(x):
        seen.add(host_state.current())
        return right_kernel(x)

    def product(a, b, alpha):
        seen.add(host_state.current())
        return right_product(a, b, alpha)

    def stochastic(x, i):
        seen.add(host_state.current())
        return stochastic_kernel(x, i)

    for state in host_state.STATES:
        seen.clear()
        with host_state.state(state):
            fp4lab.testing.assert_kernel(kernel, families=["subnormal"])
            fp4lab.testing.assert_product(product)
            fp4lab.testing.assert_stochastic(stochastic, INPUTS["ordinary"][:8], samples=8)
        assert seen == {host_state.expected(state)}


def test_a_kernel_may_change_the_state_of_its_caller():
    def kernel(x):
        host_state.write("FTZ and DAZ")
        return right_kernel(x)

    with host_state.state("up"):
        assert fp4lab.testing.assert_kernel(kernel, families=["subnormal"]).accepted
        assert host_state.current() == host_state.expected("FTZ and DAZ")


def test_verdicts_on_a_kernel_that_flushes_subnormals():
    for state in host_state.STATES:
        with host_state.state(state):
            assert fp4lab.testing.assert_kernel(right_kernel).accepted
            with pytest.raises(AssertionError):
                fp4lab.testing.assert_kernel(flushes_subnormals)


@pytest.fixture(scope="module")
def fast_library(tmp_path_factory):
    """A shared library built by `gcc -Ofast`: the thread that loads it flushes subnormal numbers."""
    folder = tmp_path_factory.mktemp("fast")
    source, library = folder / "fast.c", folder / "fast.so"
    source.write_text("int fp4lab_test_fast;\n")
    try:
        subprocess.run(["gcc", "-Ofast", "-shared", "-fPIC", "-o", library, source], check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no gcc: {error}")
    code = f"import ctypes, host_state; ctypes.CDLL({str(library)!r}); print(host_state.current()[0] & 0x8040)"
    if _python(code).strip() != str(0x8040):
        pytest.skip("this gcc's shared libraries leave the state alone")
    return library


def _python(code):
    here = os.path.dirname(os.path.abspath(__file__))
    path = os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": path})  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_loaded_fast_math_library_changes_nothing(fast_library):
    code = f"""
import ctypes
ctypes.CDLL({str(fast_library)!r})
import numpy as np, fp4lab, test_ieee
q = fp4lab.quantize(np.full((1, 16), 0x116C2, np.uint32).view(np.float32))
print(q.scale_inv.tolist(), fp4lab.testing.assert_kernel(test_ieee.right_kernel).accepted)
"""
    assert _python(code).split("\n")[0] == "[[3]] True"


def test_the_program(fast_library, tmp_path):
    program = os.environ.get("FP4LAB_PROGRAM")
    if not program:
        pytest.skip("FP4LAB_PROGRAM names no program")
    path = tmp_path / "x.npy"
    np.save(path, INPUTS["tiny"])
    outputs = []
    for preloaded in (None, str(fast_library)):
        out = tmp_path / f"{bool(preloaded)}.safetensors"
        environment = {**os.environ, **({"LD_PRELOAD": preloaded} if preloaded else {})}
        subprocess.run([program, "quantize", path, "--dialect", "nvfp4.te", "--out", out], check=True,
                       env=environment, capture_output=True)  # fmt: skip
        outputs.append(out.read_bytes())
    assert outputs[0] == outputs[1]
