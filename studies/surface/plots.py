#!/usr/bin/env python3
"""The figures of the surface, from the documents that `fp4lab study surface` and `fp4lab study law` print.

    python3 studies/surface/plots.py

reads surface.json, law-25m.json and law-25m-seeds.json in studies/results/surface and draws there surface.svg (the
token ratio of MXFP4 to NVFP4 against NVFP4's bytes per parameter, a line per study), gaps.svg (their losses above BF16's),
seeds.svg (the loss of each run), shares.svg (of studies with all eight corners), law-25m.svg (gaps against size,
measured, and predicted at the last place) and law-25m-ratio.svg (the ratios of the fitted sizes and the predicted one).
Needs NumPy and Matplotlib. Published ratios are not drawn: their unit is BPE tokens and their recipes keep blocks in
BF16, as no study here does.
"""
import json
import math
import pathlib

import numpy as np

OUT = pathlib.Path(__file__).resolve().parent.parent / "results/surface"
APART = 0.06  # nats per byte; joined_study.h
FACTORS = ("scale format", "block length", "weight tile")
BELOW = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.16), "ncol": 2}  # the legend, beneath the axis


def seeds_of(gap):
    """{arm: the losses of the seeds} at a budget."""
    bf16 = np.array(gap["bf16"]["seeds"])
    return {"bf16": bf16} | {arm: bf16 + np.array(gap[arm]["seeds"]) for arm in ("nvfp4", "mxfp4")}


def label(analyzed):
    name = (f"{analyzed['block_parameters'] / 1e6:.1f}M, {analyzed['text']}, "
            f"sequences of {analyzed['sequence']}")
    return name + ", continued" if analyzed["name"].endswith("-long") else name


def bytes_axis(axes, name="bytes per block parameter"):
    axes.set_xscale("log", base=2)
    low, high = axes.get_xlim()
    ticks = [t for t in (0.25, 0.5, 1, 2, 4, 8, 16, 32, 64, 128, 256) if low <= t <= high]
    if len(ticks) > 6:
        ticks = ticks[::-2][::-1]
    axes.set_xticks(ticks, [f"{t:g}" for t in ticks])
    axes.set_xlabel(name)


