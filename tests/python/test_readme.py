"""The Python lines of the repository's README.md run."""

import os
import re

import numpy as np

import fp4lab

README = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../README.md")


def my_quantizer(x):
    q = fp4lab.quantize(x, "nvfp4.te")
    return q.data, q.scale_inv, q.amax


def test_python_lines(capsys):
    with open(README, encoding="utf-8") as file:
        blocks = re.findall(r"```python\n(.*?)```", file.read(), re.DOTALL)
    assert blocks
    x = np.random.default_rng(1).standard_normal((32, 64), dtype=np.float32)
    q = fp4lab.quantize(x, "nvfp4.cutlass")
    for block in blocks:
        exec(block, {"x": x, "codes": q.data, "scales": q.scale_inv, "my_quantizer": my_quantizer})
    assert capsys.readouterr().out
