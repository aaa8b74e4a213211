"""Numbers inside the sentences of pages, for tables.py: a page has <!--n FUNCTION ARGUMENT ...-->NUMBER<!--/n-->,
and the function of this file, or of the modules whose FUNCTIONS it joins, gives the number from the committed
results."""
import functools
import json
import math
import re
import statistics
import sys

import atlas_tables
import difference_tables
import league_tables
import null_tables
import parity_tables
import prose_league
import prose_studies
import prose_surface
import speed_tables
import study_tables
import trained_tables
import transfer_tables
import widths
from prose_studies import listed, study
from study_tables import HERE, each_text
from surface_tables import registered_sizes, sizes_of_model, surface_document, surface_parts

LEAGUE = ("league-c-1.2m-4bit", "league-c-1.2m-4bit-more", "league-c-1.2m-rest", "league-c-1.2m-references",
          "surface-c-1.2m")
ATLAS = tuple(f"atlas-{name}" for name in (
    "recipe", "blocks", "gemms", "formats", "quantizers", "hadamard", "rounding", "consistency", "mxscale", "maxtext",
    "switch", "randombits", "rates", "tokens", "accumulation"))
ROOT = HERE.parent.parent
SIZES = {"1.2m": "surface-c-1.2m", "4.7m": "surface-c-4.7m", "25m": "surface-c-25m-long"}


@functools.cache
def of_file(path):
    return json.loads((HERE / path).read_text())


@functools.cache
def league():
    return league_tables.league(list(map(study, LEAGUE)))


@functools.cache
def parts():
    return surface_parts()


def bounds(low, high, digits):
    return f"[{low:.{digits}f}, {high:.{digits}f}]"


def with_bounds(value, low, high, digits=2):
    return f"{value:.{digits}f} {bounds(low, high, digits)}"


def of_ratio(value, low, high, digits=2):
    """A token ratio, or a factor between two; " *wide*" follows an interval that is too wide to claim it."""
    return with_bounds(value, low, high, digits) + widths.mark((low, high))


def of_log(mean, interval):
    return of_ratio(*map(math.exp, (mean, *interval)))


def growth(name):
    log = parts()[name]["growth"]["log_ratio"]
    return of_log(log["mean"], log["interval_t"])


def growth_places(name):
    found = parts()[name]["growth"]
    ends = found["from_bytes_per_parameter"], found["to_bytes_per_parameter"]
    return " to ".join(f"{end:.{0 if end > 7.5 else 1}f}" for end in ends)


def exponent(arm):
    fit = of_file("surface/law-25m-seeds.json")["arms"][arm]
    return "N^-" + with_bounds(fit["a"], *fit["a_interval"])


def predicted(arm):
    """At 12 bytes per parameter."""
    last = of_file("surface/law-25m.json")["arms"][arm]["predictions"][-1]
    return with_bounds(last["gap"], *last["interval_three_seeds"], 4)


def measured(arm):
    return f"{parts()['surface-c-25m-long']['gaps'][-1][arm]['mean']:.4f}"


def gaps_at(names, arm, place):
    """The means of studies at a place of a law; the last study's where several have it."""
    at = [g[arm]["mean"] for name in names for g in parts()[name]["gaps"]
          if abs(math.log(g["bytes_per_parameter"] / place)) < 0.01]
    return at[-1]


def hits():
    """At how many of the places of the 25M law both gaps lie in their predicted intervals."""
    arms = of_file("surface/law-25m.json")["arms"]
    inside = [all(low <= gaps_at(("surface-c-25m", "surface-c-25m-long"), arm, p["bytes_per_parameter"]) <= high
                  for arm in arms for p in arms[arm]["predictions"] if p["bytes_per_parameter"] == place
                  for low, high in [p["interval_three_seeds"]])
              for place in [p["bytes_per_parameter"] for p in arms["nvfp4"]["predictions"]]]
    return f"{sum(inside)} of {len(inside)}"


