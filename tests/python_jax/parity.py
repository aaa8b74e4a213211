"""Parity of NVFP4 with BF16 in MaxText: python parity.py FOLDER [--steps 300] [--seeds 3]

Trains the tiny model of maxtext_run.py with te_no_quant, te_nvfp4 and te_nvfp4_no_rht, which start from the same weights
a seed, and writes FOLDER/parity.png (loss curves, and the gap to te_no_quant) and FOLDER/parity.json. Runs that are finished
are read, not repeated. MaxText's synthetic data are one batch that the model learns by heart: the figure compares
optimization, not generalization.
"""

import argparse
import json
import pathlib

import maxtext_run
import numpy as np

MODES = ("te_no_quant", "te_nvfp4", "te_nvfp4_no_rht")


def _losses(folder, mode, seed, steps):
    path = folder / f"{mode}.{seed}.json"
    if path.exists():
        stored = json.loads(path.read_text())
        if len(stored) == steps:
            return stored
    records, _ = maxtext_run.run(folder / f"{mode}.{seed}", mode, steps=steps, init_weights_seed=seed,
                                 learning_rate=3e-4)
    losses = [r["learning/loss"] for r in records]
    path.write_text(json.dumps(losses))
    print(f"{mode} seed {seed}: {losses[0]:.4f} -> {losses[-1]:.4f}", flush=True)
    return losses


def _figure(path, losses):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (top, bottom) = plt.subplots(2, 1, sharex=True, figsize=(7, 7), height_ratios=(3, 2))
    for mode, color in zip(MODES, ("black", "tab:green", "tab:orange")):
        runs = np.array(losses[mode])
        for i, run in enumerate(runs):
            top.plot(run, color=color, alpha=0.7, linewidth=1, label=mode if i == 0 else None)
        if mode != "te_no_quant":
            gap = 100 * (runs / np.array(losses["te_no_quant"]) - 1)
            bottom.plot(gap.mean(0), color=color, label=mode)
            bottom.fill_between(range(gap.shape[1]), gap.min(0), gap.max(0), color=color, alpha=0.2)
    top.set(ylabel="loss (nats)", yscale="log", title=f"MaxText on a CPU, {len(losses[MODES[0]])} seeds")
    top.legend()
    bottom.set(xlabel="step", ylabel="loss gap to te_no_quant (%)")
    bottom.axhline(0, color="black", linewidth=0.5)
    bottom.legend(title="mean, least and largest")
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    losses = {
        mode: [_losses(options.folder, mode, seed, options.steps) for seed in range(options.seeds)] for mode in MODES
    }
    last = {mode: [run[-1] for run in runs] for mode, runs in losses.items()}
    (options.folder / "parity.json").write_text(json.dumps({"steps": options.steps, "last_loss": last}, indent=1) + "\n")
    _figure(options.folder / "parity.png", losses)


if __name__ == "__main__":
    main()
