"""Arrays of every kind: the right bytes, or one clear exception."""

import sys

import fp4lab
import numpy as np
import pytest
from fp4lab.testing import assert_same_bytes

ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is absent")


def bf16(x):
    return x.astype(ml_dtypes.bfloat16)


def test_bfloat16_arrays_of_ml_dtypes_and_raw_bits_are_the_same_numbers(normal):
    x = bf16(normal)
    want = fp4lab.quantize(x.astype(np.float32))
    assert_same_bytes(fp4lab.quantize(x), want)
    assert_same_bytes(fp4lab.quantize(x.view(np.uint16)), want)


def test_float16_and_lists_are_read(normal):
    half = normal.astype(np.float16)
    assert_same_bytes(fp4lab.quantize(half), fp4lab.quantize(half.astype(np.float32)))
    assert_same_bytes(
        fp4lab.quantize([[1.0, 2.0], [3, 4]]), fp4lab.quantize(np.array([[1, 2], [3, 4]], np.float32))
    )


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x[::2],
        lambda x: x[:, ::3],
        lambda x: x[::-1],
        lambda x: x[:, ::-1],
        lambda x: x.T,
        lambda x: x[5:37, 7:90],
        lambda x: np.asfortranarray(x),
        lambda x: np.broadcast_to(x[:1], x.shape),
        lambda x: np.broadcast_to(x[:, :1], x.shape),
    ],
)
@pytest.mark.parametrize("columnwise", [False, True])
def test_strides_change_no_byte(normal, view, columnwise):
    for x in (normal, bf16(normal)):
        part = view(x)
        want = fp4lab.quantize(np.ascontiguousarray(part), columnwise=columnwise)
        assert_same_bytes(fp4lab.quantize(part, columnwise=columnwise), want)


def test_read_only_and_foreign_byte_order(normal):
    want = fp4lab.quantize(normal)
    locked = normal.copy()
    locked.flags.writeable = False
    assert_same_bytes(fp4lab.quantize(locked), want)
    assert_same_bytes(fp4lab.quantize(normal.astype(">f4")), want)


@pytest.mark.parametrize("shape", [(0, 16), (4, 0), (0, 0)])
@pytest.mark.parametrize("dialect", ["nvfp4.te", "mxfp4.rceil", "nvfp4.te.2d"])
def test_empty_matrices_have_no_codes(shape, dialect):
    q = fp4lab.quantize(np.zeros(shape, np.float32), dialect)
    assert q.shape == shape and q.data.size == 0
    assert q.dequantize().shape == shape
    assert fp4lab.qdq(np.zeros(shape, np.float32), dialect).shape == shape
    with pytest.raises(fp4lab.Error, match="no elements"):
        fp4lab.verify(np.zeros(shape, np.float32), q)


def test_leading_dimensions_become_rows(normal):
    x = normal.reshape(4, 16, 128)
    assert_same_bytes(fp4lab.quantize(x), fp4lab.quantize(normal))
    assert fp4lab.qdq(x).shape == x.shape
    assert fp4lab.quantize(normal[0]).shape == (1, 128)


@pytest.mark.parametrize(
    "x, message",
    [
        (np.zeros((2, 16)), r"float64.*astype\(np.float32\)"),
        (np.zeros((2, 16), np.int32), "int32"),
        (np.zeros((2, 16), np.complex64), "complex64"),
        (np.array([["a"]]), "dtype str"),
        (object(), "object"),
        ([[1.0], [2.0, 3.0]], "x is no array"),
    ],
)
def test_other_types_are_one_clear_TypeError(x, message):
    with pytest.raises(TypeError, match=message):
        fp4lab.quantize(x)


def test_a_scalar_is_no_matrix():
    with pytest.raises(ValueError, match="scalar"):
        fp4lab.quantize(np.float32(1))


def test_nan_and_infinities_are_data():
    x = np.array([[np.nan, 1, -np.inf, np.inf] + [0.5] * 12], np.float32)
    for d in fp4lab.dialects():
        if d.takes_random_bits or d.block[0] == 0:
            continue
        q = fp4lab.quantize(x, d)
        assert fp4lab.verify(x, q), d.name


class OnDevice:
    """A DLPack array in the memory of a GPU."""

    def __dlpack_device__(self):
        return (2, 1)

    def __dlpack__(self, **_):
        raise AssertionError("the device is looked at first")