def missed_mxfp4():
    """At how many of its places the 4.7M law, with the intervals that were committed, missed MXFP4, three seeds."""
    found = study("surface-c-4.7m").analysis["gaps"]
    size = study("surface-c-4.7m").results["model"]["block_parameters"]
    places = of_file("surface/law-4.7m.json")["arms"]["mxfp4"]["predictions"]
    outside = [not p["interval"][0] <= g["mean"] <= p["interval"][1] for p in places for g in found
               if (g["arm"], g["reference"], g["precision"]) == ("mxfp4", "bf16", "training")
               and abs(math.log(g["tokens"] / size / p["bytes_per_parameter"])) < 0.01]
    return f"{sum(outside)} of {len(outside)}"


def loss_errors():
    """[(law of BF16's loss - measured, whether it lies outside the law's interval)] at its places."""
    found = []
    for p in of_file("surface/law-25m.json")["loss"]["predictions"]:
        loss = gaps_at(("surface-c-25m", "surface-c-25m-long"), "bf16", p["bytes_per_parameter"])
        found.append((p["loss"] - loss, not p["interval"][0] <= loss <= p["interval"][1]))
    return found


def missed_loss():
    errors = loss_errors()
    return f"{sum(outside for _, outside in errors)} of {len(errors)}"


def missed_loss_by():
    errors = [error for error, _ in loss_errors()]
    return f"{min(errors):.3f} to {max(errors):.3f}"


def same_text(arm):
    """A quarter of the tokens over BF16's after the same text, of the sizes at which they can be claimed."""
    found = {r["study"]: r for r in surface_document()["sizes"]["same_text"] if r["arm"] == arm}
    claimed = [f"{found[name]['ratio'] / 4:.2f}" for name in SIZES.values() if not widths.is_wide(*found[name]["interval"])]
    return " and ".join(claimed)


def same_bytes(arm, larger):
    """Tokens over BF16's of a size over those of the next smaller one, at the most bytes per parameter of both."""
    last = [r for r in surface_document()["sizes"]["same_bytes"]
            if (r["arm"], r["studies"][1]) == (arm, SIZES[larger])][-1]
    return of_log(last["log_difference"]["mean"], last["log_difference"]["interval"])


def bf16_size(arm, of):
    last = [r for r in surface_document()["sizes"]["reference_size"]
            if (r["arm"], r["studies"][1]) == (arm, SIZES[of])][-1]
    return with_bounds(last["size"], *last["interval_with_text"])


def missed_sizes(arm):
    """At how many texts the registered BF16-equivalent size lies outside the measured interval, of how many."""
    predicted = registered_sizes(study("surface-c-10.6m"))[arm]
    intervals = [r["interval_with_text"] for r in sizes_of_model("surface-c-10.6m") if r["arm"] == arm]
    outside = sum(not low <= predicted <= high for low, high in intervals)
    return f"{outside} of {len(intervals)}"


def sizes_at_11m(arm):
    """The first and the last measured BF16-equivalent size, by rising text."""
    sizes = [r["size"] for r in sizes_of_model("surface-c-10.6m") if r["arm"] == arm]
    return f"{sizes[0]:.2f} to {sizes[-1]:.2f}"


CRITERIA = {"ratio": "token_ratio", "growth": "token_ratio_grows"}
OF_CRITERIA = {"surface-c-1.2m": "1.2M", "surface-c-1.2m-bpe": "1.2M in BPE tokens", "surface-c-4.7m": "4.7M",
               "surface-c-25m": "25M", "surface-c-25m-long": "25M, continued"}


def held(kind):
    """The studies on C in which a registered criterion held; "nowhere"."""
    own = [title for name, title in OF_CRITERIA.items() for c in study(name).analysis["criteria"]
           if c["kind"] == CRITERIA[kind] and c["status"] in ("held", "reproduced")]
    return " and ".join(own) or "nowhere"


def smallest_of_rates():
    """Of the shrink forms at the largest budget, one a rate."""
    found = [r for view in study("surface-c-1.2m-rates").analysis for r in view["token_ratios"]
             if (r["format"], r["reference"], r["estimator"], r["form"]) == ("mxfp4", "nvfp4", "crossing", "shrink")
             and r["precision"] == "training" and r["tokens"] == view["budgets"][-1]]
    least = min(found, key=lambda r: r["ratio"])
    return of_ratio(least["ratio"], *least["interval_t"])


