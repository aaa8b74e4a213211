"""Assertions refuse every wrong kernel by name, and accept right ones."""

import dataclasses
import functools
import re

import fp4lab
import numpy as np
import pytest
from fp4lab import testing


def kernel(dialect="nvfp4.te", **options):
    def fn(x, random=None):
        q = fp4lab.quantize(x, dialect, random=random, **options)
        return q.data, q.scale_inv, q.amax

    return fn


@pytest.mark.parametrize(
    "dialect", ["nvfp4.te", "nvfp4.te.2d", "mxfp4.rceil", "mxfp4.floor", "nvfp4.te.stochastic", "mxfp8_e4m3.rceil"]
)
def test_right_kernels_pass(dialect):
    report = testing.assert_kernel(kernel(dialect), dialect)
    assert report.accepted and report.cases > 20 and report.different == 0


def test_options_reach_the_kernel_and_the_judge():
    testing.assert_kernel(kernel(scale_layout="swizzled_32_4_4"), scale_layout="swizzled_32_4_4")
    testing.assert_kernel(lambda x: fp4lab.quantize(x, columnwise=True), columnwise=True)
    testing.assert_kernel(kernel(rounding="stochastic"), rounding="stochastic")
    report = testing.assert_kernel(lambda x: fp4lab.quantize(x, rht=True), rht=True)
    assert report.left_out > 0
    seen = set()

    def bf16(x):
        seen.add(x.dtype.name)
        return fp4lab.quantize(x)

    testing.assert_kernel(bf16, dtype="bfloat16")
    assert seen <= {"bfloat16", "uint16"} and len(seen) == 1


NAMED = {}


def wrong(dialect, **options):
    rht = options.get("rht", False)
    plain = {k.name for k in testing.wrong_kernels(dialect)} if rht else set()
    return [k for k in testing.wrong_kernels(dialect, **options) if k.name not in plain]


# No input of the cases shows these deviations of the dialect (see the tests of `cases`).
SILENT = {"mxfp4.rceil": {"saturation-missing"}}
# These take more cases than the quick level has.
THOROUGH = {("nvfp4.te.stochastic", "factor-encode-times-reciprocal")}
KERNELS = [
    (dialect, options, k)
    for dialect, options in (
        ("nvfp4.te", {}), ("nvfp4.te", {"rht": True}), ("mxfp4.rceil", {}),
        ("nvfp4.te.stochastic", {}),
    )
    for k in wrong(dialect, **options)
    if k.name not in SILENT.get(dialect, ())
]  # fmt: skip


@pytest.mark.sweep
@pytest.mark.parametrize(
    "dialect, options, k", KERNELS,
    ids=[f"{d}-{k.name}" + ("-rht" if o else "") for d, o, k in KERNELS],
)  # fmt: skip
def test_every_wrong_kernel_fails_and_is_named(dialect, options, k):
    level = "thorough" if (dialect, k.name) in THOROUGH else "quick"
    with pytest.raises(AssertionError) as error:
        testing.assert_kernel(k, dialect, level, scale_layout="swizzled_32_4_4", explained=3, **options)
    text = str(error.value)
    report = error.value.fp4lab_report
    causes = re.search(r"^cause: (.*?) \(explains", text, re.M)
    assert causes, text
    assert k.name in report.causes, (k.name, report.causes, text)
    NAMED[dialect, k.name] = report.causes[0] == k.name
    assert "to reproduce:" in text


@pytest.mark.sweep
def test_most_wrong_kernels_are_the_first_cause_named():
    if len(NAMED) < len(KERNELS):
        pytest.skip("needs the tests of all wrong kernels in one run")
    assert sum(NAMED.values()) >= 0.9 * len(NAMED), [k for k, first in NAMED.items() if not first]


def ties_away(x):
    k = next(k for k in testing.wrong_kernels(scale_layout="linear") if k.name == "ties-away")
    return k(x)


