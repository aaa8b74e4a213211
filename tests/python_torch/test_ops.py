"""torch.ops.fp4lab.*: the bytes of the numpy functions, torch's own checks, compilation, gradients,
refusals."""

import fp4lab
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch._subclasses.fake_tensor import FakeTensorMode

import fp4lab.torch as ft

ops = torch.ops.fp4lab
DIALECTS = [d.name for d in fp4lab.dialects()]
QUICK = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
FLOATS = hnp.arrays(
    np.uint32,
    hnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=40),
    elements=st.integers(0, 2**32 - 1),
).map(lambda bits: bits.view(np.float32))


def source(dialect):
    return dict(seed=3, step=5, tensor=7) if fp4lab.dialect(dialect).takes_random_bits else {}


def same(a, b):
    return torch.equal(torch.nan_to_num(a, nan=12345.0), torch.nan_to_num(b, nan=12345.0))


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("columnwise", [False, True])
def test_bytes_fakes_and_values(dialect, columnwise):
    x = torch.randn(48, 67)
    for layout in ("linear", "padded", "swizzled_32_4_4", "8x4"):
        options = dict(columnwise=columnwise, scale_layout=layout, **source(dialect))
        q, theirs = (
            ft.quantize(x, dialect, **options),
            fp4lab.quantize(x.numpy(), dialect, **options),
        )
        fp4lab.testing.assert_same_bytes(q.numpy(), theirs)
        fake = ops.quantize(x.to("meta"), dialect, **options)
        assert [(f.shape, f.dtype) for f in fake] == [(t.shape, t.dtype) for t in q[:3]]
        values = torch.from_numpy(np.ascontiguousarray(theirs.dequantize()))
        assert same(q.dequantize(), values)
        assert same(q.dequantize(torch.bfloat16), values.to(torch.bfloat16))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_qdq(dialect):
    x = torch.randn(3, 5, 64)
    y = ops.qdq(x, dialect, **source(dialect))
    assert same(y, torch.from_numpy(fp4lab.qdq(x.numpy(), dialect, **source(dialect))))
    half = ops.qdq(x.bfloat16(), dialect, **source(dialect))
    assert same(half, ops.qdq(x.bfloat16().float(), dialect, **source(dialect)).bfloat16())


@QUICK
@given(
    FLOATS,
    st.sampled_from([d for d in DIALECTS if not fp4lab.dialect(d).takes_random_bits]),
    st.booleans(),
)
def test_any_bits_and_strides(x, dialect, transposed):
    t = torch.from_numpy(x)
    t = t.T if transposed else t[::1, ::2]
    q = ft.quantize(t, dialect)
    assert fp4lab.verify(t.numpy(), q.numpy())
    assert same(ft.quantize(t, dialect).dequantize(), ops.qdq(t, dialect))


def test_inputs_are_read_where_they_lie():
    x = torch.randn(64, 128)
    array = ft._tensors.numbers(x)
    assert array.__array_interface__["data"][0] == x.data_ptr()
    half = x.bfloat16()
    assert ft._tensors.numbers(half.T).__array_interface__["data"][0] == half.data_ptr()
    q = ft.quantize(x)
    assert q.codes.data_ptr() == q.data.data_ptr() == q.numpy().data.__array_interface__["data"][0]


def test_typed_quantizers():
    x = torch.randn(32, 64)
    codes, scales, amax = ops.nvfp4_quantize(x, scale_layout="swizzled_32_4_4")
    q = fp4lab.quantize(x.numpy(), scale_layout="swizzled_32_4_4")
    assert codes.dtype == torch.float4_e2m1fn_x2 and scales.dtype == torch.float8_e4m3fn
    assert np.array_equal(codes.view(torch.uint8).numpy(), q.data)
    assert np.array_equal(scales.view(torch.uint8).numpy(), q.scale_inv) and amax.item() == q.amax
    codes, scales = ops.mxfp4_quantize(x, "mxfp4.floor")
    q = fp4lab.quantize(x.numpy(), "mxfp4.floor")
    assert scales.dtype == torch.float8_e8m0fnu and np.array_equal(
        scales.view(torch.uint8).numpy(), q.scale_inv
    )
    with pytest.raises(
        ValueError, match="mxfp4.floor has float4_e2m1fn elements and float8_e8m0fnu scales"
    ):
        ops.nvfp4_quantize(x, dialect="mxfp4.floor")


