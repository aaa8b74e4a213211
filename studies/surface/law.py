#!/usr/bin/env python3
"""BF16's loss and the gaps to it as laws over sizes, and their prediction for a size that was not in the fit.

    python3 studies/surface/law.py studies/results/surface-c-0.3m studies/results/surface-c-1.2m \
        --predict 4718592 --places 16 32 64 --out studies/results/surface/law-4.7m.json

fits gap = c N^-a (D/N)^b for NVFP4 and for MXFP4 by least squares on ln gap over seeds and budgets, N in block
parameters, D in bytes, and writes the law with its predictions, from which studies/results/tables.py makes the
tables of README.md. Only budgets behind the fall of every seed of both arms and of BF16 are taken: the last
ones of a study, from the first budget on after which all seeds stay together (surface.py, APART). Intervals:
quantiles of a bootstrap over seeds, drawn in each study on its own. A prediction has two: of the law, and of
the mean over three new seeds, which scatter about the law as the fitted ones do.

With three sizes or more BF16's loss is fitted at the same budgets as E + A N^-alpha + B D^-beta (Hoffmann et al.,
arXiv 2203.15556) by least squares on its ln. It and the gaps give the token ratio of MXFP4 to NVFP4 in extend form, at
PLACES that NVFP4 has read. The slope of the loss in D matters to the ratio, and its level does not.

With --join-seeds, NAME-seeds beside a fitted study NAME joins it (surface.py): the law of all seeds, which tables.py
expects in the other law's file name with -seeds.

With --measured RESULTS, of one or more studies of the predicted size, which NAME-long joins as surface.py says, two
figures are drawn beside OUT: gaps against size, measured, and predicted at the last of PLACES that has been
measured; and OUT's name with -ratio, the ratios of the fitted sizes and the predicted one. Needs NumPy, SciPy and
Matplotlib.
"""
import argparse
import collections
import json
import math
import pathlib
import sys

import numpy as np
from scipy.optimize import brentq, least_squares

from surface import Study, finish_ratios, joins, log_ratios, pyplot, quantiles, t_interval

ARMS = ("nvfp4", "mxfp4")
LOSS_LAW = ("E", "ln_A", "alpha", "ln_B", "beta")
DRAWS = 4000
NEW_SEEDS = 3  # of the predicted study
LOSS_DRAWS = 1000  # of DRAWS, for the law of the loss and the ratios
EXACT = dict.fromkeys(ARMS, 1.0)  # effects of new seeds on the gaps: none
Fit = collections.namedtuple("Fit", "law drawn noise", defaults=[None])  # drawn: a law a draw of seeds


def settled(study):
    """The indices of the budgets behind the fall."""
    split = study.apart
    together = ~(split["bf16"] | split["nvfp4"] | split["mxfp4"])
    first = len(together)
    while first > 0 and together[first - 1]:
        first -= 1
    return list(range(first, len(together)))


def gaps_of(study):
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


def bf16_losses_of(study):
    """BF16's, seeds x budgets behind the fall, and these budgets in bytes."""
    at = settled(study)
    return study.means()["bf16"][:, at], np.array(study.budgets, float)[at]


def fit_loss(points, seeds):
    """LOSS_LAW of BF16's loss, N and D in millions; `points`: parameters and bf16_losses_of of each study; `seeds`:
    drawn ones, a list of indices a study."""
    n = np.concatenate([np.full(len(budgets), parameters / 1e6) for parameters, _, budgets in points])
    d = np.concatenate([budgets / 1e6 for _, _, budgets in points])
    loss = np.concatenate([losses[drawn].mean(0) for (_, losses, _), drawn in zip(points, seeds)])
    return least_squares(lambda law: np.log(loss_of(law, n, d) / loss), [0.8, -1.0, 0.5, 0.5, 0.5], max_nfev=2000).x


def loss_of(law, n, d):
    """BF16's loss of n million parameters after d million bytes."""
    e, ln_a, alpha, ln_b, beta = law
    return e + np.exp(ln_a - alpha * np.log(n)) + np.exp(ln_b - beta * np.log(d))


