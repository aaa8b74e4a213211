"""MaxText, unmodified, trains with Transformer Engine's recipes on the CPU. Takes minutes."""

import json
import os
import pathlib
import re
import runpy
import subprocess
import sys

import maxtext_run
import pytest

pytestmark = pytest.mark.long
STORED = pathlib.Path(__file__).parent / "maxtext_losses.json"


def _losses(records):
    return [r["learning/loss"] for r in records]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("maxtext")
    return {q: maxtext_run.run(folder / q, q) for q in ("te_nvfp4", "te_nvfp4_no_rht", "te_no_quant")}


def test_every_linear_is_quantized(runs):
    for name in ("te_nvfp4", "te_nvfp4_no_rht"):
        calls = runs[name][1]
        assert not any("te_gemm_v2_ffi scaling=none" in c for c in calls)
        gemms = sum(n for c, n in calls.items() if c.startswith("te_gemm_v2_ffi scaling=nvfp4"))
        # 2 layers x 7 linears x 60 steps: three products, and the forward one again for the backward pass.
        assert gemms >= 2 * 7 * 60 * 3
        assert any(" sr" in c for c in calls)
        assert any(" rht" in c for c in calls) == (name == "te_nvfp4")
    assert all("nvfp4" not in c for c in runs["te_no_quant"][1])


def test_runs_begin_with_the_same_weights(runs):
    norms = {r[0][0]["learning/param_norm"] for r in runs.values()}
    assert len(norms) == 1


def test_quantization_costs_loss_but_trains(runs):
    last = {name: _losses(records)[-1] for name, (records, _) in runs.items()}
    first = _losses(runs["te_no_quant"][0])[0]
    assert all(loss < 0.5 * first for loss in last.values()), last
    tenth = {name: _losses(records)[10] for name, (records, _) in runs.items()}
    assert tenth["te_nvfp4"] > tenth["te_no_quant"]


def test_losses_do_not_depend_on_threads(runs, tmp_path):
    records, _ = maxtext_run.run(tmp_path, "te_nvfp4", threads=1)
    assert _losses(records) == _losses(runs["te_nvfp4"][0])


def test_the_example_trains_the_same_model(runs, tmp_path, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "")  # one device
    example = runpy.run_path(str(STORED.parents[2] / "notebooks/maxtext_cpu.py"))
    losses, calls = example["train"]("te_nvfp4", tmp_path)
    assert losses == _losses(runs["te_nvfp4"][0])
    counted = {call: int(count) for _, count, call in (line.split(maxsplit=2) for line in calls)}
    assert counted == runs["te_nvfp4"][1]


def test_the_readmes_command_trains_the_same_model(runs, tmp_path):
    """The command of fp4lab/te_jax/README.md, as it stands there, in an empty folder."""
    readme = (STORED.parents[2] / "lib/python/fp4lab/te_jax/README.md").read_text()
    (command,) = re.findall(r"```sh\n(DECOUPLE_GCLOUD.*?)```", readme, re.DOTALL)
    first = pathlib.Path(sys.executable).parent  # `python` is the one that runs this test
    environment = {**os.environ, "PATH": f"{first}{os.pathsep}{os.environ['PATH']}", "XLA_FLAGS": ""}
    done = subprocess.run(["bash", "-c", command], env=environment, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    records = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert _losses(records) == _losses(runs["te_nvfp4"][0])
    assert "te_gemm_v2_ffi scaling=nvfp4" in done.stderr


def test_losses_equal_the_stored_ones(runs):
    """XLA's own arithmetic (norms, softmax, optimizer) depends on its version and the processor: both are stored."""
    import jaxlib

    stored = json.loads(STORED.read_text())
    if stored["jaxlib"] != jaxlib.__version__ or stored["processor"] != _processor():
        pytest.skip(f"losses are stored for jaxlib {stored['jaxlib']} on {stored['processor']}")
    for name, losses in stored["losses"].items():
        assert _losses(runs[name][0]) == losses


def _processor():
    with open("/proc/cpuinfo") as f:
        flags = next(line for line in f if line.startswith("flags")).split()
    return " ".join(f for f in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if f in flags)