@pytest.mark.parametrize("size", [2, 16, 32, 128])
@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_rht_and_its_gradient(size, axis):
    x = torch.randn(128, 256).bfloat16()
    y = ops.rht(x, size, axis=axis)
    assert y.dtype == torch.bfloat16
    assert np.array_equal(y.float().numpy(), fp4lab.rht(x, size=size, axis=axis))
    assert ops.amax(x, size if axis == 1 else 0) == (y if axis == 1 else x).abs().max()
    # The transform is orthogonal: the gradient of half its square norm is its input, to bfloat16.
    x = x.float().requires_grad_()
    (ops.rht(x, size, axis=axis).square().sum() / 2).backward()
    assert (x.grad - x).abs().max() < 2e-2 * x.abs().max()


def test_rht_takes_any_rank():
    x = torch.randn(2, 32, 3, 16).bfloat16()
    assert torch.equal(ops.rht(x, axis=1)[1, :, 2, 5], ops.rht(x[1, :, 2, 5]))


def test_qdq_passes_gradients_straight_through():
    x, g = torch.randn(16, 32, requires_grad=True), torch.randn(16, 32)
    ops.qdq(x, "nvfp4.te").backward(g)
    assert torch.equal(x.grad, g)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("accumulation", ["block", "exact", "blackwell.mxf4.f32"])
def test_scaled_mm(dtype, accumulation):
    a, b, bias = torch.randn(33, 64), torch.randn(48, 64), torch.randn(48)
    qa, qb = ft.quantize(a), ft.quantize(b, scale_layout="swizzled_32_4_4")
    name = str(dtype).removeprefix("torch.")
    for bias_ in (None, bias):
        y = ft.scaled_mm(qa, qb, bias=bias_, accumulation=accumulation, dtype=dtype)
        want = fp4lab.scaled_mm(
            qa.numpy(), qb.numpy(), bias=bias_, accumulation=accumulation, out_dtype=name
        )
        assert y.dtype == dtype and np.array_equal(y.float().numpy(), np.asarray(want, np.float32))
    columns = ft.quantize(a.T.contiguous(), columnwise=True)
    assert torch.equal(ft.scaled_mm(columns, qb), ft.scaled_mm(qa, qb))
    assert torch.equal(ft.scaled_mm(qa, qb, alpha=2.0), 2 * ft.scaled_mm(qa, qb, alpha=1.0))


CALLS = [
    (ops.quantize, lambda: (torch.randn(33, 64),), {}),
    (ops.quantize, lambda: (torch.randn(2, 16, 64).bfloat16(), "mxfp4.floor"), {}),
    (
        ops.quantize,
        lambda: (torch.randn(32, 64), "nvfp4.te"),
        dict(rounding="stochastic", seed=1, columnwise=True),
    ),
    (ops.dequantize, lambda: (*ft.quantize(torch.randn(33, 64))[:3], [33, 64]), {}),
    (ops.qdq, lambda: (torch.randn(33, 64, requires_grad=True),), {}),
    (ops.amax, lambda: (torch.randn(33, 64),), {}),
    (ops.rht, lambda: (torch.randn(32, 64).bfloat16().float().requires_grad_(),), {}),
    (
        ops.scaled_mm,
        lambda: (*ft.quantize(torch.randn(32, 64))[:3], *ft.quantize(torch.randn(16, 64))[:3], 64),
        {},
    ),
    (ops.nvfp4_quantize, lambda: (torch.randn(33, 64),), {}),
    (ops.mxfp4_quantize, lambda: (torch.randn(33, 64),), {}),
]


@pytest.mark.parametrize("op, arguments, options", CALLS)
def test_opcheck(op, arguments, options):
    tests = ["test_schema", "test_autograd_registration", "test_faketensor"]
    if op not in (
        ops.nvfp4_quantize,
        ops.mxfp4_quantize,
    ):  # torch's comparison lacks float4_e2m1fn_x2
        tests.append("test_aot_dispatch_dynamic")
    torch.library.opcheck(op.default, arguments(), options, test_utils=tests)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_compile(backend, dynamic):
    def f(x, w):
        a, b = ft.quantize(x, scale_layout="swizzled_32_4_4"), ft.quantize(w)
        return ft.scaled_mm(a, b) + a.dequantize().sum() + ops.amax(x) + ops.qdq(x).sum()

    w = torch.randn(48, 64)
    compiled = torch.compile(f, backend=backend, fullgraph=True, dynamic=dynamic)
    for rows in (33, 48):
        x = torch.randn(rows, 64)
        assert torch.equal(compiled(x, w), f(x, w))


