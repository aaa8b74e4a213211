"""Arguments that would be lost, cut or read as something else are refused with one line that names them."""

import warnings

import fp4lab
import numpy as np
import pytest
from fp4lab import testing


@pytest.fixture(scope="module")
def x():
    return np.random.default_rng(1).standard_normal((8, 64), np.float32)


@pytest.fixture(scope="module")
def q(x):
    return fp4lab.quantize(x)


def refused(call, kind, message):
    with pytest.raises(kind, match=message) as error:
        call()
    assert "\n" not in str(error.value)


# ---- decode


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int16, np.uint32, np.int64, np.uint64])
def test_codes_are_integers_of_any_width(dtype):
    want = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
    assert fp4lab.decode(np.arange(8, dtype=dtype)).tolist() == want
    assert fp4lab.decode(np.arange(16, dtype=dtype)[::2].reshape(2, 4)).tolist() == [[0, 1, 2, 4], [0, -1, -2, -4]]


def test_lists_and_numbers_are_codes():
    assert fp4lab.decode([0, 1, 2]).tolist() == [0, 0.5, 1]
    assert fp4lab.decode([[7], [15]]).tolist() == [[6], [-6]]
    assert fp4lab.decode(7) == 6 and fp4lab.decode([]).shape == (0,)


@pytest.mark.parametrize(
    "codes, where", [([16], r"codes\[0\]: 16"), (255, "codes: 255"), ([0, -1], r"codes\[1\]: -1"),
                     (np.array([[1, 2], [3, 2**40]]), r"codes\[1, 1\]: 1099511627776")]
)  # fmt: skip
def test_integers_that_are_no_code_are_refused(codes, where):
    refused(lambda: fp4lab.decode(codes), fp4lab.Error, where + r" is not in 0\.\.15.*float4_e2m1fn")


def test_the_range_is_the_formats():
    assert fp4lab.decode([0x7E], "e4m3")[0] == 448 and fp4lab.decode([31], "float6_e2m3fn")[0] == 7.5
    refused(lambda: fp4lab.decode([64], "float6_e2m3fn"), fp4lab.Error, r"0\.\.63")
    refused(lambda: fp4lab.decode([256], "e4m3"), fp4lab.Error, r"0\.\.255")
    assert fp4lab.decode([0x3F80], "bfloat16")[0] == 1


@pytest.mark.parametrize(
    "codes", [np.zeros(3, np.float32), np.zeros(3, np.float16), [1.0], [True, False], np.zeros(3, np.complex64),
              np.array([1, None]), "5", np.zeros(2, "datetime64[s]"), np.ma.array([1, 2]), [np.ma.array([1, 2])]]
)  # fmt: skip
def test_other_types_are_no_codes(codes):
    refused(lambda: fp4lab.decode(codes), TypeError, "codes (has|is)")


def test_arrays_of_the_format_itself_are_decoded():
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is absent")
    values = np.array([0.5, -6, 3], np.float32)
    for name in ("float4_e2m1fn", "float8_e4m3fn", "float6_e3m2fn"):
        theirs = values.astype(getattr(ml_dtypes, name))
        assert (fp4lab.decode(theirs, name) == values).all()
        refused(lambda: fp4lab.decode(theirs, "float8_e5m2"), TypeError, f"codes has dtype {name}")


# ---- numbers that are integers


@pytest.mark.parametrize("value", [1.7, 1.0, "5", None, True, np.True_, np.float32(1), [1]])
@pytest.mark.parametrize("name", ["step", "tensor", "threads", "rht", "sign_mask", "random_bits", "seed"])
def test_what_counts_is_an_integer(x, name, value):
    if (name, value) in (("seed", None), ("threads", None), ("sign_mask", "5")) or (name == "rht" and value in (True,)):
        return  # these are taken
    options = {"rounding": "stochastic", "seed": 1, name: value}
    for call in (fp4lab.quantize, fp4lab.qdq):
        if call is fp4lab.qdq and name in ("rht", "sign_mask"):
            continue
        refused(lambda: call(x, **options), TypeError, f"{name} is .*an integer is taken")


def test_numpy_integers_are_integers(x):
    a = fp4lab.quantize(x, rounding="stochastic", seed=np.uint64(5), step=np.int8(2), threads=np.int64(1))
    testing.assert_same_bytes(a, fp4lab.quantize(x, rounding="stochastic", seed=5, step=2))


