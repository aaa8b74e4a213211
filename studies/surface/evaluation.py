#!/usr/bin/env python3
"""What the evaluation adds to the surface's numbers: the error of the validation text, and quantized forward passes.

    python3 studies/surface/evaluation.py studies/results/surface-c-{1.2m,4.7m,25m,25m-long} \
        --out studies/results/surface/evaluation.json

reads the results.json of studies, joined as in surface.py, and writes for each of them

- the gaps of NVFP4 and MXFP4 to BF16 at each budget and the token ratios of surface.py, nats and ln r, with the 95 %
  t interval over seeds and with one that holds the validation text, too;
- the ratio of MXFP4's gap to NVFP4's with Fieller's 95 % interval over paired seeds, null where it is unbounded;
- "high": the same gaps and ratios where BF16 products evaluate the same weights ("validation_loss_high").

All seeds are validated on the same bytes, so their scatter does not hold the error of that text. It is the standard
deviation of DRAWS draws of BLOCK bytes of neighbouring chunks, on a circle, of the mean over seeds, whose curves give
the ratio. The interval with text adds 1.96 times it to the half-width over seeds, as a root of squares. Needs NumPy and
SciPy.
"""
import argparse
import json
import math
import pathlib
import sys

import numpy as np
from scipy.stats import t as student

from surface import PARTS, Study, joins, log_crossing, log_ratios, number

ARMS = ("nvfp4", "mxfp4")
BLOCK = 32768  # bytes
DRAWS = 4000


def fieller(above, below):
    """The 95 % interval of mean(above) / mean(below) of paired values; None where it is unbounded."""
    n = len(above)
    quantile = student.ppf(0.975, n - 1) ** 2 / n
    covariance = np.cov(above, below)
    a = below.mean() ** 2 - quantile * covariance[1, 1]
    b = above.mean() * below.mean() - quantile * covariance[0, 1]
    c = above.mean() ** 2 - quantile * covariance[0, 0]
    if a <= 0 or b * b < a * c:
        return None
    root = math.sqrt(b * b - a * c)
    return [(b - root) / a, (b + root) / a]


def text_draws(study):
    """Indices of chunks, a row a draw: blocks of neighbours on a circle."""
    chunks = next(iter(study.losses.values())).shape[2]
    block = BLOCK // study.results["study"]["evaluation"]["chunk_tokens"]
    rng = np.random.default_rng(20263)
    starts = rng.integers(0, chunks, (DRAWS, -(-chunks // block)))
    return ((starts[..., None] + np.arange(block)).reshape(DRAWS, -1)[:, :chunks]) % chunks


def with_text(record, error):
    """Adds the error of the text to a number of surface.py, and the interval that holds it."""
    low, high = record["interval_t"]
    half = math.hypot((high - low) / 2, 1.96 * error)
    record |= {"text_error": float(error), "interval_with_text": [record["mean"] - half, record["mean"] + half]}
    del record["seeds"]
    return record


def mean_ratio(study, curves, arm, base, at, form):
    """ln r of the curves of means over seeds."""
    curve, level = (arm, base) if form == "extend" else (base, arm)
    crossing = log_crossing(study.budgets, curves[curve], curves[level][at], study.apart[curve])
    return (crossing - math.log(study.budgets[at])) * (1 if form == "extend" else -1)


def high_means(study):
    """As Study.means, of losses that BF16 products evaluate; seeds and budgets of one results.json or of two joined by
    seeds."""
    found = {(run["arm"], run["seed"]): {p["tokens"]: p["validation_loss_high"] for p in run["points"]}
             for results in (study.results, *study.joined) for run in results["runs"]}
    return {arm: np.array([[found[arm, seed][tokens] for tokens in study.budgets] for seed in study.seeds])
            for arm in ("bf16", *ARMS)}


def ratio_records(study, means, errors=None):
    """The token ratios of MXFP4 to NVFP4 that stand; errors(at, form): of the text."""
    records = []
    for at, tokens in enumerate(study.budgets):
        for form in "extend", "shrink":
            ratio = log_ratios(study, means, "mxfp4", "nvfp4", at, form)
            if np.isfinite(ratio).all():
                record = number(ratio)
                records.append({"tokens": tokens, "bytes_per_parameter": study.bytes_each[at], "form": form,
                                "log_ratio": with_text(record, errors(at, form)) if errors else record})
    return records


def analyze(study):
    means, draws = study.means(), text_draws(study)
    drawn = {arm: study.losses[arm].mean(0)[:, draws].mean(2) for arm in ("bf16", *ARMS)}  # budgets x draws

    def error(at, form):
        values = [mean_ratio(study, {arm: drawn[arm][:, i] for arm in ARMS}, "mxfp4", "nvfp4", at, form)
                  for i in range(0, DRAWS, 4)]
        return np.nanstd(values, ddof=1)

    gaps, high = [], high_means(study)
    for at, tokens in enumerate(study.budgets):
        record = {"tokens": tokens, "bytes_per_parameter": study.bytes_each[at], "high": {}}
        for arm in ARMS:
            gap = number(means[arm][:, at] - means["bf16"][:, at])
            record[arm] = with_text(gap, np.std(drawn[arm][at] - drawn["bf16"][at], ddof=1))
            record["high"][arm] = number(high[arm][:, at] - high["bf16"][:, at])
        own = {arm: means[arm][:, at] - means["bf16"][:, at] for arm in ARMS}
        record["ratio_of_gaps"] = {"ratio": float(own["mxfp4"].mean() / own["nvfp4"].mean()),
                                   "interval": fieller(own["mxfp4"], own["nvfp4"])}
        gaps.append(record)
    corpus, evaluation = study.results["corpus"], study.results["study"]["evaluation"]
    return {"name": study.name, "block_parameters": study.parameters, "seeds": len(study.seeds),
            "sha256_of_results": study.results["sha256"], "joined": study.joined_records(),
            "validation_bytes": evaluation["tokens"], "validation_bytes_there": corpus["validation_tokens"],
            "gaps": gaps, "ratios": ratio_records(study, means, error),
            "high_ratios": ratio_records(study, high)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", nargs="+", help="folders with a results.json, of bytes")
    parser.add_argument("--out", required=True, help="the file to write")
    options = parser.parse_args()
    studies = []
    for folder in options.results:
        study = Study(folder, [part for part in joins(folder, options.results) if part in PARTS])
        if study.text.endswith("(BPE)"):
            sys.exit(f"{study.name}: its tokens are no bytes; name studies of bytes")
        studies.append(analyze(study))
    pathlib.Path(options.out).write_text(json.dumps({"block": BLOCK, "studies": studies}, indent=1) + "\n")


if __name__ == "__main__":
    main()
