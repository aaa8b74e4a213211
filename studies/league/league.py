#!/usr/bin/env python3
"""The league of recipes at 1.2M parameters: losses, gaps and token ratios.

    python3 studies/league/league.py

reads the results.json of the studies below in studies/results and writes league.json (the losses, and the
hashes of the results) and league.svg there in league/. studies/results/tables.py makes the tables of the pages
from league.json and the results. Needs NumPy, SciPy and Matplotlib.

All runs have the same model, text, batches and learning rate; a recipe's losses are those after BUDGET tokens, in
all seeds that it and both references have. A token ratio says how many times the tokens of a reference the recipe
needs: BUDGET over the tokens at which the reference's curve (monotone and cubic in ln D, as in
studies/surface/surface.py) passes the recipe's loss. Above 1 it is the shrink form, below 1 the reference's extend
form against the recipe, inverted. It stands only where the curve reaches the loss in every seed, at budgets where
the reference's seeds are together.
"""
import json
import math
import pathlib
import sys

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "surface"))
from costs import all_in_4_bits, extras  # noqa: E402
from surface import Study, number, pyplot  # noqa: E402
from surface import log_crossing  # noqa: E402

RESULTS = HERE.parent / "results"
OUT = RESULTS / "league"
BUDGET = 37_748_736
CURVES = ("league-c-1.2m-references", "surface-c-1.2m")  # of the references, over budgets
LEAGUES = ("league-c-1.2m-4bit", "league-c-1.2m-4bit-more", "league-c-1.2m-rest")
REFERENCES = {"bf16": "bf16", "te_nvfp4": "nvfp4"}  # in LEAGUES and references: in surface-c-1.2m
CLASSES = (  # of the scales of fprop's input: title, color
    ("E4M3 scales, blocks of 16", "#4269d0"),
    ("other scales or elements", "#3ca951"),
    ("E8M0 scales (MXFP4)", "#efb118"))


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

    def log_ratio(self, reference, arm, seeds):
        """ln of the token ratio of each seed; None where it does not stand."""
        budgets = sorted(self.curves[reference])
        apart = [self.curves[reference][b][1] for b in budgets]
        out = []
        for seed in seeds:
            curve = [self.curves[reference][b][0][seed] for b in budgets]
            out.append(math.log(BUDGET) - log_crossing(budgets, curve, self.losses[arm][seed], apart))
        return out if np.isfinite(out).all() else None

    def rows(self):
        rows = []
        for arm, losses in self.losses.items():
            seeds = sorted(s for s in losses if all(s in self.losses[r] for r in REFERENCES))
            row = {"recipe": arm, "seeds": seeds, "loss": float(np.mean([losses[s] for s in seeds])),
                   "four_bits": all_in_4_bits(self.recipes[arm], self.layers), "class": class_of(self.recipes[arm]),
                   "extras": extras(self.recipes[arm]), "log_ratio": {}}
            row["gap"] = {r: number([losses[s] - self.losses[r][s] for s in seeds]) for r in REFERENCES}
            for reference in REFERENCES:
                values = self.log_ratio(reference, arm, seeds)
                row["log_ratio"][reference] = number(values) if values and arm != reference else None
            rows.append(row)
        return sorted(rows, key=lambda row: row["gap"]["bf16"]["mean"])


def class_of(recipe):
    """The index in CLASSES of fprop's input."""
    form = recipe["fprop"]["input"]["format"]
    name = form if isinstance(form, str) else form["like"]
    if name.startswith("mxfp4"):
        return 2
    plain = isinstance(form, str) or not ({"scale", "element", "block"} & set(form))
    return 0 if plain and name.startswith("nvfp4") else 1


def figure(rows):
    plt = pyplot()
    ours = [row for row in rows if row["recipe"] not in ("bf16", "null")]
    beyond = [row for row in ours if row["gap"]["bf16"]["mean"] > 0.16]
    shown = [row for row in ours if row not in beyond]
    figure, axes = plt.subplots(figsize=(7.2, 0.9 + 0.165 * len(shown)))
    for i, row in enumerate(shown):
        gap, color = row["gap"]["bf16"], CLASSES[row["class"]][1]
        low, high = gap["interval_t"]
        axes.plot([low, high], [i, i], color=color, linewidth=1.4, alpha=0.45)
        axes.plot(gap["seeds"], [i] * len(gap["seeds"]), "|", color=color, markersize=5)
        axes.plot(gap["mean"], i, "o", color=color, markersize=4.5)
    for index, (title, color) in enumerate(CLASSES):
        if any(row["class"] == index for row in shown):
            axes.plot([], [], "o", color=color, markersize=4.5, label=title)
    reference = next(row for row in rows if row["recipe"] == "te_nvfp4")["gap"]["bf16"]["mean"]
    axes.axvline(0, color="0.6", linewidth=0.8)
    axes.axvline(reference, color=CLASSES[0][1], linewidth=0.8, linestyle=":")
    axes.set_yticks(range(len(shown)), [row["recipe"] for row in shown], fontsize=7.5)
    axes.set_ylim(len(shown) - 0.3, -0.7)
    axes.set_xlim(-0.004, 0.16)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("loss above BF16's after 37.7M bytes, nats a byte: mean, seeds, 95 % interval"
                    + (f"\nbeyond: {', '.join(r['recipe'] for r in beyond)}" if beyond else ""), fontsize=8.5)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.grid(axis="x", color="0.9", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.legend(frameon=False, fontsize=8, loc="upper right")
    figure.tight_layout()
    figure.savefig(OUT / "league.svg", metadata={"Date": None})


def main():
    league = League()
    rows = league.rows()
    OUT.mkdir(exist_ok=True)
    head = json.dumps({"budget": BUDGET, "block_parameters": league.parameters, "sources": league.sources})
    lines = ",\n".join(json.dumps(row) for row in rows)  # a line a recipe
    (OUT / "league.json").write_text(f'{head[:-1]}, "rows": [\n{lines}\n]}}\n')
    figure([row for row in rows if row["four_bits"] or row["recipe"] in REFERENCES])


if __name__ == "__main__":
    main()