@pytest.mark.parametrize(
    "options, where",
    [({"seed": -1}, "seed: -1 is not in 0..2^64 - 1"), ({"seed": 2**64}, "seed: 18446744073709551616"),
     ({"seed": 1, "step": 2**32}, "step: 4294967296 is not in 0..2^32 - 1"), ({"seed": 1, "tensor": -1}, "tensor: -1"),
     ({"seed": 1, "threads": 0}, "threads: 0 is not in 1..1024"), ({"seed": 1, "threads": 10**30}, "threads: 1000"),
     ({"seed": 1, "random_bits": 5}, "random_bits: 5 is not one of: 4, 8, 16, 32"),
     ({"seed": 1, "rht": 16, "sign_mask": 2**32}, "sign_mask: 4294967296"), ({"seed": 1, "rht": -16}, "rht: -16")],
)  # fmt: skip
def test_integers_outside_of_their_range_are_ours_to_name(x, options, where):
    import re

    refused(lambda: fp4lab.quantize(x, rounding="stochastic", **options), fp4lab.Error, re.escape(where))


def test_torch_numbers_are_integers_or_not(x):
    torch = pytest.importorskip("torch", reason="torch is absent")
    sr = {"rounding": "stochastic"}
    testing.assert_same_bytes(fp4lab.quantize(x, **sr, seed=torch.tensor(5)), fp4lab.quantize(x, **sr, seed=5))
    refused(lambda: fp4lab.quantize(x, **sr, seed=torch.tensor(True)), TypeError, "not a bool")
    refused(lambda: fp4lab.quantize(x, **sr, seed=torch.tensor(5.0)), TypeError, "an integer is taken")
    assert fp4lab.decode(torch.arange(4)).tolist() == [0, 0.5, 1, 1.5]
    for codes in (torch.zeros(3), torch.tensor([True]), torch.zeros(2, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)):
        refused(lambda: fp4lab.decode(codes), TypeError, "codes has dtype (float32|bool|float4_e2m1fn_x2): integers")
    assert fp4lab.decode(torch.tensor([1.0]).to(torch.float8_e4m3fn), "e4m3").tolist() == [1]


def test_counts_of_other_functions(x, q):
    refused(lambda: fp4lab.verify(x, q, first=-1), fp4lab.Error, "first: -1")
    refused(lambda: fp4lab.verify(x, q, first=1.5), TypeError, "first is 1.5")
    refused(lambda: fp4lab.cases(seed=-1), fp4lab.Error, "seed: -1")
    refused(lambda: fp4lab.cases(seed="1"), TypeError, "seed is '1'")
    refused(lambda: fp4lab.te_words((8, 64), (1.5, 0)), TypeError, r"rng_state\[0\] is 1.5")
    refused(lambda: fp4lab.te_words((8.5, 64), (1, 0)), TypeError, r"shape\[0\] is 8.5")
    refused(lambda: fp4lab.te_words((8, 64), 5), TypeError, "rng_state: two integers")
    refused(lambda: fp4lab.QTensor(q.data, q.scale_inv, q.amax, (8.5, 64)), TypeError, r"shape\[0\] is 8.5")
    refused(lambda: fp4lab.rht(np.ones((1, 16), np.float32), size=16.0), TypeError, "size is 16.0")
    refused(lambda: fp4lab.scaled_mm(q, q, threads=-1), fp4lab.Error, "threads: -1")
    refused(lambda: fp4lab.scaled_mm(q, q, alpha=True), TypeError, "alpha is True")
    refused(lambda: testing.assert_kernel(fp4lab.quantize, explained=1.5), TypeError, "explained is 1.5")
    refused(lambda: testing.assert_kernel(fp4lab.quantize, seed="1"), TypeError, "seed is '1'")
    refused(lambda: testing.assert_product(fp4lab.scaled_mm, seed=1.5), TypeError, "seed is 1.5")


def test_switches_are_booleans(x, q):
    for name in ("columnwise", "both", "expanded_scales"):
        refused(lambda: fp4lab.quantize(x, **{name: 1}), TypeError, f"{name} is 1: True or False")
    refused(lambda: fp4lab.verify(x, q, check_padding="no"), TypeError, "check_padding is 'no'")
    refused(lambda: testing.assert_kernel(fp4lab.quantize, shrink=0), TypeError, "shrink is 0")


# ---- arguments that the others leave without an effect


