#!/usr/bin/env python3
"""The league of recipes at 1.2M parameters: losses, gaps and token ratios.

    python3 studies/league/league.py

reads the results.json of the studies below in studies/results and writes league.json (the losses, and the
hashes of the results), plans.svg, costs.svg, league.svg and rest.svg there in league/. studies/results/tables.py makes
the tables of the pages from league.json and the results. Needs NumPy, SciPy and Matplotlib.

All runs have the same model, text, batches and learning rate; a recipe's losses are those after BUDGET tokens. The
difference from a reference is the mean over the seeds that both have, with the interval of noise.py. A token ratio
says how many times the tokens of a reference the recipe needs: BUDGET over the tokens at which the reference's curve,
the mean of its seeds (monotone and cubic in ln D, as in studies/surface/surface.py), has risen or fallen from its loss
at BUDGET by the difference; the ends of the interval likewise. Above 1 it is the shrink form, below 1 the reference's
extend form against the recipe, inverted. It stands only where the curve reaches these losses at budgets where the
reference's seeds are together.
"""
import json
import math
import pathlib
import sys

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "surface"))
from costs import (PLANS, SCALES, all_in_4_bits, extras, plan_of, product_time, scale_class, shares,  # noqa: E402
                   width)
from noise import Noise  # noqa: E402
from surface import Study, log_crossing, pyplot  # noqa: E402

RESULTS = HERE.parent / "results"
OUT = RESULTS / "league"
BUDGET = 37_748_736
CURVES = ("league-c-1.2m-references", "surface-c-1.2m")  # of the references, over budgets
LEAGUES = ("league-c-1.2m-4bit", "league-c-1.2m-4bit-more", "league-c-1.2m-rest")
REFERENCES = {"bf16": "bf16", "te_nvfp4": "nvfp4"}  # in LEAGUES and references: in surface-c-1.2m
FORWARD = SCALES + ("8 bits", "BF16")  # the classes of fprop's input
COLORS = ("#4269d0", "#3ca951", "#efb118", "#a463f2", "0.35")
PARTLY = tuple(range(8, len(PLANS)))  # plans that leave blocks, linears or the end of training to BF16
FAILED = 1.0  # nats above BF16: a recipe that hardly learns


def loss(run, tokens):
    return next(p["validation_loss"] for p in run["points"] if p["tokens"] == tokens)


