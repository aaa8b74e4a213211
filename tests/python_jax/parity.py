"""Parity of NVFP4 with BF16 in MaxText and in fp4lab's own trainer, on one text.

    python parity.py --program FP4LAB STUDY [--runs FOLDER] [--steps 300] [--seeds 3] [--modes ...]

trains a small model by MaxText with te_no_quant, te_nvfp4 and te_nvfp4_no_rht, and a model of the same sizes by
`fp4lab train` with bf16, te_nvfp4 and te_nvfp4_no_rht, on the corpus `austen`, byte by byte. STUDY gets
parity.json (losses and numbers of calls) and parity.svg; studies/results/tables.py makes the table of its README.md. A
run that is finished in FOLDER is read, not repeated.
"""

import argparse
import json
import os
import pathlib
import re
import struct
import subprocess

import maxtext_run
import numpy as np

# MaxText's quantization -> fp4lab's recipe.
MODES = {"te_no_quant": "bf16", "te_nvfp4": "te_nvfp4", "te_nvfp4_no_rht": "te_nvfp4_no_rht"}
BASELINES = ("te_no_quant", "bf16")
SEQUENCE, BATCH, VALIDATION_BATCHES = 128, 8, 64
RATE, WARMUP, FINAL = 3e-3, 0.1, 0.1


def _write_megatron(prefix, texts):
    """The texts as one document of bytes in Megatron's indexed format, which MaxText reads (grain_file_type=mmap)."""
    tokens = b"".join(text.read_bytes() for text in texts)
    assert 0 not in tokens  # MaxText's end of a document
    prefix.with_suffix(".bin").write_bytes(tokens)
    header = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 1, 1, 1)  # version, uint8, one sequence, one document
    prefix.with_suffix(".idx").write_bytes(header + struct.pack("<iqqq", len(tokens), 0, 0, 1))


def _corpus(program, folder):
    """Gets `austen` by the program, and writes it for MaxText: the same texts for training and validation."""
    subprocess.run([program, "data", "get", "austen"], check=True, env={**os.environ, "FP4LAB_DATA_DIR": str(folder)})
    manifest = json.loads((pathlib.Path(__file__).parents[2] / "data" / "austen.json").read_text())
    for part in ("train", "validation"):
        names = [d["name"] for d in manifest["documents"] if d["part"] == part]
        _write_megatron(folder / part, [folder / "austen" / f"{name}.txt" for name in names])


def _maxtext(folder, mode, seed, steps):
    """One more step than `steps`: MaxText evaluates after a step whose number the interval divides, and counts
    from 0. The losses of training are those of its log, to three decimals: each evaluation empties its file of metrics."""
    out = folder / f"maxtext.{mode}.{seed}"
    records, calls = maxtext_run.run(
        out, mode, steps=steps + 1, threads=1, dataset_type="grain",
        grain_file_type="mmap", grain_train_files=folder / "data" / "train",
        grain_eval_files=folder / "data" / "validation", tokenize_train_data=False, tokenize_eval_data=False,
        grain_worker_count=0, grain_worker_count_eval=0, max_target_length=SEQUENCE, per_device_batch_size=BATCH,
        eval_interval=steps, eval_steps=VALIDATION_BATCHES, init_weights_seed=seed, data_shuffle_seed=seed,
        learning_rate=RATE, learning_rate_schedule_steps=steps, lr_schedule_type="wsd", wsd_decay_steps_fraction=1 - WARMUP,
        wsd_decay_style="linear", warmup_steps_fraction=WARMUP, learning_rate_final_fraction=FINAL,
    )  # fmt: skip
    lines = re.findall(r"completed step: (\d+),.*? loss: ([\d.]+),", (out / "log").read_text())
    training = {int(step): float(loss) for step, loss in lines}
    assert sorted(training) == list(range(steps + 1)), out
    validation = [r["eval/total_loss"] / r["eval/total_weights"] for r in records if "eval/total_loss" in r]
    return {"training": [training[i] for i in range(steps)], "validation": validation[-1], "calls": calls}