def test_device_tensors_are_refused_with_the_remedy():
    with pytest.raises(TypeError, match=r"CUDA GPU \(DLPack device 2:1\).*x.cpu\(\)"):
        fp4lab.quantize(OnDevice())


def test_dlpack_arrays_need_no_import_of_their_package(normal):
    class Wrapped:
        def __init__(self, array):
            self.array = array

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

        def __dlpack__(self, **options):
            return self.array.__dlpack__(**options)

    assert_same_bytes(fp4lab.quantize(Wrapped(normal)), fp4lab.quantize(normal))
    assert_same_bytes(fp4lab.quantize(Wrapped(normal[::2].T)), fp4lab.quantize(normal[::2].T.copy()))
    q = fp4lab.quantize(normal)
    assert fp4lab.verify(normal, Wrapped(q.data), Wrapped(q.scale_inv))


def test_torch_arrays(normal):
    torch = pytest.importorskip("torch", reason="torch is absent")
    x = torch.from_numpy(normal)
    assert_same_bytes(fp4lab.quantize(x), fp4lab.quantize(normal))
    half = x.to(torch.bfloat16)
    assert_same_bytes(fp4lab.quantize(half), fp4lab.quantize(bf16(normal)))
    q = fp4lab.quantize(half)
    codes = torch.from_numpy(q.data).view(torch.float4_e2m1fn_x2)
    scales = torch.from_numpy(q.scale_inv).view(torch.float8_e4m3fn)
    assert fp4lab.verify(half, codes, scales)
    assert_same_bytes(fp4lab.quantize(x.clone().requires_grad_()), fp4lab.quantize(normal))


def test_jax_arrays(normal):
    jnp = pytest.importorskip("jax.numpy", reason="jax is absent")
    assert_same_bytes(fp4lab.quantize(jnp.asarray(normal)), fp4lab.quantize(normal))
    x = jnp.asarray(normal, jnp.bfloat16)
    assert_same_bytes(fp4lab.quantize(x), fp4lab.quantize(bf16(normal)))


def test_fp4_and_fp8_arrays_of_ml_dtypes_are_codes_and_scales(normal):
    q = fp4lab.quantize(normal)
    unpacked = q.to(nibbles="bytes")
    codes = unpacked.data.view(ml_dtypes.float4_e2m1fn)
    scales = q.scale_inv.view(ml_dtypes.float8_e4m3fn)
    assert fp4lab.verify(normal, codes, scales)
    m = fp4lab.quantize(normal, "mxfp4.rceil")
    assert fp4lab.verify(normal, m.data, m.scale_inv.view(ml_dtypes.float8_e8m0fnu), "mxfp4.rceil")


def test_no_optional_package_is_imported():
    import subprocess

    code = (
        "import fp4lab, numpy as np, sys; q = fp4lab.quantize(np.ones((2, 16), np.float32)); "
        "fp4lab.verify(np.ones((2, 16), np.float32), q); "
        "print([m for m in ('torch', 'jax', 'ml_dtypes', 'pandas', 'pytest') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_results_are_right_without_ml_dtypes(normal):
    import subprocess

    code = (
        "import sys; sys.modules['ml_dtypes'] = None\n"
        "import fp4lab, numpy as np\n"
        "q = fp4lab.quantize(np.ones((16, 16), np.float32))\n"
        "y = fp4lab.scaled_mm(q, q)\n"
        "print(y.dtype, hex(int(y[0, 0])))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.split() == ["uint16", "0x4180"]


def test_threads_change_no_byte_and_are_restored(normal):
    from fp4lab import _core

    before = _core.threads()
    x = np.tile(normal, (8, 8))
    want = fp4lab.quantize(x, threads=1)
    for threads in (2, 3):
        assert_same_bytes(fp4lab.quantize(x, threads=threads), want)
    assert _core.threads() == before
    with pytest.raises(ValueError, match="threads: 0"):
        fp4lab.quantize(x, threads=0)


def test_other_python_threads_run_during_a_quantization():
    import threading

    x = np.ones((4096, 2048), np.float32)
    ticks, done = [0], threading.Event()

    def count():
        while not done.is_set():
            ticks[0] += 1

    thread = threading.Thread(target=count)
    thread.start()
    try:
        from fp4lab import _core

        layout = ("low-first", "linear", False, False, "amax")
        before = ticks[0]
        _core.quantize(x, "nvfp4.modelopt", "", False, [], None, None, 0, 0, layout, 1)
        assert ticks[0] > before + 100
    finally:
        done.set()
        thread.join()
