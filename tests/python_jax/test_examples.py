"""The example of fp4lab.jax beside the notebooks; that of MaxText is in test_maxtext.py."""

import pathlib
import runpy

import pytest

EXAMPLE = pathlib.Path(__file__).parents[2] / "notebooks/jax_dense.py"


def test_jax_dense():
    example = runpy.run_path(str(EXAMPLE))
    noise = list(example["operands"]().values())
    assert noise == pytest.approx([20.5, 20.5, 19.3], abs=0.1)  # the numbers of its docstring
    for name, (one, mean) in example["compare"](draws=32).items():
        assert 14 < one < 18
        if name == "y":  # rounded to nearest: every draw has the same y
            assert mean == pytest.approx(one, abs=1e-9)
        else:
            assert mean > one + 3
    plain = example["train"](lambda x, kernel, _: x @ kernel, steps=61)
    quantized = example["train"](
        lambda x, kernel, state: example["fp4lab"].jax.dense(x, kernel, rng_state=state), steps=61
    )
    assert plain[-1] < quantized[-1] < 0.1 * plain[0] < quantized[0]
