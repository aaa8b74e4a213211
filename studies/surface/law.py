#!/usr/bin/env python3
"""The gap to BF16 as a law over sizes, and its prediction for a size that was not in the fit.

    python3 studies/surface/law.py studies/results/surface-c-0.3m studies/results/surface-c-1.2m \
        --predict 4718592 --places 16 32 64 --out studies/results/surface/law-4.7m.json

fits gap = c N^-a (D/N)^b for NVFP4 and for MXFP4 by least squares on ln gap over seeds and budgets, N in block
parameters, D in bytes, and writes the law with its predictions, from which studies/results/tables.py makes the
tables of README.md. Only budgets behind the fall of every seed of both arms and of BF16 are taken: the last
ones of a study, from the first budget on after which all seeds stay together (surface.py, APART). Intervals:
quantiles of a bootstrap over seeds, drawn in each study on its own. A prediction has two: of the law, and of
the mean over three new seeds, which scatter about the law as the fitted ones do. With --measured RESULTS, of a
study of the predicted size, joined with the larger budgets of RESULTS-long where they exist, a figure is drawn beside
OUT: gaps against size, measured, and predicted at the last of PLACES that has been measured. Needs NumPy and
Matplotlib.
"""
import argparse
import json
import math
import pathlib

import numpy as np

from surface import Study, pyplot, quantiles, t_interval

ARMS = ("nvfp4", "mxfp4")
DRAWS = 4000
NEW_SEEDS = 3  # of the predicted study


def settled(study):
    """The indices of the budgets behind the fall."""
    split = study.apart
    together = ~(split["bf16"] | split["nvfp4"] | split["mxfp4"])
    first = len(together)
    while first > 0 and together[first - 1]:
        first -= 1
    return list(range(first, len(together)))


def gaps(study):
    """{arm: seeds x budgets behind the fall}, and the budgets in bytes a parameter."""
    at, means = settled(study), study.means()
    return ({arm: (means[arm] - means["bf16"])[:, at] for arm in ARMS},
            np.array(study.budgets, float)[at] / study.parameters)


def fit(points, arm, seeds):
    """(ln c, -a, b) of the gaps of drawn seeds, a list of indices a study; None for a mean gap of 0 or less."""
    rows, logs = [], []
    for (parameters, values, places), drawn in zip(points, seeds):
        mean = values[arm][drawn].mean(0)
        if not (mean > 0).all():
            return None
        for place, gap in zip(places, mean):
            rows.append((1.0, math.log(parameters), math.log(place)))
            logs.append(math.log(gap))
    return np.linalg.lstsq(np.array(rows), np.array(logs), rcond=None)[0]


def seed_effects(points, arm, law):
    """Of each seed of each study, its gap over the law's, less 1: the mean over budgets."""
    effects = []
    for parameters, values, places in points:
        if len(places):
            expected = np.exp(law[0] + law[1] * math.log(parameters) + law[2] * np.log(places))
            effects.extend((values[arm] / expected).mean(1) - 1)
    return np.array(effects)


def plot(studies, out, measured, path):
    """The gaps of each size at its largest budget, and those predicted for the measured study."""
    figure, axes = pyplot().subplots(figsize=(6.4, 4.2))
    every = [*studies, measured]
    sizes = np.array([s.parameters for s in every], float)
    places = np.array([s.budgets[-1] for s in every]) / sizes
    for arm, color, aside in (("nvfp4", "#4269d0", 0.97), ("mxfp4", "#efb118", 1.03)):
        law, name = out["arms"][arm], arm.upper()
        axes.plot(sizes, np.exp(law["ln_c"]) * sizes ** -law["a"] * places ** law["b"], ":", color=color,
                  linewidth=1, label=f"{name}, law")
        for study in every:
            means = study.means()
            values = (means[arm] - means["bf16"])[:, -1]
            mean, (low, high) = values.mean(), t_interval(values)
            axes.errorbar(study.parameters * aside, mean, [[mean - low], [high - mean]], fmt="o",
                          color="#ff725c" if study is measured else color,
                          markeredgecolor=color, ecolor=color, capsize=2,
                          label=None if study is not studies[0] else f"{name}, fitted")
        last = min(law["predictions"], key=lambda p: abs(math.log(p["bytes_per_parameter"] / places[-1])))
        low, high = last["interval_three_seeds"]
        axes.fill_between([measured.parameters * 0.85, measured.parameters * 1.18], low, high, color=color, alpha=0.25,
                          linewidth=0, label=f"{name}, predicted interval")
    axes.plot([], [], "o", color="#ff725c", label="measured after the prediction")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks(sizes, [f"{n / 1e6:.1f}M" for n in sizes])
    axes.set_yticks([0.005, 0.01, 0.02, 0.05, 0.1, 0.2], ["0.005", "0.01", "0.02", "0.05", "0.1", "0.2"])
    axes.minorticks_off()
    axes.set_xlabel("block parameters")
    axes.set_ylabel("loss above BF16's at the largest budget, nats a byte")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9, loc="lower left")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", nargs="+", help="folders with a results.json: two sizes at least")
    parser.add_argument("--predict", type=int, required=True, help="block parameters")
    parser.add_argument("--places", type=float, nargs="+", required=True, help="bytes a parameter to predict at")
    parser.add_argument("--out", required=True, help="the file to write")
    parser.add_argument("--measured", help="folder with the results.json of the predicted size")
    options = parser.parse_args()
    studies = sorted((Study(r) for r in options.results), key=lambda s: s.parameters)
    points = [(s.parameters, *gaps(s)) for s in studies]
    if len({p for p, _, places in points if len(places)}) < 2:
        parser.error("a law over sizes needs two sizes with budgets behind the fall")
    rng = np.random.default_rng(20261)
    out = {"studies": [{"name": s.name, "sha256_of_results": s.results["sha256"], "bytes_per_parameter": list(places)}
                       for s, (_, _, places) in zip(studies, points)],
           "predicted_parameters": options.predict, "arms": {}}
    drawn = [[rng.integers(0, len(s.seeds), len(s.seeds)) for s in studies] for _ in range(DRAWS)]
    for arm in ARMS:
        law = fit(points, arm, [np.arange(len(s.seeds)) for s in studies])
        draws = np.array([f for seeds in drawn if (f := fit(points, arm, seeds)) is not None])

        def gap(law, place):
            return np.exp(law[..., 0] + law[..., 1] * math.log(options.predict) + law[..., 2] * math.log(place))

        effects = seed_effects(points, arm, law)
        noise = 1 + effects[np.random.default_rng(20262).integers(0, len(effects), (len(draws), NEW_SEEDS))].mean(1)
        out["arms"][arm] = {
            "ln_c": float(law[0]), "a": -float(law[1]), "a_interval": quantiles(-draws[:, 1]),
            "b": float(law[2]), "b_interval": quantiles(draws[:, 2]),
            "predictions": [{"bytes_per_parameter": place, "gap": float(gap(law, place)),
                             "interval": quantiles(gap(draws, place)),
                             "interval_three_seeds": quantiles(gap(draws, place) * noise)}
                            for place in options.places]}
    path = pathlib.Path(options.out)
    path.write_text(json.dumps(out, indent=1) + "\n")
    if options.measured:
        measured = Study(options.measured, join=True)
        if measured.parameters != options.predict:
            parser.error(f"--measured has {measured.parameters} block parameters, --predict says {options.predict}")
        plot(studies, out, measured, path.with_suffix(".svg"))


if __name__ == "__main__":
    main()