def test_a_failure_is_shrunk_to_a_block_and_its_reproducer_runs():
    with pytest.raises(AssertionError) as error:
        testing.assert_kernel(ties_away)
    text = str(error.value)
    size = re.search(r"smallest input found, (\d+)x(\d+) ", text)
    assert (size[1], int(size[2]) <= 16) == ("1", True), text
    assert "cause: ties-away" in text
    code = text.split("to reproduce:\n\n")[1]
    scope = {"kernel": ties_away}
    with pytest.raises(AssertionError, match="nvfp4.te: DIFFERENT"):
        exec(code, scope)
    right = {"kernel": kernel()}
    exec(code, right)  # and a right kernel passes it
    assert np.count_nonzero(right["x"]) <= 3


def test_exceptions_of_a_kernel_are_failures():
    def broken(x):
        if x.shape[0] > 16:
            raise RuntimeError("out of tiles")
        return kernel()(x)

    with pytest.raises(AssertionError, match="RuntimeError: out of tiles"):
        testing.assert_kernel(broken)


def test_declined_cases_are_counted():
    def picky(x):
        if x.shape[1] % 32:
            raise NotImplementedError
        return kernel()(x)

    with pytest.raises(AssertionError, match="declines .* of .* cases: allow_declined"):
        testing.assert_kernel(picky)
    assert testing.assert_kernel(picky, allow_declined=True).declined > 0

    def none(x):
        raise NotImplementedError

    with pytest.raises(AssertionError, match="declines all"):
        testing.assert_kernel(none, allow_declined=True)


def test_declined_cases_are_not_right_ones():
    def picky(fn):
        def kernel_(x):
            if x.shape[1] % 32:
                raise NotImplementedError
            return fn(x)

        return kernel_

    report = testing.assert_kernel(picky(kernel()), allow_declined=True)
    answered = report.cases - report.declined
    assert report.answered == answered < report.cases
    assert f"{answered} of {answered} cases" in report.text and f"declined {report.declined} of {report.cases}" in report.text
    with pytest.raises(AssertionError) as error:
        testing.assert_kernel(picky(ties_away), allow_declined=True)
    wrong = error.value.fp4lab_report
    assert f"{wrong.different} of {answered} cases differ; the kernel declined {wrong.declined} of {wrong.cases}" in str(error.value)


# ---- kernels that write into what they are given


def overwriting(change, fn=None):
    fn = fn or kernel()

    def kernel_(x, *random):
        answer = fn(x, *random)
        change(x)
        return answer

    return kernel_


def assign(x, values):
    x[...] = values


MUTATIONS = {
    "zeros": lambda x: x.fill(0),
    "abs": lambda x: np.abs(x, out=x),
    "times 2": lambda x: assign(x, np.clip(x, -1e30, 1e30) * np.float32(2)),
    "clip": lambda x: np.clip(x, -0.25, 0.25, out=x),
    "sorted": lambda x: x.sort(axis=1),
    "one element": lambda x: x.reshape(-1).view(np.uint32).__setitem__(0, 0x7FC00001),
    "another shape": lambda x: setattr(x, "shape", (x.size,)),
}


@pytest.mark.parametrize("change", MUTATIONS.values(), ids=MUTATIONS.keys())
def test_a_kernel_that_changes_its_input_fails(change):
    with pytest.raises(AssertionError) as error:
        testing.assert_kernel(overwriting(change))
    text, report = str(error.value), error.value.fp4lab_report
    assert report.mutations == report.different > 50 and not report.causes
    (line,) = [line for line in text.splitlines() if "changed its argument" in line]
    assert re.match(rf"  case \S+: the kernel changed its argument x: .* \(in {report.mutations} of 94 cases\)", line), line
    code = text.split("to reproduce:\n\n")[1]
    with pytest.raises(AssertionError):
        exec(code, {"kernel": overwriting(change)})
    exec(code, {"kernel": kernel()})


