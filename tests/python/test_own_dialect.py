"""A formula of the user's, a dict or FILE.json, wherever a dialect's name may stand."""

import json
import pathlib

import fp4lab
import numpy as np
import pytest
from fp4lab import testing

UP = {"base": "nvfp4.te", "scale_encoding": "up"}
NAME = '{"base":"nvfp4.te","scale_encoding":"up"}'
FROM_SCRATCH = {
    "element": "e2m1", "scale": "e4m3", "block": [1, 16], "tensor_scale": "encode_scale", "block_scale": "folded",
    "scale_encoding": "nearest", "factor": "reciprocal", "element_rounding": "nearest_even", "nan": "element",
    "inf_scale": "rule", "signed_zeros": "keep",
}  # fmt: skip
X = np.random.default_rng(0).standard_normal((32, 64)).astype(np.float32)


def same(a, b):
    return np.array_equal(a.data, b.data) and np.array_equal(a.scale_inv, b.scale_inv) and a.amax == b.amax


def test_a_row_spelled_out_from_nothing_is_the_row():
    assert fp4lab.dialect(FROM_SCRATCH) == fp4lab.dialect("nvfp4.te")
    testing.assert_same_bytes(fp4lab.quantize(X, FROM_SCRATCH), fp4lab.quantize(X, "nvfp4.te"))


def test_the_fields_of_every_row_are_the_row():
    assert len(fp4lab.dialects()) >= 165
    for d in fp4lab.dialects():
        assert fp4lab.dialect(d.formula).stages == d.stages, d.name
        assert fp4lab.dialect({"base": d.name, **d.formula}).stages == d.stages, d.name


def test_a_formula_beside_the_table_is_quantized_and_judged(tmp_path: pathlib.Path):
    file = tmp_path / "up.json"
    file.write_text(json.dumps(UP))
    q = fp4lab.quantize(X, UP)
    nearest = fp4lab.quantize(X, "nvfp4.te")
    assert q.dialect == NAME == fp4lab.dialect(UP).name
    assert same(q, fp4lab.quantize(X, file)) and same(q, fp4lab.quantize(X, str(file)))
    assert (q.scale_inv >= nearest.scale_inv).all() and (q.scale_inv > nearest.scale_inv).any()
    assert fp4lab.verify(X, q) and fp4lab.verify(X, q.data, q.scale_inv, file)
    assert not fp4lab.verify(X, nearest.data, nearest.scale_inv, UP)
    assert "nvfp4.te" in fp4lab.explain(X, nearest.data, nearest.scale_inv, UP).causes
    assert np.abs(q.dequantize() - X).max() < 1
    names = [d.name for d in fp4lab.dialects()]
    assert NAME not in names

    path = tmp_path / "q.safetensors"
    q.save(path)
    assert fp4lab.QTensor.load(path).dialect == NAME
    testing.assert_same_bytes(fp4lab.QTensor.load(path), q)
    again = fp4lab.QTensor(q.data, q.scale_inv, q.amax, q.shape, dialect=UP)
    assert again.dialect == NAME and (again.dequantize() == q.dequantize()).all()


def test_identify_takes_a_formula_as_one_more_candidate():
    q = fp4lab.quantize(X, UP)
    assert not fp4lab.identify(X, q.data, q.scale_inv)
    for options in ({"also": UP}, {"also": [UP]}, {"dialects": UP}, {"dialects": ["nvfp4.te", UP]}):
        assert fp4lab.identify(X, q.data, q.scale_inv, **options).matches[0].startswith(NAME), options
    nearest = fp4lab.quantize(X)
    matches = fp4lab.identify(X, nearest.data, nearest.scale_inv, also=UP).matches
    assert matches and not any(m.startswith(NAME) for m in matches)


def test_cases_and_assertions_take_a_formula():
    assert len(list(fp4lab.cases(UP))) > 20
    report = testing.assert_kernel(lambda x: fp4lab.quantize(x, UP), UP)
    assert report.accepted and report.dialect == NAME
    with pytest.raises(AssertionError, match="computes nvfp4.te|nvfp4.te"):
        testing.assert_kernel(lambda x: fp4lab.quantize(x), UP)
    q = fp4lab.quantize(X, UP)
    assert testing.assert_matches(X, q.data, q.scale_inv, UP)
    wrong = next(k for k in testing.wrong_kernels(UP, scale_layout="linear") if k.name == "ties-away")
    with pytest.raises(AssertionError, match="ties-away"):
        testing.assert_kernel(wrong, UP)


@pytest.mark.parametrize(
    "formula, message",
    [
        ({"base": "nvfp4.te", "scale_encoding": "upp"}, r'dialect#/scale_encoding: .*did you mean "up"\?.*one of: '),
        ({"base": "nvfp4.te", "scale_encodign": "up"}, r"dialect#/scale_encodign: unknown key; did you mean"),
        ({"base": "nvfp4.tee"}, r'dialect#/base: .*did you mean "nvfp4.te"'),
        ({"element": "e2m1"}, r'dialect#/scale: is missing; .*"base"'),
        ({"base": "fp8_e4m3.1x128.fp32", "nan_scale": 127}, r"dialect#/nan_scale: "),
    ],
)  # fmt: skip
def test_what_cannot_be_said_is_refused_at_its_place(formula, message):
    for call in (lambda: fp4lab.quantize(X, formula), lambda: list(fp4lab.cases(formula)),
                 lambda: testing.assert_kernel(fp4lab.quantize, formula)):  # fmt: skip
        with pytest.raises(fp4lab.Error, match=message):
            call()


def test_what_is_no_json_is_refused(tmp_path: pathlib.Path):
    with pytest.raises(TypeError, match="dialect: "):
        fp4lab.dialect({"base": X})
    with pytest.raises(fp4lab.Error, match="absent.json"):
        fp4lab.dialect(tmp_path / "absent.json")
