"""Products of FP8 operands with scales of tensors, rows and blocks, beside the program."""

import json
import os
import re
import subprocess
from dataclasses import replace

import fp4lab
import numpy as np
import pytest
from fp4lab import testing

BLOCKS = "fp8_e4m3.1x128.fp32", "fp8_e4m3.128x128.fp32"
KINDS = [BLOCKS, ("fp8_e4m3.1x128.e8m0", "fp8_e4m3.128x128.e8m0"), ("fp8_e4m3.row", "fp8_e4m3.row"),
         ("fp8_e4m3", "fp8_e4m3.row"), ("fp8_e4m3.1x128.fp32", "mxfp4.rceil"), ("fp8_e5m2.1x128.fp32", "fp8_e4m3.128x128.bf16")]  # fmt: skip


def unlike(rows, cols, seed):
    """Rows and blocks of magnitudes of their own."""
    sizes = 1 + 0.37 * (np.arange(rows) % 5)[:, None] + 2.0 * np.arange(-(-cols // 128))
    sizes = (sizes * np.exp2(np.arange(rows) // 128)[:, None]).repeat(128, axis=1)[:, :cols]
    return (np.random.default_rng(seed).standard_normal((rows, cols)) * sizes).astype(np.float32)


def operands(kind=BLOCKS, rows=20, cols=300):
    return fp4lab.quantize(unlike(rows, cols, 1), kind[0]), fp4lab.quantize(unlike(140, cols, 2), kind[1])


def bits(x):
    x = np.asarray(x)
    return x.view(f"u{x.dtype.itemsize}")


def in_numpy(a, b):
    """The definition: a dot of each block in float64, both scales and the sum in float32."""
    x, y = fp4lab.decode(a.data, "e4m3").astype(np.float64), fp4lab.decode(b.data, "e4m3").astype(np.float64)
    d = np.zeros((len(x), len(y)), np.float32)
    for g in range(a.scale_inv.shape[1]):
        of = slice(128 * g, 128 * (g + 1))
        dot = (x[:, of] @ y[:, of].T).astype(np.float32)
        d += dot * a.scale_inv[:, g][:, None] * b.scale_inv[:, g].repeat(128)[: len(y)][None]
    return d


def test_a_product_is_its_definition():
    a, b = operands()
    d = fp4lab.scaled_mm(a, b, out_dtype="float32")
    assert (bits(d) == bits(in_numpy(a, b))).all()
    assert fp4lab.verify_mm(a, b, d).verdict == "equal"
    nearly = np.nextafter(d, np.float32(0))
    assert fp4lab.verify_mm(a, b, nearly).verdict == "inside"


def test_a_wrong_product_has_its_place_and_its_cause():
    a, b = operands()
    d = fp4lab.scaled_mm(a, b, out_dtype="float32")
    d[7, 130] *= np.float32(1.01)
    verdict = fp4lab.verify_mm(a, b, d)
    assert not verdict and verdict.outside_in == (7, 130, 1, 1) and verdict.causes == ()
    assert "rows 7..7, columns 130..130 only" in verdict.text
    inverted = replace(a, scale_inv=1 / a.scale_inv)
    verdict = fp4lab.verify_mm(a, b, fp4lab.scaled_mm(inverted, b, out_dtype="float32"))
    assert verdict.causes == ("a-scales-inverted",) and "(a-scales-inverted)" in verdict.text


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float8_e4m3fn", "float8_e5m2"])
def test_every_output_type_is_judged(dtype):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    a, b = operands(("fp8_e4m3.row", "fp8_e4m3.row"))
    d = fp4lab.scaled_mm(a, b, out_dtype=dtype, output_scale=0.0625)
    assert d.dtype == (np.dtype(dtype) if dtype in ("float32", "float16") else getattr(ml_dtypes, dtype))
    assert fp4lab.verify_mm(a, b, d, output_scale=0.0625).verdict == "equal"
    without = fp4lab.scaled_mm(a, b, out_dtype=dtype)
    assert "output-scale-missing" in fp4lab.verify_mm(a, b, without, output_scale=0.0625).causes
    if dtype != "float8_e4m3fn":  # FP8 saturates
        assert "with output_scale=0.0625, 0 elements are outside" in fp4lab.verify_mm(a, b, d).text
    # The same numbers as float32, their type stated.
    numbers = d.astype(np.float32)
    assert fp4lab.verify_mm(a, b, numbers, output_scale=0.0625, out_dtype=dtype).verdict == "equal"


def test_scales_of_a_tensor_count_where_they_are_asked_for():
    a, b = operands(("fp8_e4m3", "fp8_e4m3"))
    plain = fp4lab.scaled_mm(a, b, alpha=1.0, accumulation="exact", out_dtype="float32")
    scaled = fp4lab.scaled_mm(a, b, with_scales=True, out_dtype="float32")
    factor = np.float32(a.amax) / 448 * (np.float32(b.amax) / 448)
    assert np.allclose(scaled, plain * factor, rtol=1e-5, atol=0)
    assert fp4lab.verify_mm(a, b, scaled, with_scales=True).verdict == "equal"
    assert not fp4lab.verify_mm(a, b, scaled, alpha=1.0)


@pytest.mark.parametrize("dialect", ["nvfp4.te", "mxfp4.rceil"])
def test_fp4_has_fp8_outputs(dialect, tmp_path):
    a, b = fp4lab.quantize(unlike(20, 256, 1), dialect), fp4lab.quantize(unlike(140, 256, 2), dialect)
    plain = fp4lab.scaled_mm(a, b, out_dtype="float32")
    rounded = fp4lab.decode(fp4lab.encode(plain * np.float32(0.03125), "e4m3"), "e4m3")
    options = {"out_dtype": "e4m3", "output_scale": 0.03125}
    assert fp4lab.verify_mm(a, b, rounded, **options).verdict == "equal"
    wrong = rounded.copy()
    wrong[4, 60:64] *= 2
    assert fp4lab.verify_mm(a, b, wrong, **options).outside_in == (4, 60, 1, 4)
    program = os.environ.get("FP4LAB_PROGRAM")
    if program:
        a.save(tmp_path / "a.npz")
        b.save(tmp_path / "b.npz")
        np.save(tmp_path / "d.npy", rounded)
        alpha = ["--alpha", "reference"] if dialect == "nvfp4.te" else []
        ran = subprocess.run([program, "verify", "gemm", "a.npz", "b.npz", "d.npy", "--output", "e4m3",
                              "--output-scale", "0.03125", *alpha], cwd=tmp_path, capture_output=True, text=True,
                             check=False)  # fmt: skip
        assert (ran.returncode, ran.stdout) == (0, "exact: equal, 2800 elements bit for bit\n"), ran.stderr

    def product(a, b, alpha):
        return fp4lab.scaled_mm(a, b, alpha=alpha, **options)

    assert testing.assert_product(product, dialect=dialect, **options) == 7


def test_what_does_not_fit_is_refused():
    a, b = operands()
    four = fp4lab.quantize(unlike(20, 256, 3))
    for call, error, text in (
        (lambda: fp4lab.scaled_mm(a, b, alpha="kernel"), fp4lab.Error, '"kernel" is not a finite number'),
        (lambda: fp4lab.scaled_mm(a, b, bias=np.zeros(140)), fp4lab.Error, "bias: a product with scales has none"),
        (lambda: fp4lab.scaled_mm(a, b, output_scale=np.inf), fp4lab.Error, "output_scale: inf is not a finite"),
        (lambda: fp4lab.scaled_mm(a, b, out_dtype="e4m2"), fp4lab.Error, "e4m3"),
        (lambda: fp4lab.scaled_mm(a, b, with_scales=1), TypeError, "with_scales is 1"),
        (lambda: fp4lab.scaled_mm(four, four, out_dtype="e4m3", alpha="kernle"), fp4lab.Error, "neither a number nor"),
        (lambda: fp4lab.scaled_mm(four, four, output_scale=2.0), fp4lab.Error, "add with_scales=True"),
        (lambda: fp4lab.scaled_mm(a, operands(cols=256)[1]), fp4lab.Error, "a has K = 300, b has K = 256"),
        (lambda: fp4lab.verify_mm(a, b, np.zeros((3, 3), np.float32)), fp4lab.Error, "the product is 20x140"),
        (lambda: fp4lab.scaled_mm(a, b, accumulation="exakt"), fp4lab.Error, "exact"),
    ):
        with pytest.raises(error, match=re.escape(text)):
            call()


def test_assert_product_takes_fp8_with_scales():
    def product(a, b, alpha):
        assert alpha == 1.0
        return fp4lab.scaled_mm(a, b, out_dtype="float32")

    kinds = {"dialect": BLOCKS[0], "dialect_b": BLOCKS[1]}
    assert testing.assert_product(product, **kinds) == 7

    def sequential(a, b, alpha):
        return fp4lab.scaled_mm(a, b, accumulation="fp32-sequential", out_dtype="float32")

    testing.assert_product(sequential, exact=False, **kinds)
    with pytest.raises(AssertionError, match="elements differ"):
        testing.assert_product(sequential, **kinds)

    def scales_in_columns(a, b, alpha):
        read = replace(a, scale_inv=np.ascontiguousarray(a.scale_inv.T).reshape(a.scale_inv.shape))
        return fp4lab.scaled_mm(read, b, out_dtype="float32")

    with pytest.raises(AssertionError, match=r"the kernel reads the scales of A in column-major order \(a-scales-transposed\)"):
        testing.assert_product(scales_in_columns, **kinds)


def test_assert_product_judges_fp8_outputs_and_shows_how_to_reproduce():
    pytest.importorskip("ml_dtypes")
    options = {"with_scales": True, "out_dtype": "e4m3", "output_scale": 0.5}

    def product(a, b, alpha):
        return fp4lab.scaled_mm(a, b, **options)

    assert testing.assert_product(product, dialect="fp8_e4m3", **options) == 7
    assert testing.assert_product(product, dialect="fp8_e4m3.row", **options) == 7
    with pytest.raises(AssertionError, match="with output_scale=0.5, 0 elements are outside") as error:
        testing.assert_product(product, dialect="fp8_e4m3", **{**options, "output_scale": 0.25})
    code = str(error.value).split("alone:\n\n")[1]
    assert "output_scale=0.25" in code
    exec(code, {"product": product})
    with pytest.raises(AssertionError, match="state out_dtype"):
        testing.assert_product(lambda a, b, alpha: product(a, b, alpha), dialect="fp8_e4m3")


@pytest.mark.parametrize("dialect", ["fp8_e4m3.128x128.fp32", "fp8_e4m3.row", "fp8_e4m3"])
def test_a_reproducer_runs_for_every_kind_of_scales(dialect):
    def wrong(a, b, alpha):
        d = fp4lab.scaled_mm(a, b, out_dtype="float32", with_scales=True)
        d[-1, -1] += 1
        return d

    with pytest.raises(AssertionError) as error:
        testing.assert_product(wrong, dialect=dialect, with_scales=True)
    exec(str(error.value).split("alone:\n\n")[1], {"product": wrong})


@pytest.mark.parametrize("kind", KINDS)
def test_verdicts_are_those_of_the_program(kind, tmp_path):
    program = os.environ.get("FP4LAB_PROGRAM")
    if not program:
        pytest.skip("FP4LAB_PROGRAM names no program")
    a, b = operands(kind)
    a.save(tmp_path / "a.npz")
    b.save(tmp_path / "b.npz")
    right = fp4lab.scaled_mm(a, b, out_dtype="float32")
    wrong = right.copy()
    wrong[3:5, 128:] *= np.float32(1.5)
    of_sequential = fp4lab.scaled_mm(a, b, accumulation="fp32-sequential", out_dtype="float32")
    answers = {"right": right, "wrong": wrong, "sequential": of_sequential, "doubled": 2 * right}
    for name, d in answers.items():
        np.save(tmp_path / "d.npy", d)
        for options, given in (([], {}), (["--alpha", "2"], {"alpha": 2.0}),
                               (["--output", "e4m3"], {"out_dtype": "e4m3"}),
                               (["--output", "bf16", "--output-scale", "2"], {"out_dtype": "bf16", "output_scale": 2.0}),
                               (["--under", "fp32-sequential"], {"accumulation": "fp32-sequential"})):  # fmt: skip
            ran = subprocess.run([program, "verify", "gemm", "a.npz", "b.npz", "d.npy", "--json", *options],
                                 cwd=tmp_path, capture_output=True, text=True, check=False)  # fmt: skip
            assert ran.returncode in (0, 1), ran.stderr
            theirs, ours = json.loads(ran.stdout), fp4lab.verify_mm(a, b, d, **given)
            where = (name, options)
            assert (ours.verdict, ours.bound, ours.different, ours.outside) == (
                theirs["verdict"], theirs["bound"], theirs["different"], theirs["outside"]), where  # fmt: skip
            assert bool(ours) == (ran.returncode == 0), where
            assert list(ours.causes) == [c["name"] for c in theirs.get("causes", [])], where
            if not ours:
                r = theirs["outside_in"]
                assert ours.outside_in == (r["row"], r["column"], r["rows"], r["columns"]), where


def test_errors_are_those_of_the_program(tmp_path):
    program = os.environ.get("FP4LAB_PROGRAM")
    if not program:
        pytest.skip("FP4LAB_PROGRAM names no program")
    a, b = operands()
    q = fp4lab.quantize(unlike(20, 300, 3)[:, :288])
    np.save(tmp_path / "d.npy", np.zeros((20, 140), np.float32))
    for name, x in (("a", a), ("b", b), ("q", q)):
        x.save(tmp_path / f"{name}.npz")
    for arguments, call in (
        (["a.npz", "b.npz", "--alpha", "kernel"], lambda: fp4lab.verify_mm(a, b, np.zeros((20, 140), np.float32), alpha="kernel")),
        (["q.npz", "q.npz", "--output-scale", "2"], lambda: fp4lab.scaled_mm(q, q, output_scale=2.0)),
    ):
        ran = subprocess.run([program, "verify", "gemm", *arguments[:2], "d.npy", *arguments[2:]], cwd=tmp_path,
                             capture_output=True, text=True, check=False)  # fmt: skip
        assert ran.returncode == 2
        with pytest.raises(fp4lab.Error) as error:
            call()
        ours, theirs = str(error.value), ran.stderr.strip()
        # The same sentence, but for the name of the place and of the option.
        for words in ("not a finite number, which a product of scaled FP8 takes", "is of products of FP8: add"):
            assert (words in ours) == (words in theirs), (ours, theirs)