def plot_seeds(studies, plt, out):
    """The loss of each run of BF16, NVFP4 and MXFP4 against bytes per parameter, a panel per study."""
    rows = -(-len(studies) // 2)
    figure, panels = plt.subplots(rows, 2, figsize=(8.4, 0.4 + 3.2 * rows), squeeze=False, sharey=True)
    for unused in panels.flat[len(studies):]:
        unused.remove()
    for axes, study in zip(panels.flat, studies):
        x = [gap["bytes_per_parameter"] for gap in study["gaps"]]
        losses = [seeds_of(gap) for gap in study["gaps"]]
        for arm, color in (("bf16", "0.35"), ("nvfp4", "#4269d0"), ("mxfp4", "#efb118")):
            for s, of_seed in enumerate(np.transpose([at[arm] for at in losses])):
                axes.plot(x, of_seed, "o-", color=color, markersize=3, linewidth=1,
                          label=arm if s == 0 else None)
        bytes_axis(axes)
        axes.set_title(label(study), fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
    for first in panels[:, 0]:
        first.set_ylabel("annealed validation loss, nats per byte")
    panels[0][0].legend(frameon=False)
    figure.tight_layout()
    figure.savefig(out / "seeds.svg", metadata={"Date": None})


def finish(figure, axes, path, name="bytes per block parameter", **legend):
    bytes_axis(axes, name)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9, **legend)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def plot_ratios(studies, colors, plt, out):
    """Extend form filled, shrink form hollow, a cross where it is not identified; nothing where the seeds of an arm are
    apart."""
    figure, axes = plt.subplots(figsize=(6.4, 5.4))
    for s, color in zip(studies, colors):
        x, low, high = np.transpose([r["bytes_at_equal_loss"] for r in s["ratios"]])
        y, bottom, top = np.exp(np.transpose([[r["log_ratio"]["mean"], *r["log_ratio"]["interval_t"]]
                                              for r in s["ratios"]]))
        axes.plot(x, y, "-", color=color, linewidth=1.2)
        for form, face in (("extend", color), ("shrink", "white")):
            own = np.array([r["form"] == form for r in s["ratios"]])
            agree = np.array([r["estimators_agree"] for r in s["ratios"]])
            axes.plot(x[own & agree], y[own & agree], "o", color=color, markerfacecolor=face, markersize=5)
            axes.plot(x[own & ~agree], y[own & ~agree], "x", color=color, markersize=5)
            axes.fill([*low[own], *high[own][::-1]], [*bottom[own], *top[own][::-1]], color=color, alpha=0.1,
                      linewidth=0)
        axes.plot([], [], "o-", color=color, linewidth=1.2, markersize=5, label=label(s))
    axes.plot([], [], "x", color="0.35", markersize=5, label="not identified: estimators part")
    finish_ratios(figure, axes, out / "surface.svg", **BELOW)


def finish_ratios(figure, axes, path, **legend):
    """As finish, for ratios of MXFP4 to NVFP4 against NVFP4's bytes."""
    axes.axhline(1, color="0.6", linewidth=0.8)
    axes.set_yscale("log")
    axes.set_yticks([1, 1.25, 1.5, 2, 2.5, 3], ["1", "1.25", "1.5", "2", "2.5", "3"])
    axes.minorticks_off()
    axes.set_ylabel("tokens of MXFP4 / tokens of NVFP4, equal loss")
    finish(figure, axes, path, "bytes per block parameter that NVFP4 has read", **legend)


def plot_gaps(studies, colors, plt, out):
    """Losses above BF16's: NVFP4 filled, MXFP4 hollow; left out where the seeds of an arm are apart."""
    figure, axes = plt.subplots(figsize=(6.4, 5.2))
    for s, color in zip(studies, colors):
        rows = [r if r["apart"] <= APART else None for r in s["gaps"]]
        for arm, face in (("nvfp4", color), ("mxfp4", "none")):
            x = [r["bytes_per_parameter"] for r in s["gaps"]]
            y = [r[arm]["mean"] if r else math.nan for r in rows]
            e = [[r[arm]["mean"] - r[arm]["interval_t"][0] if r else math.nan for r in rows]] * 2
            axes.errorbar(x, y, e, fmt="o-" if arm == "nvfp4" else "o--", color=color, markerfacecolor=face,
                          capsize=2, linewidth=1, label=label(s) if arm == "nvfp4" else None)
    axes.set_yscale("log", nonpositive="clip")
    axes.set_ylim(0.004, 0.3)
    axes.set_yticks([0.005, 0.01, 0.02, 0.05, 0.1, 0.2], ["0.005", "0.01", "0.02", "0.05", "0.1", "0.2"])
    axes.minorticks_off()
    axes.set_ylabel("loss above BF16's, nats per byte\nfilled: NVFP4, hollow: MXFP4")
    finish(figure, axes, out / "gaps.svg", **BELOW)


def pyplot():
    """Matplotlib, set to write the same SVG from the same numbers."""
    import matplotlib
    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "fp4lab"
    matplotlib.rcParams["svg.fonttype"] = "none"
    import matplotlib.pyplot
    return matplotlib.pyplot


def plot(studies, plt, out):
    plot_seeds(studies, plt, out)
    colors = [plt.get_cmap("viridis")(v) for v in np.linspace(0.05, 0.85, len(studies))]
    plot_ratios(studies, colors, plt, out)
    plot_gaps(studies, colors, plt, out)
    with_shares = [s for s in studies if s["shares"]]
    if not with_shares:
        return
    figure, panels = plt.subplots(1, len(with_shares), figsize=(1.6 + 4.4 * len(with_shares), 3.8),
                                  squeeze=False, sharey=True)
    for axes, s in zip(panels[0], with_shares):
        x = [r["bytes_per_parameter"] for r in s["shares"]]
        marks = zip(FACTORS, ("#4269d0", "#efb118", "#3ca951"), "os^", (0.98, 1, 1.02))
        for f, color, mark, aside in marks:
            y = [r["shares"][f]["mean"] for r in s["shares"]]
            e = [[y[i] - r["shares"][f]["interval_t"][0] for i, r in enumerate(s["shares"])],
                 [r["shares"][f]["interval_t"][1] - y[i] for i, r in enumerate(s["shares"])]]
            axes.errorbar([aside * v for v in x], y, e, fmt=mark + "-", color=color, capsize=3, label=f)
        axes.axhline(0, color="0.6", linewidth=0.8)
        bytes_axis(axes)
        axes.set_title(label(s), fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0][0].set_ylabel("share of ln r, NVFP4 with row blocks\nto MXFP4 with square ones")
    panels[0][0].legend(frameon=False)
    figure.tight_layout()
    figure.savefig(out / "shares.svg", metadata={"Date": None})


def gap_of(law, parameters, place):
    return math.exp(law["ln_c"] - law["a"] * math.log(parameters) + law["b"] * math.log(place))


def plot_law(studies, measured, law, plt, path):
    """The gaps of each size at its largest budget, and those predicted for the measured study."""
    figure, axes = plt.subplots(figsize=(6.4, 4.2))
    every = [*studies, measured]
    sizes = np.array([s["block_parameters"] for s in every], float)
    places = np.array([s["gaps"][-1]["bytes_per_parameter"] for s in every])
    for arm, color, aside in (("nvfp4", "#4269d0", 0.97), ("mxfp4", "#efb118", 1.03)):
        of_arm, name = law["arms"][arm], arm.upper()
        axes.plot(sizes, [gap_of(of_arm, n, p) for n, p in zip(sizes, places)], ":", color=color, linewidth=1,
                  label=f"{name}, law")
        for study in every:
            gap = study["gaps"][-1][arm]
            mean, (low, high) = gap["mean"], gap["interval_t"]
            axes.errorbar(study["block_parameters"] * aside, mean, [[mean - low], [high - mean]], fmt="o",
                          color="#ff725c" if study is measured else color,
                          markeredgecolor=color, ecolor=color, capsize=2,
                          label=None if study is not studies[0] else f"{name}, fitted")
        last = min(of_arm["predictions"], key=lambda p: abs(math.log(p["bytes_per_parameter"] / places[-1])))
        low, high = last["interval_three_seeds"]
        axes.fill_between([sizes[-1] * 0.85, sizes[-1] * 1.18], low, high, color=color, alpha=0.25,
                          linewidth=0, label=f"{name}, predicted interval")
    axes.plot([], [], "o", color="#ff725c", label="measured after the prediction")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks(sizes, [f"{n / 1e6:.1f}M" for n in sizes])
    axes.set_yticks([0.005, 0.01, 0.02, 0.05, 0.1, 0.2], ["0.005", "0.01", "0.02", "0.05", "0.1", "0.2"])
    axes.minorticks_off()
    axes.set_xlabel("block parameters")
    axes.set_ylabel("loss above BF16's at the largest budget, nats per byte")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9, loc="lower left")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def log_ratio(law, parameters, place):
    """ln of the token ratio by the laws of the loss and of the gaps, as LogRatioOfLaws of gap_law.h says."""
    of_loss, million = law["loss"], 1e6

    def loss(arm, at):
        return (of_loss["E"] + math.exp(of_loss["ln_A"]) * (parameters / million) ** -of_loss["alpha"]
                + math.exp(of_loss["ln_B"]) * (at * parameters / million) ** -of_loss["beta"]
                + gap_of(law["arms"][arm], parameters, at))

    level, low, high = loss("nvfp4", place), -math.log(20), math.log(20)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if loss("mxfp4", place * math.exp(middle)) > level else (low, middle)
    return low