def last_ratio(name, form="extend"):
    """The last in a form."""
    log = [r for r in parts()[name]["ratios"] if r["form"] == form][-1]["log_ratio"]
    return of_log(log["mean"], log["interval_t"])


def ratio_at(name, place):
    """In extend form, at a place in bytes per parameter."""
    log = next(r for r in parts()[name]["ratios"] if r["form"] == "extend"
               and abs(math.log(r["bytes_per_parameter"] / float(place))) < 0.01)["log_ratio"]
    return of_log(log["mean"], log["interval_t"])


def ratio_with_text(name, place):
    """In shrink form, where MXFP4 has read so many bytes per parameter; the interval holds the validation text."""
    log = next(r for r in parts()[name]["evaluation"]["ratios"] if r["form"] == "shrink"
               and abs(math.log(r["bytes_per_parameter"] / float(place))) < 0.01)["log_ratio"]
    return of_ratio(*map(math.exp, (log["mean"], *log["interval_with_text"])))


def ratio_ends(name):
    """The first and the last ratio, by the bytes per parameter that NVFP4 has read."""
    ends = [parts()[name]["ratios"][i] for i in (0, -1)]
    marks = [widths.mark(list(map(math.exp, r["log_ratio"]["interval_t"]))) for r in ends]
    return " to ".join(f"{math.exp(r['log_ratio']['mean']):.2f}{mark} at {each_text(r['bytes_at_equal_loss'][0])}"
                       for r, mark in zip(ends, marks, strict=True))


def law_ratio(place):
    """The ratio of 25M by the registered laws."""
    return next(f"{r['ratio']:.2f}" for r in of_file("surface/law-25m.json")["token_ratios"]
                if abs(math.log(r["bytes_per_parameter"] / float(place))) < 0.01)


def last_predicted_ratio():
    ratio = of_file("surface/law-25m.json")["token_ratios"][-1]
    return of_ratio(ratio["ratio"], *ratio["interval_three_seeds"])


def persistence(name, key):
    return f"{parts()[name]['persistence'][key]:.4f}"


def row_of(recipe):
    return next(row for row in league()["rows"] if row["recipe"] == recipe)


def league_ratio(recipe, reference="te_nvfp4"):
    log = row_of(recipe)["log_ratio"][reference]
    return of_log(log["mean"], log["interval"])


def until(recipe):
    """The time of products to an equal loss, over BF16's."""
    row = row_of(recipe)
    return f"{row['product_time'] * math.exp(row['log_ratio']['bf16']['mean']):.2f}"


def star(recipe):
    """S*, in shrink form."""
    log = row_of(recipe)["log_ratio"]["bf16"]
    eight, _ = speed_tables.eight_bits(league())
    return of_ratio(*(math.exp(v) / eight for v in (log["mean"], *log["interval"])))


def extended_star(arm):
    return f"{speed_tables.extended(arm, league()['budget']) / speed_tables.eight_bits(league())[0]:.2f}"


def extended_time(arm):
    """A quarter of the tokens over BF16's in extend form."""
    return f"{speed_tables.extended(arm, league()['budget']) / 4:.2f}"


def rate_gain(arm):
    """By how much an arm ends lower at 6e-3 than at 3e-3, 1.2M and the league's budget."""
    losses = {}
    for run in study("surface-c-1.2m-rates").results["runs"]:
        for p in run["points"]:
            if p["tokens"] == league()["budget"]:
                losses.setdefault(run["arm"], []).append(p["validation_loss"])
    low, high = (sum(losses[f"{arm}+lr{rate}"]) / len(losses[f"{arm}+lr{rate}"]) for rate in ("0.003", "0.006"))
    return f"{low - high:.4f}"


def first(key, at=0):
    """The token ratio of the leading recipe; `at`: 0 in the league, 1 in that of the larger size."""
    return of_ratio(*of_file(("league/league.json", "league/league-4.7m.json")[at])["first"][key]["token_ratio"])