def test_a_changed_input_is_said_beside_wrong_bytes_and_in_bfloat16():
    def wrong_and_writing(x):
        answer = ties_away(np.asarray(x, np.float32))
        if x.shape[0] < 16:
            x[0, 0] = 7
        return answer

    with pytest.raises(AssertionError) as error:
        testing.assert_kernel(wrong_and_writing, dtype="bfloat16")
    text, report = str(error.value), error.value.fp4lab_report
    assert re.search(r"x: 1 of \d+ elements, the first at \[0, 0\]: \S+ became 7.0", text)
    assert 0 < report.mutations < report.different and report.causes == ()  # ties-away does not explain the writing
    assert ("ties-away", report.different - report.mutations) in report.partial


def test_random_bits_are_not_for_writing():
    def writes_bits(x, random):
        q = fp4lab.quantize(x, "nvfp4.te.stochastic", random=random)
        random[...] = 0
        return q

    with pytest.raises(AssertionError, match="changed its argument random"):
        testing.assert_kernel(writes_bits, "nvfp4.te.stochastic")


def test_a_kernel_that_writes_and_then_declines_fails():
    def declines(x):
        x.fill(0)
        raise NotImplementedError

    with pytest.raises(AssertionError, match="changed its argument x"):
        testing.assert_kernel(declines, allow_declined=True)


def test_a_kernel_may_reuse_the_memory_of_its_answer():
    memory = {}

    def reuses(x):
        q = fp4lab.quantize(x)
        codes, scales = (memory.setdefault(k, np.zeros(1 << 16, np.uint8)) for k in "cs")
        codes[: q.data.size], scales[: q.scale_inv.size] = q.data.reshape(-1), q.scale_inv.reshape(-1)
        return codes[: q.data.size], scales[: q.scale_inv.size], q.amax

    assert testing.assert_kernel(reuses).accepted

    def reuses_wrongly(x):
        codes, scales, amax = ties_away(x)
        out = memory["c"][: codes.size]
        out[...] = codes.reshape(-1)
        return out, scales, amax

    with pytest.raises(AssertionError, match=r"cause: ties-away \(explains all 14 failing cases\)"):
        testing.assert_kernel(reuses_wrongly)


@pytest.mark.parametrize("as_list", [False, True])
def test_a_stochastic_kernel_that_changes_its_input_fails(normal, as_list):
    x = normal[:16].copy()
    given, before = (x.tolist() if as_list else x), x.copy()

    def writes(x, i):
        q = fp4lab.quantize(x, rounding="stochastic", seed=i)
        x[0] = [0.0] * 128
        return q

    with pytest.raises(AssertionError, match=r"run 0: the kernel changed its argument x: \d+ of 2048 elements"):
        testing.assert_stochastic(writes, given)
    assert (np.asarray(given, np.float32) == before).all()
    shared = np.zeros((16, 64), np.uint8)

    def reuses(x, i):
        q = fp4lab.quantize(x, rounding="stochastic", seed=i)
        shared[...] = q.data
        return shared, q.scale_inv, q.amax

    testing.assert_stochastic(reuses, x)

    def declines(x, i):
        raise NotImplementedError

    with pytest.raises(AssertionError, match="declines the input"):
        testing.assert_stochastic(declines, x)


@pytest.mark.parametrize("operand", ["a", "b"])
@pytest.mark.parametrize("part", ["data", "scale_inv"])
def test_a_product_that_changes_its_operands_fails(operand, part):
    def writes(a, b, alpha):
        d = product(a, b, alpha)
        array = getattr({"a": a, "b": b}[operand], part)
        array[...] = array ^ 1
        return d

    with pytest.raises(AssertionError, match=rf"one block, 3x5x32: .*argument {operand}\.{part}: .* became"):
        testing.assert_product(writes)


def test_a_product_that_declines_cases_says_so():
    def picky(a, b, alpha):
        if a.shape[1] > 512:
            raise NotImplementedError
        return product(a, b, alpha)

    with pytest.raises(AssertionError, match="declines 2 of 6 cases .wide range, cancelling.: allow_declined"):
        testing.assert_product(picky)
    assert testing.assert_product(picky, allow_declined=True) == 4


