#!/usr/bin/env python3
"""The league of recipes at 1.2M parameters, and its best at 4.7M: losses, gaps and token ratios.

    python3 studies/league/league.py

reads the results.json of the studies below in studies/results and writes league.json and league-4.7m.json (the losses,
and the hashes of the results), plans.svg, costs.svg, league.svg, rest.svg and sizes.svg there in league/.
studies/results/tables.py makes the tables of the pages from these files and the results. Needs NumPy, SciPy and
Matplotlib.

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
import figures  # noqa: E402
from costs import PLANS, all_in_4_bits, extras, forward_of, partly, plan_of, product_time, shares  # noqa: E402
from noise import Noise  # noqa: E402
from surface import Study, log_crossing  # noqa: E402

RESULTS = HERE.parent / "results"
OUT = RESULTS / "league"
BUDGET = 37_748_736
LEAGUES = {  # file: studies of recipes, and of the references over budgets
    "league.json": (("league-c-1.2m-4bit", "league-c-1.2m-4bit-more", "league-c-1.2m-rest"),
                    ("league-c-1.2m-references", "surface-c-1.2m")),
    "league-4.7m.json": (("league-c-4.7m",), ("surface-c-4.7m",))}
REFERENCES = {"bf16": "bf16", "te_nvfp4": "nvfp4"}  # in the league's studies: in the surface's
POOLS = (*["NVFP4 and others of 4 bits"] * 2, "MXFP4", *["8 bits or BF16"] * 2)  # of FORWARD
FAILED = 1.0  # nats above BF16: a recipe that hardly learns


def loss(run, tokens):
    return next(p["validation_loss"] for p in run["points"] if p["tokens"] == tokens)


class League:
    """losses[arm][seed] after BUDGET tokens; recipes[arm], resolved; curves[reference][tokens]: the loss of each seed,
    and whether the seeds are apart there. All studies must agree on text and fingerprints."""

    def __init__(self, leagues, curves):
        self.sources, self.losses, self.recipes, self.numerics = [], {}, {}, {}
        self.corpus = None
        for name in leagues:
            results = self.read(name)
            self.layers = results["study"]["model"]["layers"]
            self.parameters = results["model"]["block_parameters"]
            for run in results["runs"]:
                if run["status"] == "ok":
                    self.losses.setdefault(run["arm"], {})[run["seed"]] = loss(run, BUDGET)
            for arm, facts in results["study"]["arms"].items():
                self.recipes[arm] = facts["recipe"]
        self.curves = {arm: {} for arm in REFERENCES}
        for name in curves:
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

    def pool(self, arm):
        """By the forward pass: the fewer bits it has, the noisier are the losses, and seeds act on each otherwise."""
        common = self.losses[arm].keys() & self.losses["bf16"].keys()
        if max(self.losses[arm][s] - self.losses["bf16"][s] for s in common) > FAILED:
            return None
        return POOLS[forward_of(self.recipes[arm])]

    def log_ratio(self, reference, gap):
        """ln of the token ratio of a gap; None where it does not stand."""
        budgets = sorted(self.curves[reference])
        apart = [self.curves[reference][b][1] for b in budgets]
        curve = [np.mean(list(self.curves[reference][b][0].values())) for b in budgets]
        level = curve[budgets.index(BUDGET)]
        at = [math.log(BUDGET) - log_crossing(budgets, curve, level + rise, apart)
              for rise in (gap["mean"], *(gap["interval"] or ()))]
        return {"mean": at[0], "interval": at[1:] or None} if np.isfinite(at).all() else None

    def rows(self, noise):
        """By loss; "seeds" are those that the recipe and both references have."""
        rows = []
        for arm, losses in self.losses.items():
            seeds = sorted(s for s in losses if all(s in self.losses[r] for r in REFERENCES))
            recipe = self.recipes[arm]
            row = {"recipe": arm, "seeds": seeds, "loss": float(np.mean([losses[s] for s in seeds])),
                   "four_bits": all_in_4_bits(recipe, self.layers), "forward": forward_of(recipe),
                   "plan": plan_of(recipe, self.layers), "partly": partly(recipe, self.layers),
                   "shares": shares(recipe, self.layers), "product_time": product_time(recipe, self.layers),
                   "extras": extras(recipe), "pool": self.pool(arm), "gap": {}, "log_ratio": {}}
            for reference in REFERENCES:
                gaps = [losses[s] - self.losses[reference][s] for s in seeds]
                half = noise.half_width(arm, reference, len(seeds))
                gap = {"mean": float(np.mean(gaps)), "interval": None, "seeds": gaps}
                if half is not None and arm != reference:
                    gap["interval"] = [gap["mean"] - half, gap["mean"] + half]
                row["gap"][reference] = gap
                row["log_ratio"][reference] = None if arm == reference else self.log_ratio(reference, gap)
            rows.append(row)
        return sorted(rows, key=lambda row: row["gap"]["bf16"]["mean"])


def write(file, leagues, curves):
    """The file's rows."""
    league = League(leagues, curves)
    noise = Noise(league.losses, league.pool)
    rows = league.rows(noise)
    OUT.mkdir(exist_ok=True)
    head = json.dumps({"budget": BUDGET, "block_parameters": league.parameters, "sources": league.sources,
                       "plans": PLANS, "noise": noise.facts()})
    lines = ",\n".join(json.dumps(row) for row in rows)  # a line a recipe
    (OUT / file).write_text(f'{head[:-1]}, "rows": [\n{lines}\n]}}\n')
    return [row for row in rows if row["recipe"] not in ("bf16", "null") and row["pool"] is not None]


def main():
    figures.draw(*(write(file, *studies) for file, studies in LEAGUES.items()), OUT)


if __name__ == "__main__":
    main()