class League:
    """losses[arm][seed] after BUDGET tokens; recipes[arm], resolved; curves[reference][tokens]: the loss of each seed,
    and whether the seeds are apart there. All studies must agree on text and fingerprints."""

    def __init__(self):
        self.sources, self.losses, self.recipes, self.numerics = [], {}, {}, {}
        self.corpus = None
        for name in LEAGUES:
            if not (RESULTS / name / "results.json").exists():
                continue
            results = self.read(name)
            self.layers = results["study"]["model"]["layers"]
            self.parameters = results["model"]["block_parameters"]
            for run in results["runs"]:
                if run["status"] == "ok":
                    self.losses.setdefault(run["arm"], {})[run["seed"]] = loss(run, BUDGET)
            for arm, facts in results["study"]["arms"].items():
                self.recipes[arm] = facts["recipe"]
        self.curves = {arm: {} for arm in REFERENCES}
        for name in CURVES:
            self.read(name)
            study = Study(RESULTS / name)
            means, apart = study.means(), study.apart
            for arm, there in REFERENCES.items():
                there = arm if arm in means else there
                for b, tokens in enumerate(study.budgets):
                    if tokens in self.curves[arm]:
                        sys.exit(f"{name}: {arm} has been read at {tokens} tokens; give each budget in one study")
                    self.curves[arm][tokens] = (dict(zip(study.seeds, means[there][:, b])), bool(apart[there][b]))
        for arm in REFERENCES:
            for seed, value in self.losses[arm].items():
                if abs(value - self.curves[arm][BUDGET][0][seed]) > 1e-12:
                    sys.exit(f"{arm}, seed {seed}: the league's loss is not the surface's; their programs differ")

    def read(self, name):
        results = json.loads((RESULTS / name / "results.json").read_text())
        if self.corpus not in (None, results["corpus"]):
            sys.exit(f"{name}: another text than the studies before it")
        self.corpus = results["corpus"]
        for arm, fingerprint in results["numerics"].items():
            arm = next((ours for ours, theirs in REFERENCES.items() if theirs == arm), arm)
            if self.numerics.setdefault(arm, fingerprint) != fingerprint:
                sys.exit(f"{name}: {arm} has another fingerprint than in the studies before it")
        self.sources.append({"name": name, "sha256_of_results": results["sha256"],
                             "commit": results["fp4lab_commit"]})
        return results

    def forward(self, arm):
        """The index in FORWARD of a recipe."""
        bits = width(self.recipes[arm], "fprop")
        return {16: 4, 8: 3}.get(bits) or scale_class(self.recipes[arm])

    def pool(self, arm):
        """Recipes whose forward pass has MXFP4 are noisier than others."""
        common = self.losses[arm].keys() & self.losses["bf16"].keys()
        if max(self.losses[arm][s] - self.losses["bf16"][s] for s in common) > FAILED:
            return None
        return "MXFP4" if self.forward(arm) == 2 else "others"

    def log_ratio(self, reference, gap):
        """ln of the token ratio of a gap; None where it does not stand."""
        budgets = sorted(self.curves[reference])
        apart = [self.curves[reference][b][1] for b in budgets]
        curve = [np.mean(list(self.curves[reference][b][0].values())) for b in budgets]
        level = curve[budgets.index(BUDGET)]
        at = [math.log(BUDGET) - log_crossing(budgets, curve, level + rise, apart)
              for rise in (gap["mean"], *gap["interval"])]
        return {"mean": at[0], "interval": at[1:]} if np.isfinite(at).all() else None

    def rows(self, noise):
        """By loss; "seeds" are those that the recipe and both references have."""
        rows = []
        for arm, losses in self.losses.items():
            seeds = sorted(s for s in losses if all(s in self.losses[r] for r in REFERENCES))
            recipe = self.recipes[arm]
            row = {"recipe": arm, "seeds": seeds, "loss": float(np.mean([losses[s] for s in seeds])),
                   "four_bits": all_in_4_bits(recipe, self.layers), "forward": self.forward(arm),
                   "plan": plan_of(recipe, self.layers), "pool": self.pool(arm), "shares": shares(recipe, self.layers),
                   "product_time": product_time(recipe, self.layers), "extras": extras(recipe),
                   "gap": {}, "log_ratio": {}}
            for reference in REFERENCES:
                gaps = [losses[s] - self.losses[reference][s] for s in seeds]
                half = noise.half_width(arm, reference, len(seeds))
                gap = {"mean": float(np.mean(gaps)), "interval": None, "seeds": gaps}
                ratio = None
                if half is not None and arm != reference:
                    gap["interval"] = [gap["mean"] - half, gap["mean"] + half]
                    ratio = self.log_ratio(reference, gap)
                row["gap"][reference], row["log_ratio"][reference] = gap, ratio
            rows.append(row)
        return sorted(rows, key=lambda row: row["gap"]["bf16"]["mean"])


