#!/usr/bin/env python3
"""What is left of the league's differences when one allows for how many were looked at.

    python3 studies/league/multiplicity.py

reads the studies of league.py and writes multiplicity.json there in results/league/:

- "first": the best recipe with 4-bit products only, against te_nvfp4 and against the recipe next to it at each size:
  its difference in nats and its token ratio, each with the 95 % interval of noise.py and, against te_nvfp4 at the size
  at which it was chosen, with one for the best of all such recipes (Bonferroni: 95 % for all differences together);
- "order": the distinct NVFP4 recipes behind the first: the standard deviation of their mean losses, that which the
  seeds alone would leave, and the p value of their F test;
- "plans": MXFP4 less NVFP4 in all linears, and under the plan of NVIDIA's 8B run, whose last blocks stay in BF16;
- "pairs": the pairs of the league's page with the p value of each, and whether Holm's method keeps it at 5 %.

Needs NumPy and SciPy.
"""
import json
import math
import pathlib
import sys

import numpy as np
from scipy import stats

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "results"))
from league import LEAGUES, OUT, League  # noqa: E402
from league_tables import PAIRS  # noqa: E402
from noise import Noise, distinct  # noqa: E402

BASE = "te_nvfp4"
PLANS = {"all linears": ("mxfp4", "te_nvfp4"), "8B": ("nvidia_mxfp4_8b", "nvidia_nvfp4_8b")}
LEVEL = 0.05


def difference(league, noise, a, b, confidence=0.95):
    """Mean of a - b over common seeds, its interval, and its p value, by Student's t of the pools of noise.py."""
    seeds = sorted(league.losses[a].keys() & league.losses[b].keys())
    mean = float(np.mean([league.losses[a][s] - league.losses[b][s] for s in seeds]))
    variance, freedom = noise.variance_of_one_seed(league.pool(a), league.pool(b))
    deviation = math.sqrt(variance / len(seeds))
    half = float(stats.t.ppf(0.5 + confidence / 2, freedom)) * deviation
    return {"recipe": a, "against": b, "seeds": len(seeds), "mean": mean, "interval": [mean - half, mean + half],
            "p": float(2 * stats.t.sf(abs(mean) / deviation, freedom))}


def with_ratio(league, record):
    """Adds the token ratio to BASE, as league.py reads it."""
    ratio = league.log_ratio(BASE, record)
    return record | {"token_ratio": [math.exp(v) for v in (ratio["mean"], *ratio["interval"])]}


def best(rows):
    """By loss, the recipes with 4-bit products only."""
    return [row["recipe"] for row in rows if row["four_bits"] and row["pool"]]


def first_of(league, noise, first, second):
    return {"block_parameters": league.parameters,
            "against_base": with_ratio(league, difference(league, noise, first, BASE)),
            "against_second": difference(league, noise, first, second)}


def order_of(league, noise, rows):
    """Of the distinct NVFP4 recipes behind the first."""
    own = set(distinct(league.losses))
    behind = [row for row in rows if row["plan"] == 4 and row["pool"] and row["recipe"] in own][1:]
    losses = np.array([row["loss"] for row in behind])
    pool = noise.pools[behind[0]["pool"]]
    alone = pool.deviation / math.sqrt(len(behind[0]["seeds"]))
    f = float(losses.var(ddof=1) / alone ** 2)
    return {"recipes": len(behind), "deviation_of_means": float(losses.std(ddof=1)), "of_seeds_alone": alone, "f": f,
            "p": float(stats.f.sf(f, len(behind) - 1, pool.freedom))}


def holm(pairs):
    """Adds "kept": whether the pair's p value holds when all are looked at together."""
    ordered, kept = sorted(pairs, key=lambda pair: pair["p"]), True
    for rank, pair in enumerate(ordered):
        kept = kept and pair["p"] <= LEVEL / (len(pairs) - rank)
        pair["kept"] = kept
    return pairs


def main():
    leagues = {file: League(*studies) for file, studies in LEAGUES.items()}
    noises = {file: Noise(league.losses, league.pool) for file, league in leagues.items()}
    small, noise = leagues["league.json"], noises["league.json"]
    rows = small.rows(noise)
    chosen = best(rows)
    family = len([arm for arm in distinct(small.losses) if arm in chosen]) - 1
    first = [first_of(league, noises[file], chosen[0], next(r for r in best(league.rows(noises[file]))
                                                            if r not in (chosen[0], BASE)))
             for file, league in leagues.items()]
    first[0]["simultaneous"] = with_ratio(small, difference(small, noise, chosen[0], BASE, 1 - LEVEL / family))
    first[0]["family"] = family
    document = {"sources": [s for league in leagues.values() for s in league.sources], "first": first,
                "order": order_of(small, noise, rows),
                "plans": {name: difference(small, noise, *pair) for name, pair in PLANS.items()},
                "pairs": holm([difference(small, noise, a, b) for a, b, _ in PAIRS])}
    (OUT / "multiplicity.json").write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
