"""A tiny MaxText run with Transformer Engine's quantization on the CPU, as a process of its own."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys

# 2 layers of width 128: every dimension that NVFP4 with the transform demands (tokens % 64, features % 128).
CONFIG = dict(
    hardware="cpu", dataset_type="synthetic", attention="dot_product", enable_checkpointing=False,
    enable_goodput_recording=False, base_emb_dim=128, base_num_query_heads=2, base_num_kv_heads=2, head_dim=64,
    base_mlp_dim=256, base_num_decoder_layers=2, max_target_length=128, vocab_size=256, per_device_batch_size=2,
    skip_jax_distributed_system=True, learning_rate=3e-3,
)


def run(folder, quantization, *, steps=60, threads=2, **config):
    """(records of the steps, calls) of a run; raises AssertionError with the log's end if it fails."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    metrics = folder / "metrics.jsonl"
    metrics.unlink(missing_ok=True)
    base = pathlib.Path(importlib.util.find_spec("maxtext").origin).parent / "configs" / "base.yml"
    settings = {**CONFIG, "run_name": "run", "base_output_directory": folder, "steps": steps,
                "quantization": quantization, "metrics_file": metrics, **config}
    # One device: the tests that start this process have two.
    environment = {**os.environ, "DECOUPLE_GCLOUD": "TRUE", "JAX_PLATFORMS": "cpu", "XLA_FLAGS": "",
                   "OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "passive"}
    done = subprocess.run(
        [sys.executable, "-m", "fp4lab.te_jax", "--show-calls", "-m", "maxtext.trainers.pre_train.train", str(base),
         *(f"{k}={v}" for k, v in settings.items())],
        env=environment, capture_output=True, text=True, cwd=folder)
    (folder / "log").write_text(done.stdout + done.stderr)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    calls = {}
    for line in done.stderr.splitlines():
        if line.startswith("fp4lab.te_jax: "):
            count, call = line.removeprefix("fp4lab.te_jax: ").strip().split("  ", 1)
            calls[call] = int(count)
    return [json.loads(line) for line in metrics.read_text().splitlines()], calls
