"""Ranks of published recipes beside those of the league, for tables.py."""
import functools
import json

from significance import spearman
from study_tables import HERE, Study


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


@functools.cache
def larger():
    return Study("transfer-c-4.7m")


def larger_correlation(group):
    """Spearman's rank correlation of the gaps at 4.7M with the published numbers."""
    values = published()[group]["values"]
    return spearman(list(values.values()), [larger().gap(name)["mean"] for name in values])


def with_text(gap):
    """The gap of one seed, with its interval over the text."""
    low, high = gap["interval_bootstrap"]
    return f"{gap['mean']:+.4f} [{low:+.4f}, {high:+.4f}]"


def transfer(group, unit):
    def table(studies):
        rows = [f"| recipe | published, {unit} | at 1.2M, nats per byte | at 4.7M, one seed |", "|---|---|---|---|"]
        for name, value in published()[group]["values"].items():
            gap = rows_of_league()[name]["gap"]["bf16"]
            low, high = gap["interval"]
            shown = "does not converge" if value is None else f"{value:g}"
            rows.append(f"| {name} | {shown} | {gap['mean']:+.4f} [{low:+.4f}, {high:+.4f}] | {with_text(larger().gap(name))} |")
        return rows
    return table


KINDS = {"transferquartet": transfer("quartet2", "nats per token at 30M"),
         "transferamd": transfer("amd", "% more tokens than FP8 at 8B")}
