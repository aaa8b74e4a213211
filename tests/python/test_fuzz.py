"""Random arrays, layouts and answers: no crash, and the right bytes or one clear exception."""

import fp4lab
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

DIALECTS = [d.name for d in fp4lab.dialects() if not d.takes_random_bits]
QUICK = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
FLOATS = hnp.arrays(
    np.uint32, hnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=40),
    elements=st.integers(0, 2**32 - 1),
).map(lambda bits: bits.view(np.float32))  # fmt: skip


@QUICK
@given(FLOATS, st.sampled_from(DIALECTS), st.booleans())
def test_any_bits_are_quantized_as_verify_expects(x, dialect, columnwise):
    q = fp4lab.quantize(x, dialect, columnwise=columnwise)
    assert fp4lab.verify(x, q)
    assert q.dequantize().shape == x.shape


@QUICK
@given(FLOATS, st.sampled_from(DIALECTS))
def test_qdq_is_quantize_and_dequantize(x, dialect):
    a, b = fp4lab.qdq(x, dialect), fp4lab.quantize(x, dialect).dequantize()
    assert ((a == b) | (np.isnan(a) & np.isnan(b))).all()


@QUICK
@given(
    FLOATS,
    st.sampled_from(["nvfp4.te", "mxfp4.floor", "nvfp4.te.2d"]),
    st.sampled_from(["linear", "padded", "swizzled_32_4_4", "8x4"]),
    st.sampled_from(["low-first", "high-first", "split-halves", "bytes"]),
    st.booleans(),
)
def test_layouts_keep_values(x, dialect, scales, nibbles, expanded):
    q = fp4lab.quantize(x, dialect)
    moved = q.to(scale_layout=scales, nibbles=nibbles, expanded_scales=expanded)
    back = moved.to(scale_layout="linear", nibbles="low-first", expanded_scales=False)
    assert (back.data == q.data).all() and (back.scale_inv == q.scale_inv).all()
    assert fp4lab.verify(x, moved)


@QUICK
@given(
    st.sampled_from([np.float32, np.float16, np.float64, np.int8, np.uint8, np.uint16, np.bool_, np.complex64]),
    hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=9),
    st.data(),
)
def test_any_array_is_quantized_or_refused_by_type_or_rank(dtype, shape, data):
    x = data.draw(hnp.arrays(dtype, shape))
    if x.ndim and data.draw(st.booleans()):
        x = x[tuple(slice(None, None, data.draw(st.sampled_from([1, 2, -1]))) for _ in x.shape)]
    try:
        q = fp4lab.quantize(x)
    except (TypeError, ValueError) as error:
        assert x.dtype not in (np.float32, np.float16, np.uint16) or x.ndim == 0
        assert "\n" not in str(error)
        return
    values = x if x.dtype == np.uint16 else x.astype(np.float32)
    assert q.shape[1] == x.shape[-1]
    if values.size:
        assert fp4lab.verify(values, q)


@QUICK
@given(FLOATS, st.binary(max_size=200), st.binary(max_size=60), st.sampled_from(DIALECTS))
def test_answers_of_any_size_are_judged_or_refused(x, codes, scales, dialect):
    try:
        verdict = fp4lab.verify(x, np.frombuffer(codes, np.uint8), np.frombuffer(scales, np.uint8), dialect)
    except ValueError as error:
        assert "\n" not in str(error)
        return
    assert verdict.codes_total == x.size
    if not verdict:
        assert verdict.explain(pairs=False).text


@QUICK
@given(FLOATS, st.integers(0, 2**64 - 1), st.sampled_from([4, 8, 16, 32]))
def test_stochastic_codes_are_a_neighbour_of_the_exact_value(x, seed, bits):
    x = np.where(np.isfinite(x) & (np.abs(x) < 1e30), x, np.float32(0))
    up = fp4lab.quantize(x, rounding="stochastic", random=np.full(x.shape, 0xFFFF, np.uint16))
    down = fp4lab.quantize(x, rounding="toward_zero")
    some = fp4lab.quantize(x, rounding="stochastic", random_bits=bits, seed=seed)
    low, mid, high = (np.abs(q.dequantize()) for q in (down, some, up))
    assert ((low <= mid) & (mid <= high)).all()


@pytest.mark.parametrize("name", DIALECTS)
def test_small_bfloat16_numbers_alone_in_their_block(name):
    """The first 8,192 bfloat16 numbers (the small ones), each the amax of a block of its own."""
    block = max(fp4lab.dialect(name).block[1], 1)
    if block > 64:
        pytest.skip("one block is the tensor")
    bits = np.zeros((1024, 64, block), np.uint16)
    bits[:, :, 0] = np.arange(65536, dtype=np.uint16).reshape(1024, 64)
    x = bits.reshape(1024, 64 * block)[:128]
    assert fp4lab.verify(x, fp4lab.quantize(x, name))
