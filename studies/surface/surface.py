#!/usr/bin/env python3
"""Token ratios of the corners between NVFP4 and MXFP4, and what each change contributes.

    python3 studies/surface/surface.py studies/results/surface-0.3m [MORE ...] --out-dir studies/results/surface

reads the results.json of studies of this folder, and of NAME-seeds and NAME-long beside NAME where they exist, the
same study with other seeds or with larger budgets and fewer arms, which join NAME unless they are among the arguments
themselves. NAME-long joins only if it repeats NAME's losses to the last bit at budgets of both, which runs of another
kind of GPU do not. It writes OUT_DIR/surface.json, from which
studies/results/tables.py makes the tables of README.md, OUT_DIR/surface.svg (the token ratio of MXFP4 to NVFP4
against NVFP4's bytes a parameter, a line a study), OUT_DIR/gaps.svg (their losses above BF16's), OUT_DIR/seeds.svg
(the loss of each run) and, for studies with all eight corners, OUT_DIR/shares.svg. Needs NumPy, SciPy and Matplotlib.
Published ratios are not drawn: their unit is BPE tokens and their recipes keep blocks in BF16, as no study here does.

A token ratio in extend form says how many times the tokens of the arm at the lower loss the other arm needs for the
same loss; in shrink form, how many times earlier the arm at the lower loss passed the loss where the other one ended.
Both give points of one curve, the ratio against the tokens of the arm at the lower loss: these are the budget in
extend form, and the budget over the ratio in shrink form, whose interval moves both. Either is where a curve through
an arm's losses (monotone and cubic in ln D, scipy.interpolate.PchipInterpolator) crosses a loss. A ratio stands only
where every seed's crossing lies inside the budgets, and at budgets where the seeds are together: an arm's seeds are
apart at a budget where the largest and the smallest of their losses differ by more than APART nats, and no crossing
is read beside one. It is not identified where the study's report has another estimator outside its interval.

Shares: scale format (E4M3 under a tensor scale to E8M0), block length (16 to 32) and weight tile (row blocks
to square blocks) lead from NVFP4 with row blocks of weights to MXFP4 with square ones over eight corners. A
share is the Shapley value of ln r: the mean over the six orders in which the three can be changed of the step
in ln r that the change makes. Shares add up to the total exactly. Intervals: t over the paired seeds, which leaves the
error of the validation text out (evaluation.py), and a bootstrap that draws seeds and blocks of neighbouring chunks of
that text, as long as the study's.
"""
import argparse
import itertools
import json
import math
import pathlib
import sys

import numpy as np
from scipy.interpolate import PchipInterpolator
from scipy.optimize import brentq
from scipy.stats import t as student

FACTORS = ("scale format", "block length", "weight tile")
CORNERS = {  # (E8M0, blocks of 32, square tiles of weights): arm
    (0, 0, 0): "nvfp4-w1x16", (0, 0, 1): "nvfp4", (0, 1, 0): "e4m3-32-w1x32", (0, 1, 1): "e4m3-32",
    (1, 0, 0): "e8m0-16-w1x16", (1, 0, 1): "e8m0-16", (1, 1, 0): "mxfp4-w1x32", (1, 1, 1): "mxfp4",
}
DRAWS = 1000
APART = 0.06
WANTED = 0.08  # half-width of ln r
PARTS = ("-seeds", "-long")  # suffixes of studies that may be merged into the study NAME
BELOW = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.16), "ncol": 2}  # the legend, beneath the axis