def simultaneous():
    interval = league()["first"]["simultaneous"]["token_ratio"][1:]
    return bounds(*interval, 2) + widths.mark(interval)


def family():
    """How many recipes the leader was chosen from."""
    return str(league()["first"]["family"] + 1)


def behind():
    """How many NVFP4 recipes stand behind the leader."""
    return str(league()["order"]["recipes"])


def atlas_claims():
    return str(len(atlas()))


def plan_difference(plan):
    """A comparison of the league, MXFP4 less NVFP4 under a plan, nats per byte."""
    pair = league()["comparisons"][plan.replace("-", " ")]
    return with_bounds(pair["mean"], *pair["interval"], 4)


def spread_by_noise():
    """The share of the variance of the means behind the first that seeds alone would leave, in %."""
    return f"{100 / league()['order']['f']:.0f} %"


def told_rows(plan, reference, size):
    document = of_file("league/league-4.7m.json" if size == "large" else "league/league.json")
    return [row for row in document["rows"] if row["plan"] == plan and row["recipe"] not in ("bf16", "null")
            and row["pool"] and row["gap"][reference]["interval"]]


def is_told(row, reference):
    low, high = row["gap"][reference]["interval"]
    return low > 0 or high < 0


def told(plan, reference, size="small"):
    """The recipes of a plan of the league that the seeds tell from a reference, by loss."""
    own = [row["recipe"] for row in told_rows(plan, reference, size) if is_told(row, reference)]
    return listed(own)


def told_count(plan, reference):
    rows = told_rows(plan, reference, "small")
    return f"{sum(is_told(row, reference) for row in rows)} of {len(rows)}"


def published_recipes():
    return [r["name"] for r in json.loads((ROOT / "data/recipes.json").read_text())]


def recipe_count():
    """The published recipes."""
    return str(len(published_recipes()))


def league_recipe_count():
    """The published recipes that the league has; rows that came after its runs are not among them."""
    return str(len(set(published_recipes()) & {row["recipe"] for row in league()["rows"]}))


SPEEDS = {  # the page of tests/bench, the row, and its column
    "layer": ("README.md", r"\| \*\*Matrix products\*\* NVFP4, 12 products of a layer, d 256, 1 thread \|", 3),
    "step": ("README.md", r"\| \*\*Training [^|]* step of te_nvfp4 \(full recipe\), d 256, 1 thread \|", 3),
    "h200": ("gpu.md", r"\| 25M \|[^\n]*\(target 1.35\)", 6)}


def speed(name):
    """A ratio of a page of tests/bench."""
    page, start, column = SPEEDS[name]
    rows = [line for line in (ROOT / "tests/bench" / page).read_text().split("\n") if re.match(start, line)]
    if len(rows) != 1:
        sys.exit(f"tests/bench/{page} has {len(rows)} rows for the speed {name!r}, not one")
    return rows[0].split("|")[column].split()[0]


def pairs_count(called):
    pairs = league()["pairs"]
    if called == "all":
        return str(len(pairs))
    return str(sum(p["kept"] if called == "kept" else p["interval"][0] > 0 or p["interval"][1] < 0 for p in pairs))


def not_kept():
    pairs = league()["pairs"]
    own = [p["recipe"] for p in pairs if not p["kept"] and (p["interval"][0] > 0 or p["interval"][1] < 0)]
    return listed(own)


@functools.cache
def atlas():
    return list(atlas_tables.judged(list(map(study, ATLAS))))


def atlas_count(status):
    return str(sum(c["status"] == status.replace("-", " ") for _, _, c, _, _ in atlas()))


def atlas_kept(status):
    """How many verdicts of a status hold among all claims, by Holm's method."""
    words = atlas_tables.together(list(map(study, ATLAS)))
    return str(sum(word == "kept" and c["status"] == status.replace("-", " ")
                   for word, (_, _, c, _, _) in zip(words, atlas(), strict=True)))