def test_empty_tensors():
    for shape in ((0, 16), (3, 0), (0,)):
        q = ft.quantize(torch.zeros(shape))
        assert q.data.numel() == 0 and q.dequantize().numel() == 0
        assert ops.qdq(torch.zeros(shape)).shape == shape
        assert ops.amax(torch.zeros(shape)) == 0


def on_cuda():
    with FakeTensorMode():
        ops.quantize(torch.empty(16, 16, device="cuda"))


@pytest.mark.parametrize(
    "bad, message",
    [
        (
            lambda: ops.quantize(torch.zeros(4, 16, dtype=torch.float64)),
            "x has dtype torch.float64.*x.float",
        ),
        (lambda: ops.quantize(torch.zeros(4, 16, dtype=torch.int32)), "x has dtype torch.int32"),
        (lambda: ops.quantize(torch.tensor(1.0)), "x is a scalar"),
        (
            lambda: ops.quantize(torch.zeros(4, 16).to_sparse()),
            "x has the layout torch.sparse_coo: pass x.to_dense",
        ),
        (on_cuda, "x is on cuda:0, and fp4lab computes on the CPU: pass x.cpu"),
        (lambda: ops.quantize(torch.zeros(4, 16), "nvpf4.te"), 'did you mean "nvfp4.te"'),
        (lambda: ops.quantize(torch.zeros(4, 16), rounding="stochastic"), "give seed"),
        (
            lambda: ops.quantize(torch.zeros(4, 16), amax=torch.ones(2)),
            "2 numbers; nvfp4.te takes 1",
        ),
        (
            lambda: ops.quantize(torch.ones(4, 16), amax=torch.tensor(-1.0)),
            "amax: -1.0 is negative",
        ),
        (lambda: ops.qdq(torch.ones(4, 16), amax=torch.tensor(float("nan"))), "amax: is nan"),
        (lambda: ft.quantize(torch.ones(4, 16), step=1), "give seed"),
        (lambda: ft.quantize(torch.ones(4, 16), rht=16.5), "rht is 16.5"),
        (lambda: ops.quantize(torch.zeros(4, 16), scale_layout="32x4"), "is not one of: linear"),
        (lambda: ops.rht(torch.zeros(4, 24)), "whole groups"),
        (lambda: ops.rht(torch.full((4, 16), 1.001)), "takes bfloat16 values"),
        (
            lambda: ft.scaled_mm(ft.quantize(torch.ones(4, 16)), ft.quantize(torch.ones(4, 32))),
            "same reduction axis",
        ),
        (
            lambda: ft.scaled_mm(
                ft.quantize(torch.ones(4, 16)), ft.quantize(torch.ones(4, 16)), accumulation="bloc"
            ),
            "bloc",
        ),
        (
            lambda: ft.scaled_mm(
                ft.quantize(torch.ones(4, 16)), ft.quantize(torch.ones(4, 16)), dtype=torch.int8
            ),
            "dtype",
        ),
        (
            lambda: ops.dequantize(torch.zeros(4, 8), torch.zeros(4, 1), torch.zeros(1), [4, 16]),
            "data has dtype",
        ),
        (
            lambda: ft.quantize(torch.ones(4, 32), "mxfp8_e4m3.floor").codes,
            "no float4_e2m1fn elements",
        ),
    ],
)
def test_refusals_are_one_line(bad, message):
    with pytest.raises((TypeError, ValueError), match=message) as error:
        bad()
    assert "\n" not in str(error.value)


def test_the_package_says_what_it_needs():
    import subprocess
    import sys

    code = (
        "import sys; sys.modules['torch'] = None\n"
        "try:\n import fp4lab.torch\nexcept ImportError as e: print(e)"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert out == "fp4lab.torch needs PyTorch: pip install 'fp4lab[torch]'\n"