class Study:
    """losses[arm]: seeds x budgets x chunks, nats a byte, quantized forward passes. `budgets` are tokens, `bytes_each`
    the bytes of text a block parameter at each of them. `join`: of PARTS; the seeds of NAME-seeds and the budgets of
    NAME-long join if they are there, as `joined` results, and arms that they lack are left out. null_gaps: of the null
    arm at the study's own largest budget, a seed each."""

    def __init__(self, folder, join=()):
        path = pathlib.Path(folder)
        path = path / "results.json" if path.is_dir() else path
        self.results = self.read(path)
        self.name = self.results["name"]
        self.parameters = self.results["model"]["block_parameters"]
        study = self.results["study"]
        self.budgets = [int(b) for b in study["budgets"]]
        self.seeds = study["seeds"]
        self.sequence = study["model"]["sequence"]
        corpus = self.results["corpus"]["name"]
        self.text = {"english.txt": "English", "linux-c.txt": "C",
                     "linux-c-bpe4096.train.bin": "C (BPE)"}.get(corpus, corpus)
        parts = self.token_parts(path.parent, corpus)
        self.block = self.results["analysis"]["bootstrap"]["block"]  # of chunks
        self.losses = self.losses_of(self.results, parts["validation"]["bytes_per_token"])
        means = self.means()
        self.null_gaps = means["null"][:, -1] - means["bf16"][:, -1] if "null" in means else None
        self.joined = []
        for suffix, add in zip(PARTS, (self.add_seeds, self.add_budgets)):
            more = path.parent.with_name(path.parent.name + suffix) / path.name
            if suffix in join and more.exists():
                more = self.read(more)
                self.check(more)
                add(more, self.losses_of(more, parts["validation"]["bytes_per_token"]))
                self.joined.append(more)
        self.bytes_each = [b * parts["train"]["bytes_per_token"] / self.parameters for b in self.budgets]
        # {arm: whether its seeds are apart, a budget each}
        self.apart = {arm: np.ptp(losses, axis=0) > APART for arm, losses in self.means().items()}

    @staticmethod
    def read(path):
        try:
            return json.loads(path.read_text())
        except (OSError, ValueError) as error:
            sys.exit(f"{path}: {error}; name a folder with the results.json of a study")

    @staticmethod
    def losses_of(results, bytes_per_token):
        seeds = results["study"]["seeds"]
        runs = {(r["arm"], r["seed"]): r for r in results["runs"] if r["status"] == "ok"}
        return {arm: np.array([[p["chunk_losses"] for p in runs[arm, seed]["points"]] for seed in seeds])
                / bytes_per_token
                for arm in {arm for arm, _ in runs} if all((arm, seed) in runs for seed in seeds)}

    def check(self, more):
        """Ends the program unless `more` has the set-up, text and fingerprints of this study."""
        same = ["model", "optimizer", "schedule", "data", "batch", "evaluation"]
        numerics = {arm: self.results["numerics"].get(arm) for arm in more["numerics"]}
        if ([self.results["study"][key] for key in same] != [more["study"][key] for key in same]
                or self.results["corpus"] != more["corpus"] or numerics != more["numerics"]):
            sys.exit(f"{more['name']}: another set-up, text or fingerprint than {self.name}'s")

    def add_seeds(self, more, losses):
        if more["study"]["budgets"] != self.results["study"]["budgets"]:
            sys.exit(f"{more['name']}: other budgets than {self.name}'s")
        if set(self.seeds) & set(more["study"]["seeds"]):
            sys.exit(f"{more['name']}: a seed of {self.name}; give each seed in one study")
        self.seeds = self.seeds + more["study"]["seeds"]
        self.losses = {arm: np.concatenate([self.losses[arm], added]) for arm, added in losses.items()}

    def add_budgets(self, more, losses):
        """Losses at budgets of both must be the same: those of `more` begin with the same runs."""
        if more["study"]["seeds"] != self.seeds:
            sys.exit(f"{more['name']}: other seeds than {self.name}'s")
        longer = [int(b) for b in more["study"]["budgets"]]
        for tokens in set(longer) & set(self.budgets):
            here, there = self.budgets.index(tokens), longer.index(tokens)
            for arm, added in losses.items():
                if not np.array_equal(self.losses[arm][:, here], added[:, there]):
                    sys.exit(f"{more['name']}: another loss of {arm} than {self.name}'s after {tokens} tokens, as "
                             "another kind of GPU makes; name its folder, too, to keep the two apart")
        new = [i for i, tokens in enumerate(longer) if tokens not in self.budgets]
        budgets = self.budgets + [longer[i] for i in new]
        order = np.argsort(budgets)
        self.budgets = [budgets[i] for i in order]
        self.losses = {arm: np.concatenate([self.losses[arm], added[:, new]], axis=1)[:, order]
                       for arm, added in losses.items()}

    def joined_records(self):
        return [{"name": more["name"], "sha256_of_results": more["sha256"], "commit": more.get("fp4lab_commit")}
                for more in self.joined]

    def token_parts(self, folder, corpus):
        """The bytes a token of both parts of the text: 1, or as tokens.json, which data/make_tokens.py writes, says."""
        if not corpus.endswith(".bin"):
            return {part: {"bytes_per_token": 1} for part in ("train", "validation")}
        path = folder / "tokens.json"
        try:
            return json.loads(path.read_text())["parts"]
        except (OSError, ValueError, KeyError) as error:
            sys.exit(f"{path}: {error}; copy the .json that data/make_tokens.py wrote beside {corpus}")

    def means(self, seeds=None, chunks=None):
        """{arm: seeds x budgets}, of all or of drawn seeds and chunks."""
        out = {}
        for arm, losses in self.losses.items():
            if seeds is not None:
                losses = losses[seeds]
            out[arm] = losses[:, :, chunks].mean(2) if chunks is not None else losses.mean(2)
        return out