def test_one_source_of_random_bits(x):
    fields = np.zeros(x.shape, np.uint16)
    sr = {"rounding": "stochastic"}
    te = {"rng_state": (1, 2), "te_kernel": "tuned"}
    for call in (fp4lab.quantize, fp4lab.qdq):
        refused(lambda: call(x, **sr, seed=1, random=fields), fp4lab.Error, "seed: random")
        refused(lambda: call(x, **sr, random=fields, step=1), fp4lab.Error, "step: .*seed")
        refused(lambda: call(x, generator="word_per_row"), fp4lab.Error, "generator: .*seed")
        refused(lambda: call(x, random_bits=8), fp4lab.Error, "random_bits: only")
    refused(lambda: fp4lab.quantize(x, **sr, **te, seed=1), fp4lab.Error, "rng_state: seed")
    refused(lambda: fp4lab.quantize(x, **sr, **te, random=fields), fp4lab.Error, "rng_state: random")
    refused(lambda: fp4lab.quantize(x, **te), fp4lab.Error, 'rng_state: rounding to nearest.*rounding="stochastic"')
    refused(lambda: fp4lab.quantize(x, rounding="nearest", **te), fp4lab.Error, "rng_state: rounding to nearest")
    refused(lambda: fp4lab.quantize(x, **sr, **te, random_bits=32), fp4lab.Error, "random_bits: 32")
    refused(lambda: fp4lab.quantize(x, te_kernel="nonsense"), fp4lab.Error, "te_kernel: it is of rng_state")
    refused(lambda: fp4lab.quantize(x, **sr, rng_state=(1, 2), te_kernel="nonsense"), fp4lab.Error,
            'te_kernel: "nonsense" is not one of: tuned')  # fmt: skip
    assert fp4lab.quantize(x, "nvfp4.te.stochastic", **te).data.size


def test_signs_are_of_a_transform(x, q):
    for call in (fp4lab.quantize, fp4lab.amax, lambda a, **o: fp4lab.verify(a, q, **o)):
        refused(lambda: call(x, sign_mask=5), fp4lab.Error, "sign_mask: there is no transform")
    refused(lambda: testing.wrong_kernels(sign_mask=5), fp4lab.Error, "sign_mask: there is no transform")


def test_a_qtensor_states_its_own_layout(x, q):
    for options in ({"scale_layout": "128x4"}, {"nibbles": "bytes"}, {"columnwise": True}, {"expanded_scales": True}):
        refused(lambda: fp4lab.verify(x, q, **options), fp4lab.Error, f"{next(iter(options))}: .*QTensor states")
    assert fp4lab.verify(x, q, scale_layout="linear", nibbles="low-first")
    refused(lambda: fp4lab.verify(x, q, tensor_scale_is="divisor"), fp4lab.Error, "tensor_scale_is")
    assert fp4lab.verify(x, q, tensor_scale=q.tensor_scale("divisor"), tensor_scale_is="divisor")
    refused(lambda: fp4lab.verify(x, q.data, q.scale_inv, tensor_scale_is="divisor"), fp4lab.Error, "there is no tensor_scale")
    refused(lambda: fp4lab.identify(x, q, q.scale_inv), fp4lab.Error, "leave them out")


# ---- masked arrays


def test_masks_are_not_lost(x, q):
    masked = np.ma.masked_array(x, mask=x > 1)
    bits = np.ma.masked_array(np.zeros(x.shape, np.uint16))
    message = r"masked array.*filled\(0\)"
    for call in (fp4lab.quantize, fp4lab.qdq, fp4lab.amax, fp4lab.rht, fp4lab.encode, lambda a: fp4lab.verify(a, q),
                 lambda a: fp4lab.identify(a, q), lambda a: fp4lab.replay(a, np.zeros((8, 16), np.uint32)),
                 lambda a: fp4lab.verify_mm(q, q, a), lambda a: fp4lab.quantize([a[0], a[1]])):  # fmt: skip
        refused(lambda: call(masked), TypeError, message)
    refused(lambda: fp4lab.quantize(x, rounding="stochastic", random=bits), TypeError, message)
    refused(lambda: fp4lab.quantize(x, amax=np.ma.array(9.0)), TypeError, message)
    refused(lambda: fp4lab.replay(x, np.ma.zeros((8, 16), np.uint32)), TypeError, message)
    refused(lambda: fp4lab.verify(x, np.ma.array(q.data), q.scale_inv), TypeError, message)
    refused(lambda: fp4lab.verify(x, q.data, np.ma.array(q.scale_inv)), TypeError, message)
    refused(lambda: fp4lab.qdq(x, out=np.ma.zeros(x.shape, np.float32)), ValueError, "out:")


# ---- shapes


