#!/usr/bin/env python3
"""The figures of the league of recipes, from the documents that `fp4lab study league` prints.

    python3 studies/league/figures.py

reads league.json and league-4.7m.json in studies/results/league and draws plans.svg, costs.svg, league.svg, rest.svg
and sizes.svg there. Needs NumPy and Matplotlib.
"""
import json
import math
import pathlib
import sys

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
OUT = HERE.parent / "results/league"
sys.path.insert(0, str(HERE.parent / "surface"))
from plots import pyplot  # noqa: E402

DOCUMENT = json.loads((OUT / "league.json").read_text())
FORWARD, PLANS = DOCUMENT["forwards"], DOCUMENT["plans"]
COLORS = ("#4269d0", "#3ca951", "#efb118", "#a463f2", "0.35")  # of FORWARD


def save(figure, axes, rows, path):
    """With the legend of the forward passes."""
    marks, labels = axes.get_legend_handles_labels()
    for index in sorted({row["forward"] for row in rows}, reverse=True):
        marks[:0] = axes.plot([], [], "o", color=COLORS[index], markersize=4.5)
        labels.insert(0, FORWARD[index])
    axes.legend(marks, labels, frameon=False, fontsize=8, title="forward pass", title_fontsize=8, alignment="left",
                loc="upper right")
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def gap_axes(axes, names, size, note):
    """A line a name, losses above BF16's along x."""
    axes.set_yticks(range(len(names)), names, fontsize=size)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.axvline(0, color="0.6", linewidth=0.8)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("loss above BF16's after 37.7M bytes, nats per byte\n" + note, fontsize=8.5)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x", color="0.9", linewidth=0.6)
    axes.set_axisbelow(True)


def gap_mark(axes, y, row, hollow):
    """A recipe's loss above BF16's: mean, seeds, and the interval where it is known."""
    gap, color = row["gap"]["bf16"], COLORS[row["forward"]]
    if gap["interval"]:
        axes.plot(gap["interval"], [y, y], color=color, linewidth=1.4, alpha=0.45)
    axes.plot(gap["seeds"], [y] * len(gap["seeds"]), "|", color=color, markersize=5)
    axes.plot(gap["mean"], y, "o", color=color, markersize=4.5, markerfacecolor="white" if hollow else color)


def recipes(plt, rows, reference, path):
    """A line a recipe: mean, seeds, interval; hollow where BF16 has blocks, linears or the end of training. Dotted:
    the gap `reference`."""
    figure, axes = plt.subplots(figsize=(7.2, 0.9 + 0.165 * len(rows)))
    for i, row in enumerate(rows):
        gap_mark(axes, i, row, row["partly"])
    if any(row["partly"] for row in rows):
        axes.plot([], [], "o", color="0.35", markerfacecolor="white", markersize=4.5, label="BF16 in part (hollow)")
    axes.axvline(reference, color=COLORS[0], linewidth=0.8, linestyle=":")
    gap_axes(axes, [row["recipe"] for row in rows], 7.5, "mean, seeds, 95 % interval")
    save(figure, axes, rows, path)


def plans(plt, rows, path):
    """A line per plan, a point per recipe."""
    figure, axes = plt.subplots(figsize=(7.2, 0.9 + 0.3 * len(PLANS)))
    for i in range(len(PLANS)):
        own = [row for row in rows if row["plan"] == i]
        for row in own:
            axes.plot(row["gap"]["bf16"]["mean"], i, "o", color=COLORS[row["forward"]], markersize=5, alpha=0.6,
                      markeredgewidth=0)
        if len(own) > 3:
            middle = np.median([row["gap"]["bf16"]["mean"] for row in own])
            axes.plot([middle, middle], [i - 0.3, i + 0.3], color="0.2", linewidth=1.2)
    gap_axes(axes, PLANS, 8.5, "a point per recipe, the median")
    save(figure, axes, rows, path)