def tier_end(tier, plan="four"):
    """The number of recipes in the first tiers of a table of the league, up to one."""
    rows = [row for row in league()["rows"]
            if row["four_bits"] == (plan == "four") and row["recipe"] not in ("bf16", "null")]
    return str(sum(t is not None and t <= tier for t in league_tables.tiers(rows, league()["noise"])))


def tier_recipes(tier):
    """The recipes in a tier of those with 4-bit products only, by loss."""
    rows = [row for row in league()["rows"] if row["four_bits"] and row["recipe"] not in ("bf16", "null")]
    own = [row["recipe"] for row, t in zip(rows, league_tables.tiers(rows, league()["noise"]), strict=True) if t == tier]
    return listed(own)


def atlas_less():
    return str(sum(c["status"] == "reproduced" and quoted is not None and quoted[0] != "reproduced"
                   for _, _, c, _, quoted in atlas()))


def first_block(arm):
    return atlas_tables.percent(atlas_tables.difference(study("atlas-blocks"), arm, arm + "-first1")["share"])


def closes(arm):
    return atlas_tables.percent(atlas_tables.difference(study("atlas-switch"), "nvfp4", arm)["share"])


def lowest_lower_end():
    """Of the atlas's "reproduced" orders: how many have a pair whose interval begins at 0.0003 nats or less."""
    ends = [float(part.split("[")[1].split(",")[0]) for _, _, c, _, _ in atlas() if c["status"] == "reproduced"
            for part in c["numbers"].split("+")[1:] if "[" in part and c["kind"] == "mean_order"]
    return str(sum(end <= 0.0003 for end in ends))


def evaluation(name):
    return parts()[name]["evaluation"]


def share_of_forward(name):
    """How much of NVFP4's and of MXFP4's gap at the largest budget the quantized forward pass of the evaluation is,
    in %."""
    last = evaluation(name)["gaps"][-1]
    nvfp4, mxfp4 = (100 * (1 - last["high"][arm]["mean"] / last[arm]["mean"]) for arm in ("nvfp4", "mxfp4"))
    return f"{nvfp4:.0f} and {mxfp4:.0f} %"


def ratio_of_gaps(name):
    of = evaluation(name)["gaps"][-1]["ratio_of_gaps"]
    return f"{of['ratio']:.2f} " + (bounds(*of["interval"], 2) if of["interval"] else "with an unbounded interval")


def passing_exponents(arm):
    """The exponents a that lead from the 25M law's gap of 4.7M at 12 bytes per parameter into its interval for 25M."""
    document = of_file("surface/law-25m.json")
    law, sizes = document["arms"][arm], [parts()[SIZES["4.7m"]]["block_parameters"], document["predicted_parameters"]]
    place = law["predictions"][-1]
    level = math.exp(law["ln_c"]) * sizes[0] ** -law["a"] * place["bytes_per_parameter"] ** law["b"]
    low, high = place["interval_three_seeds"]
    return " to ".join(f"{math.log(level / end) / math.log(sizes[1] / sizes[0]):.2f}" for end in (high, low))


def pair_exponents(arm):
    """-ln of the gap of 4.7M over that of 1.2M by ln of their sizes, at 32, 45 and 64 bytes per parameter."""
    small, large = (parts()[SIZES[size]] for size in ("1.2m", "4.7m"))
    step = math.log(large["block_parameters"] / small["block_parameters"])
    found = [math.log(a[arm]["mean"] / b[arm]["mean"]) / step for place in (32, 45.25, 64)
             for a, b in [[next(g for g in part["gaps"] if abs(math.log(g["bytes_per_parameter"] / place)) < 0.01)
                           for part in (small, large)]]]
    return "{:.2f}, {:.2f} and {:.2f}".format(*found)


def tokens_over(name, arm):
    """Over the reference's at equal loss and the largest budget, shrink form, over seeds."""
    analysis = study(name).results["study"]["analysis"]
    ratio = study(name).ratio(study(name).analysis["budgets"][-1], "crossing", "shrink",
                              pair=[arm, analysis["reference"]])
    return of_ratio(ratio["ratio"], *ratio["interval_t"])