def test_shapes_of_the_right_size_that_are_wrong(x, q):
    data, scales = q.data, q.scale_inv
    assert fp4lab.verify(x, data.reshape(-1), scales.reshape(-1))
    assert fp4lab.verify(x.reshape(2, 4, 64), data.reshape(2, 4, 32), scales.reshape(2, 4, 4))
    assert fp4lab.verify(x, data.reshape(8, 4, 8), scales)  # a block a row of the last axis
    for codes in (data.T, data.reshape(16, 16), data.reshape(1, -1), data.reshape(4, 64)):
        refused(lambda: fp4lab.verify(x, codes, scales), fp4lab.Error, r"codes: is .* 8x64 matrix are 8x32.*identify")
    for wrong in (scales.T, scales.reshape(16, 2), scales.reshape(1, 32)):
        refused(lambda: fp4lab.verify(x, data, wrong), fp4lab.Error, r"scales: is .* 8x64 matrix are 8x4.*identify")
    refused(lambda: fp4lab.QTensor(data.T, scales, q.amax, q.shape).dequantize(), fp4lab.Error, "codes: is 32x8")
    refused(lambda: fp4lab.QTensor(data, scales.T, q.amax, q.shape).to(nibbles="bytes"), fp4lab.Error, "scales: is 4x8")
    random = np.zeros(x.shape, np.uint16)
    sr = {"rounding": "stochastic"}
    refused(lambda: fp4lab.quantize(x, **sr, random=random.T), fp4lab.Error, "random: is 64x8")
    refused(lambda: fp4lab.quantize(x, **sr, random=random, columnwise=True), fp4lab.Error, "random: is 8x64")
    assert fp4lab.quantize(x, **sr, random=random.T, columnwise=True).data.size
    refused(lambda: fp4lab.replay(x, np.zeros((16, 8), np.uint32)), fp4lab.Error, "words: is 16x8")
    refused(lambda: fp4lab.scaled_mm(q, q, bias=np.zeros((8, 1), np.float32)), fp4lab.Error, "bias: is 8x1")


def test_swizzled_scales_have_the_shapes_of_several_code_bases():
    x = np.random.default_rng(2).standard_normal((200, 144), np.float32)
    q = fp4lab.quantize(x, scale_layout="128x4")
    assert q.scale_inv.shape == (256, 12)
    for shape in ((256, 12), (1, 3072), (2, 3, 32, 16), (2, 3, 32, 4, 4), (64, 48)):  # the last: torchao's
        assert fp4lab.verify(x, q.data, q.scale_inv.reshape(shape), scale_layout="128x4"), shape
    refused(lambda: fp4lab.verify(x, q.data, q.scale_inv.reshape(12, 256), scale_layout="128x4"), fp4lab.Error,
            "scales: is 12x256; 128x4 scales of a 200x144 matrix are 256x12")  # fmt: skip


def test_size_errors_point_at_identify(x, q):
    refused(lambda: fp4lab.verify(x, q.data[:-1], q.scale_inv), fp4lab.Error, "fp4lab.identify")
    refused(lambda: fp4lab.verify(x, q.data, q.scale_inv[:-1]), fp4lab.Error, "fp4lab.identify")


# ---- amax


def test_an_amax_is_a_magnitude(x, q):
    for call in (fp4lab.quantize, fp4lab.qdq, lambda a, **o: fp4lab.verify(a, q, **o),
                 lambda a, **o: fp4lab.identify(a, q, **o), lambda a, **o: fp4lab.explain(a, q, **o),
                 lambda a, **o: fp4lab.replay(a, np.zeros((8, 16), np.uint32), **o)):  # fmt: skip
        refused(lambda: call(x, amax=-1.0), fp4lab.Error, "amax: -1.0 is negative")
        refused(lambda: call(x, amax=np.nan), fp4lab.Error, "amax: is nan")
        refused(lambda: call(x, amax=np.inf), fp4lab.Error, "amax: is inf")
        refused(lambda: call(x, amax=1e300), fp4lab.Error, r"amax: is 1e\+300")  # Inf as a float32
        refused(lambda: call(x, amax=10**400), fp4lab.Error, "amax: 1000.* is beyond every float")
        refused(lambda: call(x, amax="3"), TypeError, "amax is '3'")
        refused(lambda: call(x, amax=True), TypeError, "amax is True")
        for small in (0, 0.5, np.float32(1)):
            with pytest.warns(fp4lab.AmaxWarning, match="amax: .* is less than the largest magnitude") as caught:
                call(x, amax=small)
            assert caught[0].filename == __file__
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            call(x, amax=q.amax)
            call(x, amax=1000)