def test_a_product_of_another_shape_or_type_fails_by_its_case():
    with pytest.raises(AssertionError, match="one block, 3x5x32: d: is 3x3; the product is 3x5"):
        testing.assert_product(lambda a, b, alpha: np.zeros((3, 3), np.float32))
    with pytest.raises(AssertionError, match="one block, 3x5x32: d has dtype object"):
        testing.assert_product(lambda a, b, alpha: None)
    with pytest.raises(fp4lab.Error, match='accumulation: "blok" is not one of'):
        testing.assert_product(product, "blok")


# ---- causes


def test_a_cause_explains_every_failing_case():
    def scaled(x):
        with np.errstate(over="ignore"):
            return fp4lab.quantize(x * np.float32(1.1))

    def scaled_at_places(x):
        factor = np.where(np.arange(x.shape[1]) % 3 == 0, np.float32(1.1), np.float32(1))
        with np.errstate(over="ignore"):
            return fp4lab.quantize(x * factor)

    with pytest.raises(AssertionError) as error:
        testing.assert_kernel(scaled)
    assert error.value.fp4lab_report.causes[0] == "input-times"
    with pytest.raises(AssertionError) as error:
        testing.assert_kernel(scaled_at_places)
    text, report = str(error.value), error.value.fp4lab_report
    assert report.causes == () and dict(report.partial)["input-fp16"] < report.different
    n = report.different
    assert f"cause: none of the table explains all {n} failing cases" in text
    assert re.search(rf"^input-fp16 explains \d+ of {n} failing cases; it is not the cause of all$", text, re.M)
    assert "fp4lab.identify" in text
    with pytest.raises(AssertionError) as error:
        testing.assert_kernel(ties_away, explained=1)
    assert "cause: ties-away (explains all 14 failing cases)" in str(error.value)


def test_two_causes_together_explain_every_failing_case():
    from fp4lab import _core

    inner = testing.wrong_kernels(scale_layout="linear")[0]._kernel

    def both(x):
        return _core.run_wrong_kernel(inner, x, ["ties-away", "codes-high-first"], [], None)

    with pytest.raises(AssertionError) as error:
        testing.assert_kernel(both)
    report = error.value.fp4lab_report
    assert report.causes == ("codes-high-first + ties-away",)
    assert dict(report.partial)["codes-high-first"] < report.different


def test_exceptions_are_not_explained_by_a_cause():
    def breaks(x):
        if x.shape[0] > 16:
            raise RuntimeError("out of tiles")
        return ties_away(x)

    with pytest.raises(AssertionError) as error:
        testing.assert_kernel(breaks)
    assert error.value.fp4lab_report.causes == ()


def test_no_explanations_are_no_search():
    with pytest.raises(AssertionError) as error:
        testing.assert_kernel(ties_away, explained=0)
    assert "causes were not searched for (explained=0)" in str(error.value)
    assert error.value.fp4lab_report.causes == () and "to reproduce" in str(error.value)
    with pytest.raises(fp4lab.Error, match="explained: -1"):
        testing.assert_kernel(kernel(), explained=-1)


def test_what_is_not_called_is_refused(normal):
    for fn in (None, 3, "kernel", fp4lab.quantize(normal)):
        for call in (testing.assert_kernel, testing.assert_product, lambda f: testing.assert_stochastic(f, normal)):
            with pytest.raises(TypeError, match="fn is .*: a kernel is a callable, called as fn"):
                call(fn)


def test_options_that_do_not_fit_are_no_differences():
    """They were counted as cases that differ."""
    for options in ({"rht": 64}, {"rht": 16.0}, {"sign_mask": 3}, {"random_bits": 5}, {"columnwise": 1}):
        with pytest.raises((fp4lab.Error, TypeError), match=next(iter(options))):
            testing.assert_kernel(kernel(), **options)
    for options in ({"samples": 0}, {"samples": 1.5}, {"error_rate": 0}, {"error_rate": "1"}):
        with pytest.raises((fp4lab.Error, TypeError), match=next(iter(options))):
            testing.assert_stochastic(lambda x, i: fp4lab.quantize(x), np.ones((1, 16), np.float32), **options)


