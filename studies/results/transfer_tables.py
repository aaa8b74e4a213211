"""Ranks of published recipes beside those of the league, for tables.py."""
import functools
import json

from difference_tables import difference, with_interval
from significance import spearman
from study_tables import HERE


@functools.cache
def published():
    return json.loads((HERE / "transfer/published.json").read_text())


@functools.cache
def rows_of_league():
    document = json.loads((HERE / "league/league.json").read_text())  # league_tables.py compares it with its results
    return {row["recipe"]: row for row in document["rows"]}


def correlation(group):
    """Spearman's rank correlation of the mean gaps here with the published numbers."""
    values = published()[group]["values"]
    return spearman(list(values.values()), [rows_of_league()[name]["gap"]["bf16"]["mean"] for name in values])


def correlations_of_seeds(group):
    """The same, by the seeds that all recipes of the group have."""
    values = published()[group]["values"]
    gaps = [dict(zip(rows_of_league()[n]["seeds"], rows_of_league()[n]["gap"]["bf16"]["seeds"], strict=True)) for n in values]
    shared = sorted(set.intersection(*map(set, gaps)))
    return [spearman(list(values.values()), [of[seed] for of in gaps]) for seed in shared]


def larger(group, recipe):
    """The gap of a recipe at 4.7M parameters, with its seeds."""
    return difference(f"transfer-{group}", recipe, "bf16")


def larger_correlation(group):
    """Spearman's rank correlation of the mean gaps at 4.7M with the published numbers."""
    values = published()[group]["values"]
    return spearman(list(values.values()), [larger(group, name)["mean"] for name in values])


def larger_correlations_of_seeds(group):
    values = published()[group]["values"]
    gaps = [larger(group, name)["seeds"] for name in values]
    return [spearman(list(values.values()), of_seed) for of_seed in zip(*gaps, strict=True)]


def larger_text(gap):
    """With its interval over seeds and the text or, without, its seeds."""
    if gap["interval_with_text"]:
        return with_interval(gap)
    return f"{gap['mean']:+.4f} (" + ", ".join(f"{seed:+.4f}" for seed in gap["seeds"]) + ")"


def transfer(group, unit, seeds):
    def table(studies):
        rows = [f"| recipe | published, {unit} | at 1.2M, nats per byte | at 4.7M, {seeds} |", "|---|---|---|---|"]
        for name, value in published()[group]["values"].items():
            gap = rows_of_league()[name]["gap"]["bf16"]
            low, high = gap["interval"]
            shown = "does not converge" if value is None else f"{value:g}"
            rows.append(f"| {name} | {shown} | {gap['mean']:+.4f} [{low:+.4f}, {high:+.4f}] | {larger_text(larger(group, name))} |")
        return rows
    return table


KINDS = {"transferquartet": transfer("quartet2", "nats per token at 30M", "three seeds"),
         "transferamd": transfer("amd", "% more tokens than FP8 at 8B", "two seeds")}
