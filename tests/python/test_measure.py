"""fp4lab.measure: the table's numbers against formulas in numpy."""

import fp4lab
import numpy as np
import pytest


def formulas(x, q):
    x, q = x.astype(np.float64).ravel(), q.astype(np.float64).ravel()
    rms = np.sqrt((x**2).mean())
    return {
        "amax": np.abs(x).max(),
        "underflow_percent": 100 * ((x != 0) & (q == 0)).sum() / (x != 0).sum(),
        "sqnr_db": 10 * np.log10((x**2).sum() / ((x - q) ** 2).sum()),
        "bias_percent": 100 * ((q - x) * np.sign(x)).sum() / np.abs(x).sum(),
        "kurtosis": x.size * (x**4).sum() / (x**2).sum() ** 2,
        "crest_factor": np.abs(x).max() / rms,
        "outlier_percent": 100 * (np.abs(x) > 6 * rms).mean(),
    }


@pytest.mark.parametrize("dialect", ["nvfp4.te", "mxfp4.rceil", "mxfp4.floor", "fp8_e4m3.1x128.fp32"])
def test_numbers_are_the_formulas(dialect):
    x = np.random.default_rng(1).standard_t(3, (64, 256)).astype(np.float32)
    x[0, :9] = 0
    seen = fp4lab.measure(x, dialect)
    for key, value in formulas(x, fp4lab.quantize(x, dialect).dequantize()).items():
        assert seen[key] == pytest.approx(value, rel=1e-5, abs=1e-9), key
    assert list(seen) == [d.key for d in fp4lab.diagnostics()] + ["elements"] and seen["elements"] == x.size
    if dialect.startswith("mxfp4"):  # floor's scales are too small for the largest elements
        assert (seen["clip_percent"] > 0) == (dialect == "mxfp4.floor")


def test_columns_amax_random_bits_and_threads():
    x = np.random.default_rng(2).standard_normal((48, 64), np.float32)
    assert fp4lab.measure(x, columnwise=True) == fp4lab.measure(x.T.copy())
    assert fp4lab.measure(x, amax=1e6)["underflow_percent"] > fp4lab.measure(x)["underflow_percent"]
    one, two, other = (fp4lab.measure(x, rounding="stochastic", seed=s, threads=t) for s, t in ((1, 1), (1, 2), (2, 1)))
    assert one == two != other
    with pytest.raises(fp4lab.Error):
        fp4lab.measure(x, rounding="stochastic")


def test_elements_that_are_not_finite_are_left_out():
    x = np.random.default_rng(3).standard_normal((16, 32), np.float32)
    x[0, 0] = np.nan
    seen = fp4lab.measure(x, "mxfp4.rceil")
    assert seen["elements"] < x.size and all(np.isfinite(v) for v in seen.values())


def test_the_table_has_words_for_every_number():
    for d in fp4lab.diagnostics():
        assert d.name and d.label and d.definition and d.reading and d.log_key and str(d) == d.key
    assert next(d for d in fp4lab.diagnostics() if d.key == "sqnr_db").text(20.1234) == "20.12"
