"""Numbers of sentences about the league, for prose_numbers.py."""
import functools
import json
import math
import statistics

from study_tables import HERE


@functools.cache
def rows(size="small"):
    """{recipe: its row}; league_tables.py compares the file with its results."""
    name = "league/league-4.7m.json" if size == "large" else "league/league.json"
    return {row["recipe"]: row for row in json.loads((HERE / name).read_text())["rows"]}


def gap(recipe, reference="bf16"):
    return rows()[recipe]["gap"][reference]


def league_gap(recipe):
    """A recipe's mean gap to BF16, nats, three digits."""
    return f"{gap(recipe)['mean']:.3f}"


def league_difference(recipe, reference="te_nvfp4"):
    """A recipe's loss less the reference's, nats, with its interval."""
    found = gap(recipe, reference)
    return f"{found['mean']:+.4f} [{found['interval'][0]:+.4f}, {found['interval'][1]:+.4f}]"


def of_plans(plans, without=()):
    """The rows of plans, "1-2" by their numbers in league.json, of which the noise is known."""
    numbers = [int(plan) for plan in str(plans).split("-")]
    return [row for row in rows().values() if row["plan"] in numbers and row["pool"]
            and row["recipe"] not in ("bf16", "null", *without)]


def ends(values, digits):
    return f"{min(values):.{digits}f} to {max(values):.{digits}f}"


def gaps_of_plans(plans, *without):
    """The smallest and the largest mean gap of the recipes of these plans, some left out by name, nats."""
    return ends([row["gap"]["bf16"]["mean"] for row in of_plans(plans, without)], 3)


def median_gap_of_plans(plans):
    """The median of these recipes' mean gaps, nats."""
    return f"{statistics.median(row['gap']['bf16']['mean'] for row in of_plans(plans)):.3f}"


def largest_gap_of_plans(plans):
    """The largest mean gap of these recipes, nats."""
    return f"{max(row['gap']['bf16']['mean'] for row in of_plans(plans)):.4f}"


def ratios_of_plans(plans, *without):
    """The smallest and the largest of these recipes' tokens over BF16's, shrink form."""
    return ends([math.exp(row["log_ratio"]["bf16"]["mean"]) for row in of_plans(plans, without)
                 if row["log_ratio"]["bf16"]], 2)


def least_ratio_of_plans(plans):
    """The smallest of these recipes' tokens over BF16's."""
    return ratios_of_plans(plans).split()[0]


def until_of_plans(plans):
    """The smallest and the largest time of products to an equal loss of these recipes, over BF16's."""
    return ends([row["product_time"] * math.exp(row["log_ratio"]["bf16"]["mean"]) for row in of_plans(plans)
                 if row["log_ratio"]["bf16"]], 2)


SWITCHES = {  # the recipe that a switch starts from: those that differ from it in one switch
    "te_nvfp4": ("te_nvfp4_no_rht", "te_nvfp4_no_sr", "te_nvfp4_no_2d", "te_nvfp4_row_scaled",
                 "te_nvfp4_4over6_activations", "te_nvfp4_4over6_weights", "te_nvfp4_4over6_all",
                 "te_nvfp4_4over6_all_448", "te_nvfp4_4over6_all_mse", "nvidia_nvfp4_1b_plain"),
    "nvidia_nvfp4_12b": ("nvidia_nvfp4_12b_h4", "nvidia_nvfp4_12b_h128", "nvidia_nvfp4_12b_no_signs",
                         "nvidia_nvfp4_12b_fresh_signs")}


def most_of_switches(*recipes):
    """By how much one switch of Transformer Engine's recipe moves the loss at most, nats: of all, or of these."""
    moved = [abs(gap(recipe)["mean"] - gap(base)["mean"]) for base, own in SWITCHES.items() for recipe in own
             if not recipes or recipe in recipes]
    return f"{max(moved):.4f}"


def gaps_over_smaller():
    """The smallest and the largest gap at 4.7M over that at 1.2M, of the recipes that both leagues have."""
    return ends([row["gap"]["bf16"]["mean"] / gap(recipe)["mean"] for recipe, row in rows("large").items()
                 if recipe not in ("bf16", "null")], 2)


def four_bit_recipes():
    """The published recipes of the league with 4-bit products only."""
    return str(sum(row["four_bits"] for recipe, row in rows().items() if recipe not in ("bf16", "null", "mxfp4")))


def four_bit_intervals():
    """How many recipes with 4-bit products only have an interval of their loss less te_nvfp4's."""
    return str(sum(row["four_bits"] and bool(row["gap"]["te_nvfp4"]["interval"]) for recipe, row in rows().items()
                   if recipe not in ("bf16", "null", "te_nvfp4")))


FUNCTIONS = (
    league_gap, league_difference, gaps_of_plans, median_gap_of_plans, largest_gap_of_plans, ratios_of_plans,
    least_ratio_of_plans, until_of_plans, most_of_switches, gaps_over_smaller,
    four_bit_recipes, four_bit_intervals)