def plot_law_ratios(studies, measured, law, plt, path):
    """The measured ratios in extend form behind the fall, those of the laws, and the predicted intervals."""
    figure, axes = plt.subplots(figsize=(6.4, 4.2))
    predicted = law["token_ratios"]
    places = [r["bytes_per_parameter"] for r in predicted]
    for of_size, color in zip([*([s] for s in studies), measured], ("#9498a0", "#6cc5b0", "#4269d0", "#ff725c")):
        seen = []
        for study in of_size:
            late = [g["tokens"] for g in study["gaps"] if g["apart"] > APART]
            for r in study["ratios"]:
                if r["form"] == "extend" and r["tokens"] > max(late, default=0):
                    mean, low, high = map(math.exp, (r["log_ratio"]["mean"], *r["log_ratio"]["interval_t"]))
                    seen.append(r["bytes_per_parameter"])
                    axes.errorbar(seen[-1], mean, [[mean - low], [high - mean]], fmt="o", color=color, capsize=2)
        if not seen:
            continue
        x = np.geomspace(min(seen), places[-1] if of_size is measured else max(seen), 60)
        parameters = of_size[0]["block_parameters"]
        y = [math.exp(log_ratio(law, parameters, place)) for place in x]
        said = "predicted" if of_size is measured else "fitted"
        axes.plot(x, y, ":", color=color, linewidth=1.4, label=f"{parameters / 1e6:.1f}M, {said}")
    low, high = np.transpose([r["interval_three_seeds"] for r in predicted])
    axes.fill_between(places, low, high, color="#ff725c", alpha=0.15, linewidth=0)
    axes.plot([], [], "o", color="0.35", label="measured")
    finish_ratios(figure, axes, path, loc="upper left")


def main():
    plt = pyplot()
    studies = json.loads((OUT / "surface.json").read_text())["studies"]
    plot(studies, plt, OUT)
    of = {s["name"]: s for s in studies}
    law = json.loads((OUT / "law-25m.json").read_text())
    fitted = [of[part["name"]] for part in law["studies"]]
    plot_law(fitted, of["surface-c-25m-long"], law, plt, OUT / "law-25m.svg")
    plot_law_ratios(fitted, [of["surface-c-25m"], of["surface-c-25m-long"]], law, plt, OUT / "law-25m-ratio.svg")


if __name__ == "__main__":
    main()