def finish(figure, axes, name, note=""):
    axes.axvline(0, color="0.6", linewidth=0.8)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("loss above BF16's after 37.7M bytes, nats a byte" + note, fontsize=8.5)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.grid(axis="x", color="0.9", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.legend(frameon=False, fontsize=8, title="forward pass", title_fontsize=8, alignment="left",
                loc="upper right")
    figure.tight_layout()
    figure.savefig(OUT / name, metadata={"Date": None})


def legend(axes, rows):
    for index in sorted({row["forward"] for row in rows}):
        axes.plot([], [], "o", color=COLORS[index], markersize=4.5, label=FORWARD[index])


def figure_of_recipes(plt, rows, reference, name):
    """A line a recipe: mean, seeds, interval; hollow where BF16 has blocks, linears or the end of training. Dotted:
    the gap `reference`."""
    figure, axes = plt.subplots(figsize=(7.2, 0.9 + 0.165 * len(rows)))
    for i, row in enumerate(rows):
        gap, color = row["gap"]["bf16"], COLORS[row["forward"]]
        axes.plot(gap["interval"], [i, i], color=color, linewidth=1.4, alpha=0.45)
        axes.plot(gap["seeds"], [i] * len(gap["seeds"]), "|", color=color, markersize=5)
        hollow = row["forward"] < 3 and row["plan"] in PARTLY
        axes.plot(gap["mean"], i, "o", color=color, markersize=4.5, markerfacecolor="white" if hollow else color)
    legend(axes, rows)
    if any(row["forward"] < 3 and row["plan"] in PARTLY for row in rows):
        axes.plot([], [], "o", color="0.35", markerfacecolor="white", markersize=4.5, label="BF16 in part (hollow)")
    axes.set_yticks(range(len(rows)), [row["recipe"] for row in rows], fontsize=7.5)
    axes.set_ylim(len(rows) - 0.3, -0.7)
    axes.axvline(reference, color=COLORS[0], linewidth=0.8, linestyle=":")
    finish(figure, axes, name, ": mean, seeds, 95 % interval")


def figure_of_plans(plt, rows):
    """A line a plan, a point a recipe."""
    plans = [index for index in range(len(PLANS)) if any(row["plan"] == index for row in rows)]
    figure, axes = plt.subplots(figsize=(7.2, 0.9 + 0.3 * len(plans)))
    for i, plan in enumerate(plans):
        own = [row for row in rows if row["plan"] == plan]
        for row in own:
            axes.plot(row["gap"]["bf16"]["mean"], i, "o", color=COLORS[row["forward"]], markersize=5, alpha=0.6,
                      markeredgewidth=0)
        if len(own) > 3:
            middle = np.median([row["gap"]["bf16"]["mean"] for row in own])
            axes.plot([middle, middle], [i - 0.3, i + 0.3], color="0.2", linewidth=1.2)
    legend(axes, rows)
    axes.set_yticks(range(len(plans)), [PLANS[plan] for plan in plans], fontsize=8.5)
    axes.set_ylim(len(plans) - 0.4, -0.6)
    finish(figure, axes, "plans.svg", ": a point a recipe, the median")


NAMED = {  # recipes with a name in costs.svg: where it stands, in points from the recipe's
    "quartet2": (6, -3), "te_nvfp4": (6, -3), "mxfp4": (6, -3), "hifloat4": (6, -3), "te_mxfp8": (6, -1),
    "te_mxfp8_fwd_nvfp4_bwd": (-38, -12), "quartet2_backward_only": (6, -9), "maxtext_te_nvfp4_mlp": (6, -3),
    "nvidia_nvfp4_12b": (6, -3), "nvidia_nvfp4_8b": (6, -3), "nvidia_nvfp4_12b_switch_bf16": (6, -3),
    "te_nvfp4_backward_high_precision": (6, -3), "fouroversix_mseden": (6, -9)}


def figure_of_costs(plt, rows):
    """Token ratio to BF16 against the time of a token's products; a grey line connects equal products of the two."""
    figure, axes = plt.subplots(figsize=(7.2, 4.6))
    shown = [row for row in rows if row["log_ratio"]["bf16"] is not None]
    x = np.linspace(0.22, 1.05, 200)
    for time in (0.25, 0.35, 0.5, 0.7, 1.0):
        axes.plot(x, time / x, color="0.85", linewidth=0.8, zorder=0)
        top = min(time / 0.24, 1.86)
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
    legend(axes, shown)
    axes.set_xlim(0.22, 1.12)
    axes.set_ylim(0.94, 1.92)
    axes.set_xlabel("time of a token's products / BF16's, at rates of 1, 2 and 4 for 16, 8 and 4 bits\n"
                    "grey: equal time of all products until BF16's loss / BF16's", fontsize=8.5)
    axes.set_ylabel("tokens / BF16's, equal loss", fontsize=8.5)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8, title="forward pass", title_fontsize=8, alignment="left", loc="upper right")
    figure.tight_layout()
    figure.savefig(OUT / "costs.svg", metadata={"Date": None})


def main():
    league = League()
    noise = Noise(league.losses, league.pool)
    rows = league.rows(noise)
    OUT.mkdir(exist_ok=True)
    head = json.dumps({"budget": BUDGET, "block_parameters": league.parameters, "sources": league.sources,
                       "plans": PLANS, "noise": noise.facts()})
    lines = ",\n".join(json.dumps(row) for row in rows)  # a line a recipe
    (OUT / "league.json").write_text(f'{head[:-1]}, "rows": [\n{lines}\n]}}\n')
    plt = pyplot()
    shown = [row for row in rows if row["recipe"] not in ("bf16", "null") and row["pool"] is not None]
    figure_of_plans(plt, shown)
    figure_of_costs(plt, shown)
    reference = next(row for row in rows if row["recipe"] == "te_nvfp4")["gap"]["bf16"]["mean"]
    for name, four_bits in (("league.svg", True), ("rest.svg", False)):
        figure_of_recipes(plt, [row for row in shown if row["four_bits"] == four_bits], reference, name)


if __name__ == "__main__":
    main()