def log_crossing(budgets, losses, level, apart):
    """ln of the tokens at which the curve through `losses` falls to `level`; NaN outside the budgets, and
    beside a budget at which the arm's seeds are apart."""
    x = np.log(budgets)
    falling = np.minimum.accumulate(losses)
    if not falling[-1] <= level <= falling[0]:
        return math.nan
    after = int(np.argmax(falling <= level))
    if apart[after] or apart[max(after - 1, 0)]:
        return math.nan
    if falling[after] == level:
        return x[after]
    curve = PchipInterpolator(x, falling)
    return brentq(lambda u: curve(u) - level, x[after - 1], x[after])


def log_ratios(study, means, arm, base, at, form="extend"):
    """ln r of each seed at a budget; NaN where it does not stand."""
    split = study.apart
    if split[arm][at] or split[base][at]:
        return np.full(len(means[arm]), math.nan)
    curve, level = (arm, base) if form == "extend" else (base, arm)
    sign = 1 if form == "extend" else -1
    return np.array([sign * (log_crossing(study.budgets, means[curve][s], means[level][s][at], split[curve])
                             - math.log(study.budgets[at])) for s in range(len(means[arm]))])


def shapley(values):
    """Shares of values[corner] - values[0, 0, 0]; `values` maps each corner to an array over seeds."""
    shares = []
    for factor in range(3):
        share = 0
        for order in itertools.permutations(range(3)):
            before = [0, 0, 0]
            for f in order:
                if f == factor:
                    break
                before[f] = 1
            after = list(before)
            after[factor] = 1
            share = share + (values[tuple(after)] - values[tuple(before)]) / 6
        shares.append(share)
    return shares


def t_interval(values, confidence=0.95):
    n = len(values)
    if n < 2:
        return None
    half = student.ppf(0.5 + confidence / 2, n - 1) * np.std(values, ddof=1) / math.sqrt(n)
    return [float(np.mean(values) - half), float(np.mean(values) + half)]


def seeds_that_suffice(values):
    """The least number of seeds whose t interval has a half-width of WANTED or less, if they scatter as these do."""
    n, deviation = 2, np.std(values, ddof=1)
    while student.ppf(0.975, n - 1) * deviation / math.sqrt(n) > WANTED:
        n += 1
    return n


def persistence(study, means):
    """Of each seed's difference MXFP4 - NVFP4 over the budgets behind the last at which seeds are apart: the standard
    deviation of its mean over budgets, and its value if deviations at one budget said nothing of those at another."""
    split = study.apart["nvfp4"] | study.apart["mxfp4"]
    first = len(split) - int(np.argmax(split[::-1])) if split.any() else 0
    difference = (means["mxfp4"] - means["nvfp4"])[:, first:]
    budgets = difference.shape[1]
    if budgets < 4:
        return None
    centered = difference - difference.mean(0)
    rest = centered - centered.mean(1, keepdims=True)
    freedom = (len(difference) - 1) * (budgets - 1)
    return {"budgets": budgets, "seed_deviation": float(difference.mean(1).std(ddof=1)),
            "if_independent": float(math.sqrt((rest ** 2).sum() / freedom / budgets))}


def quantiles(values):
    """The 95 % interval of drawn values."""
    return [float(q) for q in np.quantile(values, [0.025, 0.975])]