def _own(program, folder, recipe, seed, steps):
    out = folder / f"fp4lab.{recipe}.{seed}"
    warmup = round(WARMUP * steps)
    config = {
        "model": {"layers": 2, "d_model": 128, "heads": 2, "kv_heads": 2, "ffn": 256, "sequence": SEQUENCE,
                  "activation": "swiglu", "tied_head": False},
        "optimizer": {"beta1": 0.9, "beta2": 0.95, "weight_decay": 0.1, "clip": 1.0},
        "schedule": {"kind": "wsd", "learning_rate": RATE, "warmup_steps": warmup, "decay_fraction": 1 - warmup / steps,
                     "decay_shape": "linear", "final_ratio": FINAL},
        "data": {"source": "austen"}, "batch": BATCH,
        "evaluation": {"tokens": VALIDATION_BATCHES * BATCH * SEQUENCE, "chunk_tokens": 2048, "high_precision": False},
    }  # fmt: skip
    out.mkdir(parents=True, exist_ok=True)
    (out / "start.json").write_text(json.dumps(config))
    subprocess.run(
        [program, "train", "--config", out / "start.json", "--recipe", recipe, "--steps", str(steps),
         "--seed", str(seed + 1), "--threads", "1", "--out-dir", out / "run"],
        check=True, env={**os.environ, "FP4LAB_DATA_DIR": str(folder / "data")}, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    records = [json.loads(line) for line in (out / "run" / "metrics.jsonl").read_text().splitlines()]
    training = [r["learning/loss"] for r in records if "learning/loss" in r]
    return {"training": training, "validation": [r["eval/avg_loss"] for r in records if "eval/avg_loss" in r][-1]}


def _stored(path, steps, make):
    if path.exists():
        stored = json.loads(path.read_text())
        if len(stored["training"]) == steps:
            return stored
    result = make()
    assert len(result["training"]) == steps, path
    path.write_text(json.dumps(result))
    print(f"{path.stem}: validation loss {result['validation']:.4f}", flush=True)
    return result


def _figure(path, results, steps):
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams.update({"svg.hashsalt": "parity", "font.size": 9})
    import matplotlib.pyplot as plt

    window = 25
    figure, axes = plt.subplots(2, 2, sharex=True, sharey="row", figsize=(9, 6), height_ratios=(3, 2))
    for (trainer, runs), (top, bottom) in zip(results.items(), axes.T):
        baseline = next(runs[name] for name in BASELINES if name in runs)
        middle = np.arange(steps - window + 1) + window / 2
        smooth = {
            name: np.array([np.convolve(r["training"], np.ones(window) / window, "valid") for r in of])
            for name, of in runs.items()
        }
        for (name, curves), color in zip(smooth.items(), ("black", "tab:green", "tab:orange")):
            top.plot(middle, curves.mean(0), color=color, label=name)
            if runs[name] is not baseline:
                gap = 100 * (curves / smooth[next(n for n in BASELINES if n in runs)] - 1)
                bottom.plot(middle, gap.mean(0), color=color, label=name)
                bottom.fill_between(middle, gap.min(0), gap.max(0), color=color, alpha=0.2, linewidth=0)
        top.set(title=trainer)
        top.legend()
        bottom.axhline(0, color="black", linewidth=0.5)
        bottom.set(xlabel=f"step of {BATCH * SEQUENCE} tokens")
    axes[0, 0].set_ylabel(f"training loss (nats a byte),\nmean of {window} steps and all seeds")
    axes[1, 0].set_ylabel("gap to BF16 (%),\nmean, least and largest")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def _round(run):
    return {**run, "training": [round(x, 4) for x in run["training"]], "validation": round(run["validation"], 5)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("study", type=pathlib.Path, help="the folder of parity.json and parity.svg")
    parser.add_argument("--program", type=pathlib.Path, required=True, help="the program fp4lab")
    parser.add_argument("--runs", type=pathlib.Path, default=pathlib.Path("out/parity"))
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=3, choices=range(2, 11))
    parser.add_argument("--modes", nargs="+", default=list(MODES), choices=list(MODES), help="te_no_quant and others")
    options = parser.parse_args()
    if "te_no_quant" not in options.modes:
        parser.error("--modes lacks te_no_quant, to which gaps are taken")
    modes = {mode: recipe for mode, recipe in MODES.items() if mode in options.modes}
    folder, program, steps = options.runs.resolve(), options.program.resolve(), options.steps
    (folder / "data").mkdir(parents=True, exist_ok=True)
    _corpus(program, folder / "data")
    results = {"MaxText": {m: [] for m in modes}, "fp4lab": {m: [] for m in modes.values()}}
    for mode, recipe in modes.items():
        for seed in range(options.seeds):
            results["MaxText"][mode].append(
                _stored(folder / f"maxtext.{mode}.{seed}.json", steps, lambda: _maxtext(folder, mode, seed, steps))
            )
            results["fp4lab"][recipe].append(
                _stored(folder / f"fp4lab.{recipe}.{seed}.json", steps, lambda: _own(program, folder, recipe, seed, steps))
            )
    results = {t: {m: [_round(run) for run in of] for m, of in runs.items()} for t, runs in results.items()}
    text = json.dumps({"steps": steps, "tokens_a_step": BATCH * SEQUENCE, "runs": results})
    text = text.replace('"training"', '\n"training"').replace('"calls"', '\n"calls"')
    (options.study / "parity.json").write_text(text + "\n")
    _figure(options.study / "parity.svg", results, steps)
    print("python3 studies/results/tables.py writes the table")


if __name__ == "__main__":
    main()
