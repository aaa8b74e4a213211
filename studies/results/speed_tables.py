"""The table of what a recipe's step must be faster by than FP8's, from league.json and surface.json, for tables.py."""
import math
import statistics

import widths
from league_tables import league
from surface_tables import surface_parts

SPEEDUPS = (1.31, 1.35, 1.44, 1.73)  # NVFP4 over FP8, end to end: Llama 3 8B on GB300 and GB200, 405B on both; NVIDIA
RECIPES = (  # of the league: its arm on the surface, if it has one
    ("te_nvfp4", "nvfp4"), ("quartet2", None), ("maxtext_te_nvfp4_mlp", None), ("te_mxfp8_fwd_nvfp4_bwd", None),
    ("mxfp4", "mxfp4"))
SURFACE = "surface-c-1.2m"


def eight_bits(document):
    """The median ratio to BF16's tokens of the recipes with 8 bits or BF16 in all GEMMs, and of their times."""
    rows = [r for r in document["rows"] if r["plan"] == 0 and r["pool"] and r["recipe"] not in ("bf16", "null")]
    ratios = [math.exp(r["log_ratio"]["bf16"]["mean"]) for r in rows]
    return statistics.median(ratios), statistics.median(v * r["product_time"] for v, r in zip(ratios, rows))


def extended_interval(arm, budget):
    """The token ratio to BF16 of an arm of the surface at the league's budget, extend form, with its t interval."""
    log = next(r for r in surface_parts()[SURFACE]["ratios_to_reference"][arm]
               if (r["tokens"], r["form"]) == (budget, "extend"))["log_ratio"]
    return [math.exp(v) for v in (log["mean"], *log["interval_t"])]


def extended(arm, budget):
    return extended_interval(arm, budget)[0]


def breakeven(studies):
    """A row a recipe: S*, the tokens over FP8's at equal loss; the time to that loss at published speedups of a step,
    and by rates of 2 and 4 for 8 and 4 bits, over FP8's."""
    document = league(studies)
    eight, time_of_eight = eight_bits(document)
    of = {row["recipe"]: row for row in document["rows"]}
    rows = ["| recipe | S*, shrink form | " + " | ".join(f"time / FP8's at a step {s} times as fast" for s in SPEEDUPS)
            + " | by products alone, at B200's rates |", "|---" * (3 + len(SPEEDUPS)) + "|"]
    for recipe, _ in RECIPES:
        log = of[recipe]["log_ratio"]["bf16"]
        star, low, high = (math.exp(v) / eight for v in (log["mean"], *log["interval"]))
        alone = math.exp(log["mean"]) * of[recipe]["product_time"] / time_of_eight
        rows.append(f"| {recipe} | {star:.2f} [{low:.2f}, {high:.2f}]{widths.mark((low, high))} | "
                    + " | ".join(f"{star / s:.2f}" for s in SPEEDUPS) + f" | {alone:.2f} |")
    return rows


def breakevenextend(studies):
    """A row a recipe that the surface has over budgets: S* in extend form, and the time at published speedups."""
    document = league(studies)
    eight, _ = eight_bits(document)
    rows = ["| recipe | S*, extend form | " + " | ".join(f"time / FP8's at a step {s} times as fast" for s in SPEEDUPS)
            + " |", "|---" * (2 + len(SPEEDUPS)) + "|"]
    for recipe, arm in RECIPES:
        if arm:
            star, low, high = (v / eight for v in extended_interval(arm, document["budget"]))
            rows.append(f"| {recipe} | {star:.2f} [{low:.2f}, {high:.2f}]{widths.mark((low, high))} | "
                        + " | ".join(f"{star / s:.2f}" for s in SPEEDUPS) + " |")
    return rows


KINDS = {"breakeven": breakeven, "breakevenextend": breakevenextend}