def contrast(name, form, place):
    """The token ratio of a study's contrast in a form, at a place in tokens per parameter."""
    of = study(name)
    tokens = min(of.analysis["budgets"], key=lambda t: abs(t / of.results["model"]["block_parameters"] - float(place)))
    return of.ratio(tokens, "crossing", form)


def contrast_ratio(name, form, place, digits=3):
    """Over seeds."""
    ratio = contrast(name, form, place)
    return of_ratio(ratio["ratio"], *ratio["interval_t"], digits)


def contrast_growth(name, form, place):
    """The factor from the first budget of the form to a place, paired over seeds."""
    found = contrast(name, form, place)["growth"]
    return of_ratio(found["factor"], *found["interval_t"])


def contrast_half_width(name, form, place):
    """Of the interval of ln r."""
    return f"{widths.half_width(*contrast(name, form, place)['interval_t']):.3f}"


def arm_gap(name, arm, tokens=None):
    """Of an arm to its study's reference over seeds, at the largest budget or at one of so many tokens."""
    return study_tables.gap_text(study(name), arm, None, tokens)


def arm_difference(name, arm, base):
    """The loss of an arm less another's at the largest budget, over paired seeds."""
    return null_tables.difference(study(name), arm, base)


def share_of_ratio(name, factor, place):
    """The interval of a factor's share of ln r."""
    found = next(s for s in parts()[name]["shares"] if abs(math.log(s["bytes_per_parameter"] / place)) < 0.01)
    return bounds(*found["shares"][factor.replace("-", " ")]["interval_t"], 3)


def league_null(at=0):
    """The null arm's gap to BF16; `at`: 0 in the league, 1 in that of the larger size."""
    rows = of_file(("league/league.json", "league/league-4.7m.json")[at])["rows"]
    found = next(row for row in rows if row["recipe"] == "null")["gap"]["bf16"]
    return f"{found['mean']:+.4f} [{found['interval'][0]:+.4f}, {found['interval'][1]:+.4f}]"


def league_pair(recipe, against):
    """The difference of the losses of a pair of the league."""
    found = next(p for p in league()["pairs"] if (p["recipe"], p["against"]) == (recipe, against))
    return f"{found['mean']:+.4f} [{found['interval'][0]:+.4f}, {found['interval'][1]:+.4f}]"


def null_places(which):
    """`inside`: at how many of its places the null arms' intervals hold 0; `expected`: how many of such intervals
    independent ones would leave out, and twice the deviation of that."""
    return null_tables.text(which)


def shown_margin(name, arm, base):
    """The smallest margin that the data of a difference show in 8 of 10 cases."""
    return f"{difference_tables.difference(name, arm, base)['shown_margin']:.4f}"


def paired_gap(name, arm, base, tokens=None):
    """An arm's loss less another's, nats, of the published studies/results/NAME.json; over seeds and text."""
    return difference_tables.gap(name, arm, base, tokens)


def paired_less(name, arm, base):
    """The same, less the difference that the file sets against it."""
    return difference_tables.with_interval(difference_tables.difference(name, arm, base, is_less=True))


def paired_percent(name, study_name, arm, base):
    """The same difference in % of the other's loss."""
    found, of = difference_tables.difference(name, arm, base), study(study_name)
    losses = [run["points"][-1]["validation_loss"] for run in of.results["runs"] if run["arm"] == base]
    low, high = found["interval_with_text"]
    return "{:.1f} [{:.1f}, {:.1f}] %".format(*(100 * x / statistics.mean(losses) for x in (found["mean"], low, high)))


def margin_verdicts(verdict):
    """How many of the margins of studies/architectures have a verdict, "not-decided"; of all: any."""
    return difference_tables.verdicts(verdict)


def seeds_of(name):
    return str(len(study(name).analysis["seeds"]))


def joined_seeds(name, arm, base):
    """Of a difference, over all files that its study joins."""
    return str(len(difference_tables.difference(name, arm, base)["seeds"]))


