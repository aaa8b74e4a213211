"""Parity of training runs with a baseline's."""

import json
import math
import os
import subprocess

import numpy as np
import pytest

import fp4lab


def curve(gap, seed, steps=300, noise=0.004):
    random = np.random.default_rng(seed)
    t = np.arange(steps)
    return {"step": t, "loss": (2.5 + 3 / (1 + t)) * (1 + gap + noise * random.standard_normal(steps))}


def test_a_known_gap_is_found():
    base = [curve(0, seed) for seed in range(3)]
    same = fp4lab.parity([curve(0, seed) for seed in range(10, 13)], base)
    assert same["status"] == "equivalent"
    apart = fp4lab.parity([curve(0.02, seed) for seed in range(10, 13)], base)
    assert apart["status"] == "different"
    low, high = apart["gap"]["interval"]
    assert low < 0.02 < high
    assert apart["text"].startswith(apart["verdict"])


def test_files_and_columns_agree_with_the_program(tmp_path):
    paths = []
    for i, gap in enumerate((0.01, 0)):
        run = curve(gap, i)
        paths.append(tmp_path / f"{i}.jsonl")
        paths[-1].write_text(
            "".join(json.dumps({"step": int(s), "lm loss": float(x)}) + "\n" for s, x in zip(run["step"], run["loss"]))
        )
    of_files = fp4lab.parity(paths[0], str(paths[1]))
    of_columns = fp4lab.parity(curve(0.01, 0), curve(0, 1))
    assert of_files["gap"] == of_columns["gap"]
    program = os.environ.get("FP4LAB_PROGRAM")
    if program:
        ran = subprocess.run(
            [program, "parity", paths[0], "--baseline", paths[1], "--json"], capture_output=True, text=True, check=False
        )
        assert ran.returncode == 1
        assert json.loads(ran.stdout)["gap"] == of_files["gap"]


def test_bad_input_is_refused_with_the_place(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("step,loss\n1,2\n2,x\n")
    with pytest.raises(fp4lab.Error, match=r"a\.csv: line 3: "):
        fp4lab.parity(path, path)
    run = curve(0, 1)
    with pytest.raises(fp4lab.Error, match="margin"):
        fp4lab.parity(run, run, margin=0)
    with pytest.raises(fp4lab.Error, match="by"):
        fp4lab.parity(run, run, by="epochs")


def test_a_run_that_ends_in_nan_is_different():
    run = curve(0, 1)
    run["loss"][-1] = math.nan
    assert fp4lab.parity(run, curve(0, 2))["status"] == "different"