def draws(study, rng):
    """DRAWS pairs of drawn seeds and drawn chunks, blocks of neighbours on a circle."""
    chunks = next(iter(study.losses.values())).shape[2]
    for _ in range(DRAWS):
        starts = rng.integers(0, chunks, -(-chunks // study.block))
        picked = (starts[:, None] + np.arange(study.block)).ravel()[:chunks] % chunks
        yield rng.integers(0, len(study.seeds), len(study.seeds)), picked


def estimators_agree(study, arm, base, tokens, form):
    """What the reports of the study and of those that join it say of the ratio of `arm` to `base` there."""
    return all(r["disagreement"] is None
               for results in (study.results, *study.joined) for r in results["analysis"]["token_ratios"]
               if (r["format"], r["reference"], r["estimator"], r["precision"], r["tokens"], r["form"])
               == (arm, base, "crossing", "training", tokens, form))


def number(values):
    """{"mean", "interval_t", "seeds"} of one value a seed."""
    return {"mean": float(np.mean(values)), "interval_t": t_interval(values),
            "seeds": [float(v) for v in values]}


def standing_ratios(study, means, arm, base):
    """A record of each budget and form at which the ratio of `arm` to `base` stands."""
    found = []
    for at, tokens in enumerate(study.budgets):
        for form in "extend", "shrink":
            ratio = log_ratios(study, means, arm, base, at, form)
            if np.isfinite(ratio).all():
                found.append({"tokens": tokens, "bytes_per_parameter": study.bytes_each[at], "form": form,
                              "log_ratio": number(ratio),
                              "estimators_agree": estimators_agree(study, arm, base, tokens, form)})
    return found


def growth(ratios):
    """ln of the last ratio over the first one, paired over seeds, in shrink form, which reaches further, and where
    estimators agree; None of fewer than two ratios."""
    places = sorted((r for r in ratios if r["form"] == "shrink" and r["estimators_agree"]), key=lambda r: r["tokens"])
    if len(places) < 2:
        return None
    first, last = places[0], places[-1]
    return {"form": "shrink", "from_bytes_per_parameter": first["bytes_per_parameter"],
            "to_bytes_per_parameter": last["bytes_per_parameter"],
            "log_ratio": number(np.subtract(last["log_ratio"]["seeds"], first["log_ratio"]["seeds"]))}


def analyze(study):
    means = study.means()
    out = {"name": study.name, "block_parameters": study.parameters, "text": study.text,
           "sequence": study.sequence, "budgets": study.budgets,
           "seeds": study.seeds, "commit": study.results.get("fp4lab_commit"),
           "sha256_of_results": study.results["sha256"], "gaps": [], "corners": [], "shares": []}
    if study.joined:
        out["joined"] = study.joined_records()
    if study.null_gaps is not None:
        gaps = study.null_gaps
        out["null_gap"] = number(gaps)
        out["null_gap"]["standard_errors"] = float(
            abs(gaps.mean()) / (gaps.std(ddof=1) / math.sqrt(len(gaps))))
    out["persistence"] = persistence(study, means)
    out["ratios"] = standing_ratios(study, means, "mxfp4", "nvfp4")
    for ratio in out["ratios"]:
        ratio["bytes_of_nvfp4"] = bytes_of_nvfp4(ratio["bytes_per_parameter"], ratio["form"], ratio["log_ratio"])
        ratio["seeds_that_suffice"] = seeds_that_suffice(ratio["log_ratio"]["seeds"])
    out["ratios"].sort(key=lambda record: record["bytes_of_nvfp4"][0])
    out["growth"] = growth(out["ratios"])
    out["ratios_to_bf16"] = {arm: standing_ratios(study, means, arm, "bf16") for arm in ("nvfp4", "mxfp4")}
    have_corners = all(arm in means for arm in CORNERS.values())
    for at, tokens in enumerate(study.budgets):
        place = {"tokens": tokens, "bytes_per_parameter": study.bytes_each[at]}
        trio = {arm: means[arm][:, at] for arm in ("bf16", "nvfp4", "mxfp4")}
        out["gaps"].append(place | {
            "apart": max(float(np.ptp(losses)) for losses in trio.values()),
            "bf16": number(trio["bf16"]),
            "nvfp4": number(trio["nvfp4"] - trio["bf16"]),
            "mxfp4": number(trio["mxfp4"] - trio["bf16"]),
            "ratio_of_gaps": float((trio["mxfp4"] - trio["bf16"]).mean()
                                   / (trio["nvfp4"] - trio["bf16"]).mean())})
        if not have_corners:
            continue
        values = {c: log_ratios(study, means, arm, "nvfp4-w1x16", at) for c, arm in CORNERS.items()}
        for corner, arm in CORNERS.items():
            if np.isfinite(values[corner]).all():
                out["corners"].append(place | {"arm": arm, "log_ratio": number(values[corner])})
        if all(np.isfinite(v).all() for v in values.values()):
            out["shares"].append(place | {
                "total": number(values[1, 1, 1]),
                "shares": {f: number(s) for f, s in zip(FACTORS, shapley(values))}})
    bootstrap(study, out)
    return out


def bytes_of_nvfp4(each, form, log_ratio):
    """NVFP4's bytes a parameter where the losses are equal, for the mean of a ratio and the ends of its interval;
    `each`: those of the budget."""
    return [each if form == "extend" else each / math.exp(v) for v in (log_ratio["mean"], *log_ratio["interval_t"])]


def bootstrap(study, out):
    """Adds "interval_bootstrap" to the ratios and to the shares."""
    rng = np.random.default_rng(20260)
    wanted = {}  # id of the record: its drawn values
    for seeds, chunks in draws(study, rng):
        means = study.means(seeds, chunks)
        for record in out["ratios"]:
            at = study.budgets.index(record["tokens"])
            wanted.setdefault(id(record["log_ratio"]), []).append(
                np.mean(log_ratios(study, means, "mxfp4", "nvfp4", at, record["form"])))
        for record in out["shares"]:
            at = study.budgets.index(record["tokens"])
            values = {c: log_ratios(study, means, arm, "nvfp4-w1x16", at) for c, arm in CORNERS.items()}
            for f, share in zip(FACTORS, shapley(values)):
                wanted.setdefault(id(record["shares"][f]), []).append(np.mean(share))
            wanted.setdefault(id(record["total"]), []).append(np.mean(values[1, 1, 1]))
    records = [r["log_ratio"] for r in out["ratios"]]
    for r in out["shares"]:
        records += [r["total"], *r["shares"].values()]
    for record in records:
        drawn = np.array(wanted[id(record)])
        inside = drawn[np.isfinite(drawn)]
        if len(inside):
            record["interval_bootstrap"] = quantiles(inside)
        if len(inside) < len(drawn):  # draws whose crossing lies beyond the budgets
            record["draws_without_crossing"] = len(drawn) - len(inside)


def joins(folder, folders):
    """The PARTS that join the study of `folder`: those that are not among `folders`."""
    named = {pathlib.Path(f).name for f in folders}
    return [part for part in PARTS if pathlib.Path(folder).name + part not in named]


def label(analyzed):
    name = (f"{analyzed['block_parameters'] / 1e6:.1f}M, {analyzed['text']}, "
            f"sequences of {analyzed['sequence']}")
    return name + ", continued" if analyzed["name"].endswith("-long") else name


def bytes_axis(axes, name="bytes a block parameter"):
    axes.set_xscale("log", base=2)
    low, high = axes.get_xlim()
    ticks = [t for t in (0.25, 0.5, 1, 2, 4, 8, 16, 32, 64, 128, 256) if low <= t <= high]
    if len(ticks) > 6:
        ticks = ticks[::-2][::-1]
    axes.set_xticks(ticks, [f"{t:g}" for t in ticks])
    axes.set_xlabel(name)


def plot_seeds(studies, labels, plt, out):
    """The loss of each run of BF16, NVFP4 and MXFP4 against bytes a parameter, a panel a study."""
    rows = -(-len(studies) // 2)
    figure, panels = plt.subplots(rows, 2, figsize=(8.4, 0.4 + 3.2 * rows), squeeze=False, sharey=True)
    for unused in panels.flat[len(studies):]:
        unused.remove()
    for axes, study, title in zip(panels.flat, studies, labels):
        x = study.bytes_each
        for arm, color in (("bf16", "0.35"), ("nvfp4", "#4269d0"), ("mxfp4", "#efb118")):
            for s, losses in enumerate(study.means()[arm]):
                axes.plot(x, losses, "o-", color=color, markersize=3, linewidth=1,
                          label=arm if s == 0 else None)
        bytes_axis(axes)
        axes.set_title(title, fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
    for first in panels[:, 0]:
        first.set_ylabel("annealed validation loss, nats a byte")
    panels[0][0].legend(frameon=False)
    figure.tight_layout()
    figure.savefig(out / "seeds.svg", metadata={"Date": None})


def finish(figure, axes, path, name="bytes a block parameter", **legend):
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
        x, low, high = np.transpose([r["bytes_of_nvfp4"] for r in s["ratios"]])
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
    finish(figure, axes, path, "bytes a block parameter that NVFP4 has read", **legend)


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
    axes.set_ylabel("loss above BF16's, nats a byte\nfilled: NVFP4, hollow: MXFP4")
    finish(figure, axes, out / "gaps.svg", **BELOW)


def pyplot():
    """Matplotlib, set to write the same SVG from the same numbers."""
    import matplotlib
    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "fp4lab"
    matplotlib.rcParams["svg.fonttype"] = "none"
    import matplotlib.pyplot
    return matplotlib.pyplot


def plot(studies, sources, out):
    plt = pyplot()
    plot_seeds(sources, [label(s) for s in studies], plt, out)
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


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", nargs="+", help="folders with a results.json")
    parser.add_argument("--out-dir", required=True)
    options = parser.parse_args()
    studies = sorted((Study(r, joins(r, options.results)) for r in options.results), key=lambda s: s.parameters)
    analyzed = [analyze(s) for s in studies]
    out = pathlib.Path(options.out_dir)
    out.mkdir(parents=True, exist_ok=True)
    (out / "surface.json").write_text(json.dumps({"studies": analyzed}, indent=1) + "\n")
    plot(analyzed, studies, out)


if __name__ == "__main__":
    main()