def log_ratio(loss_law, gap_laws, parameters, place, effects=EXACT):
    """ln of the tokens that MXFP4 needs to reach the loss of NVFP4 at `place` bytes a parameter, over NVFP4's; NaN
    where it does not reach it with 20 times as many. effects[arm] multiplies the arm's gap."""
    def loss(arm, at):
        ln_c, minus_a, b = gap_laws[arm]
        gap = math.exp(ln_c + minus_a * math.log(parameters) + b * math.log(at)) * effects[arm]
        return loss_of(loss_law, parameters / 1e6, at * parameters / 1e6) + gap

    level, most = loss("nvfp4", place), math.log(20)

    def above(u):
        return loss("mxfp4", place * math.exp(u)) - level

    return brentq(above, -most, most) if above(-most) > 0 > above(most) else math.nan


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


def plot_ratios(studies, measured, loss_law, gap_laws, predicted, path):
    """The measured ratios in extend form behind the fall, those of the laws, and the intervals of `predicted`, the
    records of the size of the studies `measured`."""
    figure, axes = pyplot().subplots(figsize=(6.4, 4.2))
    places = [r["bytes_per_parameter"] for r in predicted]
    for of_size, color in zip([*([s] for s in studies), measured], ("#9498a0", "#6cc5b0", "#4269d0", "#ff725c")):
        seen = []
        for study in of_size:
            means = study.means()
            for b in settled(study):
                values = log_ratios(study, means, "mxfp4", "nvfp4", b)
                if np.isfinite(values).all():
                    mean, (low, high) = math.exp(values.mean()), np.exp(t_interval(values))
                    seen.append(study.bytes_each[b])
                    axes.errorbar(seen[-1], mean, [[mean - low], [high - mean]], fmt="o", color=color, capsize=2)
        if not seen:
            continue
        x = np.geomspace(min(seen), places[-1] if of_size is measured else max(seen), 60)
        parameters = of_size[0].parameters
        y = [math.exp(log_ratio(loss_law, gap_laws, parameters, place)) for place in x]
        said = "predicted" if of_size is measured else "fitted"
        axes.plot(x, y, ":", color=color, linewidth=1.4, label=f"{parameters / 1e6:.1f}M, {said}")
    low, high = np.transpose([r["interval_three_seeds"] for r in predicted])
    axes.fill_between(places, low, high, color="#ff725c", alpha=0.15, linewidth=0)
    axes.plot([], [], "o", color="0.35", label="measured")
    finish_ratios(figure, axes, path, loc="upper left")


def gap_record(fit, size, places):
    draws = np.array([law for law in fit.drawn if law is not None])
    known = np.array([law is not None for law in fit.drawn])

    def gap(law, place):
        return np.exp(law[..., 0] + law[..., 1] * math.log(size) + law[..., 2] * math.log(place))

    return {"ln_c": float(fit.law[0]), "a": -float(fit.law[1]), "a_interval": quantiles(-draws[:, 1]),
            "b": float(fit.law[2]), "b_interval": quantiles(draws[:, 2]),
            "predictions": [{"bytes_per_parameter": place, "gap": float(gap(fit.law, place)),
                             "interval": quantiles(gap(draws, place)),
                             "interval_three_seeds": quantiles(gap(draws, place) * fit.noise[known])}
                            for place in places]}


def loss_record(fit, size, places):
    draws, n = np.transpose(fit.drawn), size / 1e6
    record = {}
    for name, value, drawn in zip(LOSS_LAW, fit.law, draws):
        record[name], record[name + "_interval"] = float(value), quantiles(drawn)
    record["predictions"] = [{"bytes_per_parameter": place, "loss": float(loss_of(fit.law, n, n * place)),
                              "interval": quantiles(loss_of(draws, n, n * place))} for place in places]
    return record