def test_an_amax_is_compared_with_what_is_quantized(x):
    few = fp4lab._arrays.as_dtype(x, "bfloat16").astype(np.float32)
    turned = fp4lab.amax(few, rht=True)
    assert turned != np.abs(few).max()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fp4lab.quantize(few, rht=True, amax=turned)
        rows = np.abs(x).max(axis=1)
        fp4lab.quantize(x, "nvfp4.te.row-scaled", amax=rows)
        fp4lab.quantize(np.array([[np.inf] * 16], np.float32), amax=np.inf)
    with pytest.warns(fp4lab.AmaxWarning):
        fp4lab.quantize(few, rht=True, amax=np.nextafter(turned, np.float32(0)))
    rows[3] /= 2
    with pytest.warns(fp4lab.AmaxWarning, match=r"amax\[3\]"):
        fp4lab.quantize(x, "nvfp4.te.row-scaled", amax=rows)
    refused(lambda: fp4lab.QTensor(*(lambda q: (q.data, q.scale_inv, -1.0, q.shape))(fp4lab.quantize(x))).dequantize(),
            fp4lab.Error, "amax: -1.0 is negative")  # fmt: skip


# ---- names


def test_a_name_alone_is_a_list_of_one(x, q):
    some = list(fp4lab.cases(families="element-ties"))
    assert some and {c.family for c in some} == {"element-ties"}
    assert [c.name for c in fp4lab.cases(families=("randn",))] == [c.name for c in fp4lab.cases(families="randn")]
    refused(lambda: fp4lab.cases(families="element-tie"), fp4lab.Error, "element-ties")
    found = fp4lab.identify(x, q, dialects="nvfp4.te")
    assert found and all(m.startswith("nvfp4.te,") for m in found.matches)
    assert testing.assert_kernel(fp4lab.quantize, families="element-ties").cases == len(some)
    assert len(list(fp4lab.cases(families=None))) == len(list(fp4lab.cases()))


def test_the_programs_spellings_are_taken(x):
    q = fp4lab.quantize(x, scale_layout="128x4")
    testing.assert_same_bytes(q, fp4lab.quantize(x, scale_layout="swizzled_32_4_4"))
    assert fp4lab.verify(x, q.data, q.scale_inv, scale_layout="128x4", tensor_scale_is="none")
    a = fp4lab.scaled_mm(q, q, out_dtype="f32", accumulation="fp32-blocks")
    assert a.dtype == np.float32 and (a == fp4lab.scaled_mm(q, q, out_dtype="float32")).all()
    few = np.round(x * 8) / 8
    te = fp4lab.quantize(few, rht=16, sign_mask="te")
    testing.assert_same_bytes(te, fp4lab.quantize(few, rht=True))
    testing.assert_same_bytes(te, fp4lab.quantize(few, rht=True, sign_mask="0xD7E8"))
    none = fp4lab.quantize(few, rht=True, sign_mask="none")
    testing.assert_same_bytes(none, fp4lab.quantize(few, rht=True, sign_mask=0))
    refused(lambda: fp4lab.quantize(few, rht=True, sign_mask="some"), fp4lab.Error, 'sign_mask: "some"')
    assert testing.assert_kernel(lambda x: fp4lab.quantize(x), dtype="bf16").accepted


def test_unknown_names_are_one_line(x, q):
    for options in ({"scale_layout": "128x5"}, {"nibbles": "low"}, {"tensor_scale_is": "amx"}):
        name = next(iter(options))
        refused(lambda: fp4lab.verify(x, q.data, q.scale_inv, **options), fp4lab.Error, f"{name}: .* is not one of")
        refused(lambda: testing.assert_kernel(fp4lab.quantize, **options), fp4lab.Error, f"{name}: .* is not one of")
    for call in (lambda: fp4lab.quantize(x, scale_layout=["linear"]), lambda: fp4lab.quantize(x, nibbles=3),
                 lambda: fp4lab.quantize(x, rounding=3), lambda: fp4lab.scaled_mm(q, q, accumulation=3)):  # fmt: skip
        refused(call, TypeError, "a name is taken")


def test_a_matrix_without_columns(x):
    a, b = (fp4lab.quantize(np.zeros((rows, 0), np.float32)) for rows in (4, 3))
    assert (fp4lab.scaled_mm(a, b, out_dtype="float32") == np.zeros((4, 3))).all()
    refused(lambda: fp4lab.verify_mm(a, b, np.zeros((2, 3), np.float32)), fp4lab.Error, "the product is 4x3")
