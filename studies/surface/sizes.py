#!/usr/bin/env python3
"""Sizes of the surface beside each other: at equal bytes a parameter, at equal text, and as sizes of BF16 models.

    python3 studies/surface/sizes.py surface-c-1.2m surface-c-4.7m surface-c-25m-long \
        --surface studies/results/surface/surface.json --out studies/results/surface/sizes.json

reads surface.json, which surface.py made, and writes of its studies, smallest first,

- "same_bytes": of two neighbouring sizes, at budgets that lie within NEAR in ln of bytes a parameter, the tokens of an
  arm over BF16's at equal loss: ln of the larger size's ratio over the smaller's, with Welch's 95 % interval over the
  seeds of both;
- "same_text": the tokens of an arm over BF16's, shrink form, of each size at the largest budget that all have;
- "bf16_size": the block parameters with which a BF16 model has the arm's loss after the same bytes, over the arm's.
  BF16's loss is linear in ln N between the size and the next smaller one, and monotone and cubic in ln D there (scipy,
  PCHIP). 95 % interval: a bootstrap of DRAWS draws of seeds, of each size on its own.

Intervals do not hold the error of the validation text, nor that of a line between two sizes. Needs NumPy and SciPy.
"""
import argparse
import json
import math
import pathlib

import numpy as np
from scipy.interpolate import PchipInterpolator
from scipy.stats import t as student

from surface import quantiles

ARMS = ("nvfp4", "mxfp4")
NEAR = 0.07  # in ln of bytes a parameter
DRAWS = 4000


def welch(large, small):
    """mean(large) - mean(small), with its 95 % interval."""
    large, small = np.array(large), np.array(small)
    parts = [v.var(ddof=1) / len(v) for v in (large, small)]
    freedom = sum(parts) ** 2 / sum(p ** 2 / (len(v) - 1) for p, v in zip(parts, (large, small)))
    half = student.ppf(0.975, freedom) * math.sqrt(sum(parts))
    mean = float(large.mean() - small.mean())
    return {"mean": mean, "interval": [mean - half, mean + half]}


def same_bytes(small, large):
    found = []
    for arm in ARMS:
        for a in small["ratios_to_bf16"][arm]:
            for b in large["ratios_to_bf16"][arm]:
                apart = abs(math.log(b["bytes_per_parameter"] / a["bytes_per_parameter"]))
                if a["form"] == b["form"] and apart < NEAR:
                    found.append({"arm": arm, "form": a["form"], "studies": [small["name"], large["name"]],
                                  "bytes_per_parameter": [a["bytes_per_parameter"], b["bytes_per_parameter"]],
                                  "ratios": [math.exp(r["log_ratio"]["mean"]) for r in (a, b)],
                                  "log_difference": welch(b["log_ratio"]["seeds"], a["log_ratio"]["seeds"])})
    return found


def near_budget(part, tokens):
    """A budget of the study that is the same text, to a step of a batch; None if it has none."""
    return next((b for b in part["budgets"] if abs(math.log(b / tokens)) < 0.002), None)


def same_text(parts):
    tokens = next(t for t in reversed(parts[-1]["budgets"]) if all(near_budget(p, t) for p in parts))
    found = []
    for part in parts:
        for arm in ARMS:
            ratio = next(r for r in part["ratios_to_bf16"][arm]
                         if r["tokens"] == near_budget(part, tokens) and r["form"] == "shrink")
            found.append({"study": part["name"], "arm": arm, "tokens": tokens, "form": "shrink",
                          "bytes_per_parameter": ratio["bytes_per_parameter"],
                          "ratio": math.exp(ratio["log_ratio"]["mean"]),
                          "interval": [math.exp(v) for v in ratio["log_ratio"]["interval_t"]]})
    return found


def bf16_curve(part, seeds):
    """BF16's loss against ln D, of the mean over drawn seeds."""
    losses = np.array([np.array(g["bf16"]["seeds"])[seeds].mean() for g in part["gaps"]])
    return PchipInterpolator(np.log(part["budgets"]), np.minimum.accumulate(losses), extrapolate=False)


def bf16_size(small, large, rng):
    """Records of the budgets of the larger size that the smaller one's curve reaches, where no seed is late."""
    step = math.log(large["block_parameters"] / small["block_parameters"])
    seeds = [len(p["seeds"]) for p in (small, large)]

    def shares(gap, arm, of_small, of_large):
        above = bf16_curve(small, of_small)(math.log(gap["tokens"]))
        at = np.array(gap["bf16"]["seeds"])[of_large].mean()
        loss = at + np.array(gap[arm]["seeds"])[of_large].mean()
        return float(np.exp(-step * (loss - at) / (above - at)))

    found = []
    for gap in large["gaps"]:
        inside = small["budgets"][0] <= gap["tokens"] <= small["budgets"][-1] * 1.002
        if not inside or gap["apart"] > 0.06:
            continue
        gap = gap | {"tokens": min(gap["tokens"], small["budgets"][-1])}
        drawn = [[rng.integers(0, n, n) for n in seeds] for _ in range(DRAWS)]
        for arm in ARMS:
            values = np.array([shares(gap, arm, *of) for of in drawn])
            found.append({"studies": [small["name"], large["name"]], "arm": arm, "tokens": gap["tokens"],
                          "bytes_per_parameter": gap["bytes_per_parameter"],
                          "size": shares(gap, arm, *(np.arange(n) for n in seeds)), "interval": quantiles(values)})
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("studies", nargs="+", help="names in surface.json, smallest first")
    parser.add_argument("--surface", required=True, help="surface.json")
    parser.add_argument("--out", required=True, help="the file to write")
    options = parser.parse_args()
    every = {p["name"]: p for p in json.loads(pathlib.Path(options.surface).read_text())["studies"]}
    for name in options.studies:
        if name not in every:
            parser.error(f"{name} is not in {options.surface}, which has {', '.join(every)}")
    parts = [every[name] for name in options.studies]
    rng = np.random.default_rng(20264)
    pairs = list(zip(parts, parts[1:]))
    out = {"studies": [{"name": p["name"], "sha256_of_results": p["sha256_of_results"],
                        "joined": p.get("joined", [])} for p in parts],
           "same_bytes": [r for pair in pairs for r in same_bytes(*pair)], "same_text": same_text(parts),
           "bf16_size": [r for pair in pairs for r in bf16_size(*pair, rng)]}
    pathlib.Path(options.out).write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    main()