def ratio_record(loss, gaps, size, place):
    without, with_noise = [], []
    for i, loss_law in enumerate(loss.drawn):
        laws = {arm: gaps[arm].drawn[i] for arm in ARMS}
        if any(law is None for law in laws.values()):
            continue
        without.append(math.exp(log_ratio(loss_law, laws, size, place)))
        noise = {arm: gaps[arm].noise[i] for arm in ARMS}
        with_noise.append(math.exp(log_ratio(loss_law, laws, size, place, noise)))
    laws = {arm: gaps[arm].law for arm in ARMS}
    if not np.isfinite(without + with_noise).all():
        sys.exit(f"--places {place:g}: by some of the drawn laws MXFP4 does not reach NVFP4's loss there with 20 times "
                 "its tokens; leave that place out")
    return {"bytes_per_parameter": place, "ratio": math.exp(log_ratio(loss.law, laws, size, place)),
            "interval": quantiles(without), "interval_three_seeds": quantiles(with_noise)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", nargs="+", help="folders with a results.json: two sizes at least")
    parser.add_argument("--predict", type=int, required=True, help="block parameters")
    parser.add_argument("--places", type=float, nargs="+", required=True, help="bytes a parameter to predict at")
    parser.add_argument("--out", required=True, help="the file to write")
    parser.add_argument("--join-seeds", action="store_true", help="NAME-seeds joins a fitted study NAME")
    parser.add_argument("--measured", nargs="+", help="folders with a results.json of the predicted size")
    options = parser.parse_args()
    size, places = options.predict, options.places
    join = ("-seeds",) if options.join_seeds else ()
    studies = sorted((Study(r, join) for r in options.results), key=lambda s: s.parameters)
    points = [(s.parameters, *gaps_of(s)) for s in studies]
    sizes = {p for p, _, at in points if len(at)}
    if len(sizes) < 2:
        parser.error("a law over sizes needs two sizes with budgets behind the fall")
    rng = np.random.default_rng(20261)
    drawn = [[rng.integers(0, len(s.seeds), len(s.seeds)) for s in studies] for _ in range(DRAWS)]
    whole = [np.arange(len(s.seeds)) for s in studies]
    gaps = {}
    for arm in ARMS:
        law = fit(points, arm, whole)
        effects = seed_effects(points, arm, law)
        # One generator for both arms: their new seeds are pairs.
        picked = np.random.default_rng(20262).integers(0, len(effects), (DRAWS, NEW_SEEDS))
        gaps[arm] = Fit(law, [fit(points, arm, seeds) for seeds in drawn], 1 + effects[picked].mean(1))
    out = {"studies": [{"name": s.name, "sha256_of_results": s.results["sha256"], "bytes_per_parameter": list(at)}
                       | ({"joined": s.joined_records()} if s.joined else {})
                       for s, (_, _, at) in zip(studies, points)],
           "predicted_parameters": size, "arms": {arm: gap_record(gaps[arm], size, places) for arm in ARMS}}
    if len(sizes) > 2:
        losses = [(s.parameters, *bf16_losses_of(s)) for s in studies]
        loss = Fit(fit_loss(losses, whole), [fit_loss(losses, seeds) for seeds in drawn[:LOSS_DRAWS]])
        out["loss"] = loss_record(loss, size, places)
        out["token_ratios"] = [ratio_record(loss, gaps, size, place) for place in places]
    path = pathlib.Path(options.out)
    path.write_text(json.dumps(out, indent=1) + "\n")
    if options.measured:
        measured = [Study(r, joins(r, options.measured)) for r in options.measured]
        for study in measured:
            if study.parameters != size:
                parser.error(f"--measured: {study.name} has {study.parameters} block parameters, --predict says {size}")
        plot(studies, out, max(measured, key=lambda s: s.budgets[-1]), path.with_suffix(".svg"))
        if "token_ratios" in out:
            plot_ratios(studies, measured, loss.law, {arm: gaps[arm].law for arm in ARMS}, out["token_ratios"],
                        path.with_name(path.stem + "-ratio.svg"))


if __name__ == "__main__":
    main()