NAMED = {  # recipes with a name in costs.svg: where it stands, in points from the recipe's
    "quartet2": (6, -3), "te_nvfp4": (6, -3), "mxfp4": (6, -3), "hifloat4": (6, -3), "te_mxfp8": (6, -1),
    "te_mxfp8_fwd_nvfp4_bwd": (-38, -12), "quartet2_backward_only": (6, -9), "maxtext_te_nvfp4_mlp": (6, -3),
    "nvidia_nvfp4_12b": (6, -3), "nvidia_nvfp4_8b": (6, -3), "nvidia_nvfp4_12b_switch_bf16": (6, -3),
    "te_nvfp4_backward_high_precision": (6, -3), "fouroversix_mseden": (6, -9)}


def costs(plt, rows, path):
    """Token ratio to BF16 against the time of a token's products; a grey line connects equal products of the two."""
    figure, axes = plt.subplots(figsize=(7.2, 4.6))
    shown = [row for row in rows if row["log_ratio"]["bf16"] is not None]
    x = np.linspace(0.22, 1.05, 200)
    for time in (0.25, 0.35, 0.5, 0.7, 1.0):
        axes.plot(x, time / x, color="0.85", linewidth=0.8, zorder=0)
        top = min(time / 0.24, 1.92)
        axes.annotate(f"{time:g}", (time / top, top), fontsize=7.5, color="0.5", ha="center", va="bottom")
    for row in shown:
        ratio = math.exp(row["log_ratio"]["bf16"]["mean"])
        axes.plot(row["product_time"], ratio, "o", color=COLORS[row["forward"]], markersize=5, alpha=0.6,
                  markeredgewidth=0)
        if row["recipe"] in NAMED:
            axes.annotate(row["recipe"], (row["product_time"], ratio), NAMED[row["recipe"]], fontsize=7,
                          textcoords="offset points")
    axes.plot(1, 1, "+", color="0.2", markersize=8)
    axes.annotate("BF16", (1, 1), (6, -3), fontsize=7, textcoords="offset points")
    axes.set_xlim(0.22, 1.12)
    axes.set_ylim(0.94, 1.98)
    axes.set_xlabel("time of a token's products / BF16's, at rates of 1, 2 and 4 for 16, 8 and 4 bits\n"
                    "grey: equal time of all products to equal loss / BF16's", fontsize=8.5)
    axes.set_ylabel("tokens / BF16's, equal loss", fontsize=8.5)
    save(figure, axes, shown, path)


def sizes(plt, small, large, path):
    """A line a recipe of the larger model, from `small` above to `large`: mean, seeds and interval of each."""
    figure, axes = plt.subplots(figsize=(7.2, 0.9 + 0.36 * len(large)))
    of_small = {row["recipe"]: row for row in small}
    for i, row in enumerate(large):
        gap_mark(axes, i - 0.16, of_small[row["recipe"]], hollow=True)
        gap_mark(axes, i + 0.16, row, hollow=False)
    for fill, size, rows in (("white", "1.2M", small), ("0.35", "4.7M", large)):
        label = f"{size}, {max(len(row['seeds']) for row in rows)} seeds"
        axes.plot([], [], "o", color="0.35", markerfacecolor=fill, markersize=4.5, label=label)
    gap_axes(axes, [row["recipe"] for row in large], 8.5, "mean, seeds, 95 % interval")
    save(figure, axes, large, path)


def shown(document):
    """The rows of recipes that learn, without the references."""
    return [row for row in document["rows"] if row["recipe"] not in ("bf16", "null") and row["pool"] is not None]


def main():
    plt = pyplot()
    rows = shown(DOCUMENT)
    sizes(plt, rows, shown(json.loads((OUT / "league-4.7m.json").read_text())), OUT / "sizes.svg")
    plans(plt, rows, OUT / "plans.svg")
    costs(plt, rows, OUT / "costs.svg")
    reference = next(row for row in rows if row["recipe"] == "te_nvfp4")["gap"]["bf16"]["mean"]
    for name, four_bits in (("league.svg", True), ("rest.svg", False)):
        recipes(plt, [row for row in rows if row["four_bits"] == four_bits], reference, OUT / name)


if __name__ == "__main__":
    main()