def test_keys_of_a_dict_are_codes_scales_and_tensor_scale():
    def named(x):
        q = fp4lab.quantize(x)
        return {"codes": q.data, "scales": q.scale_inv, "tensor_scale": q.amax}

    assert testing.assert_kernel(named).accepted
    with pytest.raises(AssertionError, match="'scale'.*its keys are"):
        testing.assert_kernel(lambda x: {"codes": fp4lab.quantize(x).data, "scale": 1})


@pytest.mark.parametrize("answer", [None, 3, (1,), np.zeros(3)])
def test_answers_of_another_kind_are_named(answer):
    with pytest.raises(AssertionError, match="return a QTensor"):
        testing.assert_kernel(lambda x: answer)


def test_wrong_sizes_are_failures_with_the_right_size():
    with pytest.raises(AssertionError, match="bytes"):
        testing.assert_kernel(lambda x: (np.zeros(3, np.uint8), np.zeros(1, np.uint8)))


def test_zeros_do_not_pass():
    def null(x):
        q = fp4lab.quantize(x)
        return np.zeros_like(q.data), np.zeros_like(q.scale_inv), np.float32(0)

    with pytest.raises(AssertionError):
        testing.assert_kernel(null)


def test_assert_matches_has_the_explanation(normal):
    q = fp4lab.quantize(normal)
    assert testing.assert_matches(normal, q).equal
    high = q.to(nibbles="high-first")
    with pytest.raises(AssertionError, match="codes-high-first|high nibble"):
        testing.assert_matches(normal, high.data, high.scale_inv)
    random = np.random.default_rng(1).integers(0, 65536, normal.shape, np.uint16)
    sr = fp4lab.quantize(normal, rounding="stochastic", random=random)
    testing.assert_matches(normal, sr, sr=random)
    with pytest.raises(AssertionError):
        testing.assert_matches(normal, sr, sr=random[::-1])


def test_assert_same_bytes_names_the_first_difference(normal):
    a, b = fp4lab.quantize(normal), fp4lab.quantize(normal)
    testing.assert_same_bytes(a, b)
    b.data[3, 5] ^= 1
    with pytest.raises(AssertionError, match="data: 1 of 4096 bytes differ; the first at byte 197"):
        testing.assert_same_bytes(a, b)
    with pytest.raises(AssertionError, match="scale_layout: 'linear' and 'padded'"):
        testing.assert_same_bytes(a, a.to(scale_layout="padded"))
    with pytest.raises(AssertionError, match="amax"):
        testing.assert_same_bytes(a, fp4lab.QTensor(a.data, a.scale_inv, np.float32(1), a.shape))


def test_stochastic_kernels_are_judged_by_distribution(normal):
    x = normal[:16]

    def good(x, i):
        return fp4lab.quantize(x, rounding="stochastic", seed=i)

    assert "nvfp4.te" in testing.assert_stochastic(good, x)
    with pytest.raises(AssertionError):  # the same bits in every run
        testing.assert_stochastic(lambda x, i: good(x, 0), x)
    with pytest.raises(AssertionError):  # no rounding up at all
        testing.assert_stochastic(lambda x, i: fp4lab.quantize(x, rounding="toward_zero"), x)
    with pytest.raises(AssertionError):  # zeros (RTX 50 without cvt.rs)
        testing.assert_stochastic(
            lambda x, i: (np.zeros((16, 64), np.uint8), fp4lab.quantize(x).scale_inv), x
        )


def product(a, b, alpha, **options):
    return fp4lab.scaled_mm(a, b, alpha=alpha, **{"out_dtype": "float32", **options})