def difference_growth(name, place):
    """By how much MXFP4's loss less NVFP4's grows from a place, in bytes per parameter, to the last budget, in %."""
    gaps = parts()[name]["gaps"]
    first_at = next(g for g in gaps if abs(math.log(g["bytes_per_parameter"] / place)) < 0.01)
    least, last = (g["mxfp4"]["mean"] - g["nvfp4"]["mean"] for g in (first_at, gaps[-1]))
    return f"{100 * (last / least - 1):.0f} %"


def trained_adds(recipe):
    """What a recipe adds to a trained model's loss."""
    answer = trained_tables.document()["questions"]["operands"][recipe]
    return trained_tables.adds(answer).replace("&nbsp;", " ")


def trained_linear(recipe, linear, key):
    """leave_one_in or leave_one_out of a linear in all blocks."""
    answer = trained_tables.document()["questions"]["linears"][recipe]
    return trained_tables.share_text(trained_tables.shares_of(answer)[linear], key, 2).replace("&nbsp;", " ")


def trained_most_of_8_bits():
    """The most that a linear in all blocks adds alone under a recipe of 8 bits."""
    answers = trained_tables.document()["questions"]["linears"]
    return f"{max(s['leave_one_in'] for r, a in answers.items() if 'fp4' not in r for s in a['shares']):.3f}"


def trained_evaluated(recipe):
    """What `fp4lab evaluate --json` says that a recipe adds, published beside the results."""
    printed = json.loads((HERE / "trained-smollm2/evaluate.json").read_text())
    row = next(r for r in printed["recipes"] if r["recipe"] == recipe)
    return f"{row['loss'] - row['high_precision_loss']:+.3f}"


def rank_correlation(group):
    """Spearman's, of the league's gaps with a group of published numbers."""
    return f"{transfer_tables.correlation(group):.2f}"


def rank_correlation_at_4_7m(group):
    """Spearman's, of the gaps at 4.7M with a group of published numbers."""
    return f"{transfer_tables.larger_correlation(group):.2f}"


def rank_correlations_at_4_7m_of_seeds(group):
    """The same, seed by seed."""
    return ", ".join(f"{value:.2f}" for value in transfer_tables.larger_correlations_of_seeds(group))


def rank_correlations_of_seeds(group):
    """The same, seed by seed."""
    return ", ".join(f"{value:.2f}" for value in transfer_tables.correlations_of_seeds(group))


FUNCTIONS = {f.__name__.replace("_", "-"): f for f in (
    margin_verdicts, paired_gap, paired_less, paired_percent, joined_seeds, growth, growth_places, exponent, predicted, measured, hits, missed_mxfp4, missed_loss, missed_loss_by,
    same_text, same_bytes, bf16_size, missed_sizes, sizes_at_11m, held, smallest_of_rates, last_ratio, ratio_at, ratio_with_text, ratio_ends,
    law_ratio,
    last_predicted_ratio,
    persistence, league_ratio, until, star, extended_star, extended_time, rate_gain, first, simultaneous,
    told, told_count, recipe_count, speed, family, behind, atlas_claims, plan_difference, spread_by_noise,
    pairs_count, not_kept, atlas_count, atlas_kept, atlas_less, tier_end, tier_recipes, first_block, closes,
    league_recipe_count,
    lowest_lower_end,
    share_of_forward, ratio_of_gaps, passing_exponents, pair_exponents, difference_growth,
    tokens_over, contrast_ratio, contrast_growth, contrast_half_width, arm_gap, arm_difference, share_of_ratio, league_null,
    league_pair, null_places, seeds_of, trained_adds, trained_linear,
    trained_most_of_8_bits, trained_evaluated, rank_correlation, shown_margin, rank_correlation_at_4_7m, rank_correlations_at_4_7m_of_seeds,
    rank_correlations_of_seeds,
    *parity_tables.FUNCTIONS, *prose_league.FUNCTIONS, *prose_studies.FUNCTIONS, *prose_surface.FUNCTIONS)}


def number(text):
    """The number of "NAME ARGUMENT ...", the words of a mark."""
    name, *arguments = text.split()
    return FUNCTIONS[name](*(int(a) if a.isdigit() else a for a in arguments))
