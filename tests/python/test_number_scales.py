"""FP8 with block scales that are numbers of float32 and bfloat16."""

import numpy as np
import pytest

import fp4lab
import fp4lab.testing

ROWS = {
    "fp8_e4m3.1x128.fp32": np.float32,
    "fp8_e4m3.128x128.fp32": np.float32,
    "fp8_e5m2.1x128.fp32": np.float32,
    "fp8_e4m3.128x128.bf16": np.uint16,
}


def matrix(rows=200, cols=300):
    return np.random.default_rng(1).normal(size=(rows, cols)).astype(np.float32)


def numpy_kernel(stored=lambda s: s):
    """fp8_e4m3.1x128.fp32 in numpy; `stored`: what is stored for a scale."""

    def kernel(x):
        rows, cols = x.shape
        padded = np.zeros((rows, -(-cols // 128) * 128), np.float32)
        padded[:, :cols] = x
        blocks = padded.reshape(rows, -1, 128)
        with np.errstate(all="ignore"):
            s = (np.fmax.reduce(np.abs(blocks), axis=2, initial=np.float32(0)) / np.float32(448)).astype(np.float32)
            v = (blocks / s[..., None]).reshape(rows, -1)[:, :cols]
            return fp4lab.encode(np.ascontiguousarray(v), "e4m3"), stored(s)

    return kernel


@pytest.mark.parametrize("name", ROWS)
def test_quantize_verify_explain_identify(name, tmp_path):
    x = matrix()
    q = fp4lab.quantize(x, name)
    assert q.scale_inv.dtype == ROWS[name]
    assert fp4lab.verify(x, q)
    assert fp4lab.verify(x, q.data, q.scale_inv, name)
    assert name in fp4lab.identify(x, q.data, q.scale_inv).text
    wrong = q.scale_inv.copy()
    wrong.view(np.uint8)[0, 0] ^= 1
    verdict = fp4lab.verify(x, q.data, wrong, name)
    assert not verdict and verdict.scales_different == 1 and verdict.codes_different == 0
    for ending in ("npz", "safetensors"):
        q.save(tmp_path / f"q.{ending}", "w")
        again = fp4lab.QTensor.load(tmp_path / f"q.{ending}", "w")
        assert again.scale_inv.dtype == ROWS[name]
        assert (again.scale_inv == q.scale_inv).all() and (again.data == q.data).all()
        assert (again.dequantize() == q.dequantize()).all()


def test_a_file_of_an_older_version_says_level_two(tmp_path):
    q = fp4lab.quantize(matrix(3, 64))
    q.save(tmp_path / "new.npz", "w")
    with np.load(tmp_path / "new.npz") as file:
        arrays = dict(file)
    arrays["w.level_two"] = arrays.pop("w.tensor_scale")
    text = arrays["fp4lab.w"].tobytes().replace(b"tensor_scale_is", b"level_two")
    arrays["fp4lab.w"] = np.frombuffer(text, np.uint8)
    np.savez(tmp_path / "old.npz", **arrays)
    old = fp4lab.QTensor.load(tmp_path / "old.npz", "w")
    assert old.amax == q.amax and (old.dequantize() == q.dequantize()).all()


def test_values_are_codes_times_numbers():
    x = matrix(3, 256)
    q = fp4lab.quantize(x, "fp8_e4m3.1x128.fp32")
    values = fp4lab.decode(q.data, "e4m3") * np.repeat(q.scale_inv, 128, axis=1)
    assert (q.dequantize() == values).all()
    assert (q.scale_inv[:, 0] == np.abs(x[:, :128]).max(axis=1) / np.float32(448)).all()


def test_powers_of_two_as_numbers_are_e8m0():
    x = matrix(256, 256)
    q = fp4lab.quantize(x, "fp8_e4m3.128x128.e8m0")
    numbers = np.exp2(q.scale_inv.astype(np.float32) - 127).astype(np.float32)
    assert fp4lab.verify(x, q.data, numbers, "fp8_e4m3.128x128.e8m0")
    assert not fp4lab.verify(x, q.data, numbers * np.float32(1.25), "fp8_e4m3.128x128.e8m0")


def test_assert_kernel_takes_numbers_and_names_the_reciprocal():
    fp4lab.testing.assert_kernel(numpy_kernel(), "fp8_e4m3.1x128.fp32")
    with np.errstate(all="ignore"), pytest.raises(AssertionError, match="scale-stored-inverted"):
        fp4lab.testing.assert_kernel(numpy_kernel(lambda s: 1 / s), "fp8_e4m3.1x128.fp32")


def test_a_formula_of_ones_own():
    own = {"base": "fp8_e4m3.1x128.fp32", "factor": "reciprocal_plain"}
    x = matrix()
    assert fp4lab.verify(x, fp4lab.quantize(x, own))