@pytest.mark.parametrize("accumulation", ["block", "exact", "fp32-sequential", "blackwell.mxf4.f32"])
def test_products_are_judged_under_their_accumulation(accumulation):
    def fn(a, b, alpha):
        return product(a, b, alpha, accumulation=accumulation)

    assert testing.assert_product(fn, accumulation) == 6
    other = "exact" if accumulation != "exact" else "block"
    with pytest.raises(AssertionError, match=f"equal to the last bit under: .*{re.escape(accumulation.replace('block', 'fp32-blocks'))}"):
        testing.assert_product(fn, other)


def test_a_bound_accepts_orders_and_refuses_wrong_products():
    def sequential(a, b, alpha):
        return product(a, b, alpha, accumulation="fp32-sequential")

    testing.assert_product(sequential, "block", exact=False)
    with pytest.raises(AssertionError, match="outside"):
        testing.assert_product(lambda a, b, alpha: product(a, b, 1.5 * alpha), exact=False)
    with pytest.raises(AssertionError) as error:
        testing.assert_product(lambda a, b, alpha: product(a, b, alpha) * 0)
    code = str(error.value).split("alone:\n\n")[1]
    exec(code, {"product": lambda a, b, alpha: product(a, b, alpha)})
    testing.assert_product(lambda a, b, alpha: product(a, b, alpha, out_dtype="bfloat16"))


def test_scaled_mm_equals_float64_within_the_bound(normal):
    a, b = fp4lab.quantize(normal[:24]), fp4lab.quantize(normal[24:])
    want = a.dequantize().astype(np.float64) @ b.dequantize().astype(np.float64).T
    got = fp4lab.scaled_mm(a, b, out_dtype="float32", accumulation="exact")
    assert np.abs(got - want).max() < 1e-5 * np.abs(want).max()
    bias = np.arange(40, dtype=np.float32)
    with_bias = fp4lab.scaled_mm(a, b, bias=bias, out_dtype="float32", accumulation="exact")
    assert (with_bias == got + bias).all()
    with pytest.raises(fp4lab.Error, match="bias: 3 numbers; the product has 40 columns"):
        fp4lab.scaled_mm(a, b, bias=bias[:3])
    with pytest.raises(fp4lab.Error, match="a has K = 128, b has K = 112"):
        fp4lab.scaled_mm(a, fp4lab.quantize(normal[:, :112]))
    with pytest.raises(fp4lab.Error, match="exact"):
        fp4lab.scaled_mm(a, b, accumulation="exakt")
    with pytest.raises(TypeError, match="a QTensor is multiplied"):
        fp4lab.scaled_mm(normal, b)
    for rule in ("kernel", "reference", "jax"):
        y = fp4lab.scaled_mm(a, b, alpha=rule, out_dtype="float32")
        assert np.abs(y - want).max() < 1e-5 * np.abs(want).max()
    columns = fp4lab.quantize(normal[24:].T.copy(), columnwise=True)
    assert (fp4lab.scaled_mm(a, columns, out_dtype="float32")
            == fp4lab.scaled_mm(a, b, out_dtype="float32")).all()  # fmt: skip


def test_identify_names_dialect_and_layout(normal):
    for name, layout in (("nvfp4.te", "128x4"), ("mxfp4.floor", "linear"), ("nvfp4.modelopt", "linear")):
        q = fp4lab.quantize(normal, name, scale_layout=layout)
        found = fp4lab.identify(normal, q)
        assert found and any(m.startswith(name + ",") and layout in m for m in found.matches)
    q = fp4lab.quantize(normal)
    assert not fp4lab.identify(normal, q.data ^ 0x11, q.scale_inv)


def test_explain_of_equal_bytes_and_its_reproducer(normal):
    q = fp4lab.quantize(normal)
    assert fp4lab.explain(normal, q).verdict == "equal"
    codes = q.to(nibbles="bytes").data.copy()
    codes[7, 35] ^= 1
    report = fp4lab.explain(normal, codes, q.scale_inv)
    assert not report and report.reproducer is not None
    assert (report.reproducer.row, report.reproducer.col) == (7, 32)
    assert (report.reproducer.x == normal[7:8, 32:48]).all()
    assert "def test" in report.reproducer.pytest and "#include" in report.reproducer.cpp


