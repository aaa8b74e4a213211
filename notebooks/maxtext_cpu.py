"""MaxText on a laptop: its trainer and Transformer Engine's recipes, unmodified, with every product of FP4
operands computed by libfp4lab on the CPU. One line a recipe: the loss of each tenth step.

Install: lib/python/fp4lab/te_jax/README.md. Then: python maxtext_cpu.py [FOLDER]
"""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys

# Two layers of width 128: tokens in multiples of 64 and features of 128, as the recipe with the transform demands.
MODEL = """hardware=cpu dataset_type=synthetic attention=dot_product vocab_size=256 max_target_length=128
base_emb_dim=128 base_num_query_heads=2 base_num_kv_heads=2 head_dim=64 base_mlp_dim=256 base_num_decoder_layers=2
per_device_batch_size=2 learning_rate=3e-3 enable_checkpointing=False enable_goodput_recording=False
skip_jax_distributed_system=True run_name=run""".split()


def train(quantization, folder, steps=60):
    """(losses, calls): the loss of every step, and the lines of --show-calls, which count the quantized products."""
    folder = pathlib.Path(folder).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    metrics = folder / f"{quantization}.jsonl"
    metrics.unlink(missing_ok=True)
    base = pathlib.Path(importlib.util.find_spec("maxtext").origin).parent / "configs/base.yml"
    command = [sys.executable, "-m", "fp4lab.te_jax", "--show-calls", "-m", "maxtext.trainers.pre_train.train", base,
               *MODEL, f"steps={steps}", f"quantization={quantization}", f"metrics_file={metrics}",
               f"base_output_directory={folder}"]  # fmt: skip
    environment = {**os.environ, "DECOUPLE_GCLOUD": "TRUE", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr[-3000:])
    calls = [line for line in done.stderr.splitlines() if line.startswith("fp4lab.te_jax:")]
    return [json.loads(line)["learning/loss"] for line in metrics.read_text().splitlines()], calls


if __name__ == "__main__":
    # te_no_quant is the baseline that draws the same initial weights.
    for quantization in ("te_no_quant", "te_nvfp4", "te_nvfp4_no_rht"):
        losses, calls = train(quantization, sys.argv[1] if len(sys.argv) > 1 else "maxtext_cpu")
        products = sum(int(line.split()[1]) for line in calls if "te_gemm_v2_ffi scaling=nvfp4" in line)
        print(f"{quantization:16} {products:6} FP4 products; loss", *(f"{loss:.3f}" for loss in losses[::10]))