def test_verify_refuses_what_does_not_fit(normal):
    q = fp4lab.quantize(normal)
    with pytest.raises(fp4lab.Error, match="4096"):
        fp4lab.verify(normal, q.data[:-1], q.scale_inv)
    with pytest.raises(ValueError, match="x is 63x128"):
        fp4lab.verify(normal[1:], q)
    with pytest.raises(TypeError, match="float32"):
        fp4lab.verify(normal, normal, q.scale_inv)
    with pytest.raises(ValueError, match="leave them out"):
        fp4lab.verify(normal, q, q.scale_inv)
    wrong = fp4lab.verify(normal, q.data, q.scale_inv, tensor_scale=q.amax * 2)
    assert not wrong and not wrong.tensor_scale_ok and wrong.codes_different == 0
    assert fp4lab.verify(normal, q.data, q.scale_inv, tensor_scale=q.tensor_scale("multiplier"),
                         tensor_scale_is="multiplier")  # fmt: skip


# ---- grouped products and attention


def grouped(a, b, ends, sizes, alphas, weights=lambda g: g, accumulation="block"):
    d = np.zeros((a.shape[0], b[0].shape[0]), np.float32)
    for g, (begin, size, alpha) in enumerate(zip([0, *ends], sizes, alphas)):
        rows = slice(int(begin), int(begin + size))
        part = dataclasses.replace(a, data=a.data[rows], scale_inv=a.scale_inv[rows], shape=(int(size), a.shape[1]))
        if size:
            d[rows] = fp4lab.scaled_mm(part, b[weights(g) % len(b)], alpha=float(alpha), out_dtype="float32",
                                       accumulation=accumulation)  # fmt: skip
    return d


@pytest.mark.parametrize("padded_to", [1, 16, 128])
@pytest.mark.parametrize("dialect", ["nvfp4.te", "mxfp4.rceil"])
def test_right_grouped_products_pass(dialect, padded_to):
    assert testing.assert_grouped(grouped, dialect=dialect, padded_to=padded_to) == 4
    sequential = functools.partial(grouped, accumulation="fp32-sequential")
    assert testing.assert_grouped(sequential, dialect=dialect, padded_to=padded_to, exact=False) == 4


def test_a_wrong_grouped_product_has_its_group_rectangle_and_cause():
    with pytest.raises(AssertionError) as error:
        testing.assert_grouped(functools.partial(grouped, weights=lambda g: g + 1), exact=False)
    text = str(error.value)
    assert "empty groups, 161 rows in 7 groups: outside" in text
    assert "cause: the kernel takes the weights of the next group (weights-of-next-group)" in text

    def half(a, b, ends, sizes, alphas):
        d = grouped(a, b, ends, sizes, alphas)
        d[int(ends[1]) - 3 : int(ends[1]), 8:] = 0
        return d

    with pytest.raises(AssertionError, match=r"group 1, rows 0\.\.19: 24 elements differ, 24 outside, in rows "
                                             r"17\.\.19 and columns 8\.\.15 of the group"):  # fmt: skip
        testing.assert_grouped(half)
    with pytest.raises(AssertionError, match="padding: .* elements are not zero, the first in row 20"):
        testing.assert_grouped(lambda *given: grouped(*given) + np.float32(1), padded_to=16)


def test_a_grouped_product_may_decline_and_may_not_write():
    def picky(a, b, ends, sizes, alphas):
        if len(b) > 4:
            raise NotImplementedError
        return grouped(a, b, ends, sizes, alphas)

    with pytest.raises(AssertionError, match="declines 2 of 4 cases"):
        testing.assert_grouped(picky)
    assert testing.assert_grouped(picky, allow_declined=True) == 2

    def writes(a, b, ends, sizes, alphas):
        d = grouped(a, b, ends, sizes, alphas)
        b[1].data[...] ^= 1
        return d

    with pytest.raises(AssertionError, match=r"changed its argument b\[1\]\.data"):
        testing.assert_grouped(writes)

    def moves(a, b, ends, sizes, alphas):
        ends[0] += 1
        return np.zeros((a.shape[0], b[0].shape[0]), np.float32)

    with pytest.raises(AssertionError, match="changed its argument ends"):
        testing.assert_grouped(moves)
    with pytest.raises(AssertionError, match="the product is 161x16"):
        testing.assert_grouped(lambda *given: np.zeros((3, 3), np.float32))
    with pytest.raises(TypeError, match="fn is"):
        testing.assert_grouped(None)
    with pytest.raises(fp4lab.Error, match="padded_to"):
        testing.assert_grouped(grouped, padded_to=0)


def attention(scheme, deviations=(), output="bf16"):
    """The library's own kernel, right or wrong."""
    from fp4lab import _core
    from fp4lab._arrays import bf16_bits, bf16_view

    def numbers(x):
        return (np.ascontiguousarray(x).view(np.uint16).astype(np.uint32) << 16).view(np.float32)

    def kernel(q, k, v, scale, causal):
        rows = [numbers(x).reshape(-1, x.shape[-1]) for x in (q, k, v)]
        o = _core.attention(*rows, (len(q), len(k)), scale, causal, output, scheme, list(deviations))
        o = o.reshape(q.shape)
        return bf16_view(bf16_bits(o)) if output == "bf16" else o

    return kernel


@pytest.mark.parametrize("scheme", ["bf16", "bf16.flashinfer", "fp8", "sageattention3", "flashinfer.sm120", "attn-qat",
                                    "attn-qat.one-level", "nvfp4-kv", "mxfp4"])  # fmt: skip
def test_right_attention_passes(scheme):
    assert testing.assert_attention(attention(scheme), scheme) >= 3
    assert testing.assert_attention(attention(scheme, output="f32"), scheme) >= 3


@pytest.mark.parametrize("deviation", ["scale-missing", "mask-one-key-more", "kv-heads-interleaved", "weights-not-rounded"])
def test_a_wrong_attention_has_its_cause(deviation):
    with pytest.raises(AssertionError) as error:
        testing.assert_attention(attention("mxfp4", [deviation]), "mxfp4")
    text = str(error.value)
    assert f"({deviation})" in text and "in heads " in text and "queries" in text


def test_an_attention_of_another_library_passes():
    def numbers(x):
        return (x.view(np.uint16).astype(np.uint32) << 16).view(np.float32)

    def kernel(q, k, v, scale, causal, last=0):
        share = len(q) // len(k)
        q, k, v = numbers(q), np.repeat(numbers(k), share, 0), np.repeat(numbers(v), share, 0)
        y = (q @ k.transpose(0, 2, 1)) * np.float32(scale)
        if causal:
            y = np.where(np.tri(*y.shape[1:], y.shape[2] - y.shape[1] + last, dtype=bool), y, np.float32(-np.inf))
        with np.errstate(invalid="ignore"):
            p = np.exp(y - y.max(axis=2, keepdims=True))
            return np.nan_to_num(p @ v / p.sum(axis=2, keepdims=True))

    assert testing.assert_attention(kernel, "bf16") == 7
    with pytest.raises(AssertionError, match=r"\(mask-one-key-more\)"):
        testing.assert_attention(functools.partial(kernel, last=1), "bf16")
    with pytest.raises(AssertionError, match="changed its argument k"):
        testing.assert_attention(lambda q, k, v, scale, causal: k.fill(0), "bf16")
    with pytest.raises(fp4lab.Error, match="scheme"):
        testing.assert_attention(kernel, "bf17")
    with pytest.raises(AssertionError, match="declines every case"):
        testing.assert_attention(lambda *given: (_ for _ in ()).throw(NotImplementedError()), "bf16")
