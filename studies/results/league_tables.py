"""Tables of league/league.json and league/league-4.7m.json, which `fp4lab study league` makes of several studies, for
tables.py."""
import json
import math
import statistics
import sys

import widths
from significance import student_quantile
from study_tables import HERE, with_interval


def league(studies, file="league.json"):
    """The file, which `fp4lab study league studies/several/FILE --json` makes of these studies."""
    document = json.loads((HERE / "league" / file).read_text())
    hashes = {source["name"]: source["sha256_of_results"] for source in document["sources"]}
    if hashes != {study.results["name"]: study.results["sha256"] for study in studies}:
        sys.exit(f"{file} is not of these results: run `fp4lab study league studies/several/{file} --json` again")
    losses = {}
    for study in studies:
        for run in study.results["runs"]:
            at = [p["validation_loss"] for p in run["points"] if p["tokens"] == document["budget"]]
            losses.setdefault(run["arm"], {}).update({run["seed"]: loss for loss in at})
    for row in document["rows"]:
        for reference in "bf16", "te_nvfp4":
            gaps = [losses[row["recipe"]][s] - losses[reference][s] for s in row["seeds"]]
            if max(abs(a - b) for a, b in zip(gaps, row["gap"][reference]["seeds"])) > 1e-12:
                sys.exit(f"{file} is not of the results in {row['recipe']}: run `fp4lab study league` again")
    return document


def of_both_sizes(studies):
    """The leagues of the smaller and of the larger model."""
    return [league([study for study in studies if ("4.7m" in study.results["name"]) == large], file)
            for file, large in (("league.json", False), ("league-4.7m.json", True))]


def league_gap(row, reference):
    if row["recipe"] == reference:
        return ""
    gap = row["gap"][reference]
    text = with_interval(gap, 4, "+")
    known = gap["interval"] and (gap["interval"][0] > 0 or gap["interval"][1] < 0)
    return f"**{text}**" if known and reference == "te_nvfp4" else text


def league_ratio(row, reference):
    number = row["log_ratio"][reference]
    if number is None:
        return "" if row["recipe"] == reference else "out of reach"
    wide = widths.mark(number["interval"] and [math.exp(end) for end in number["interval"]], "&nbsp;")
    return with_interval(number, 2, transform=math.exp) + wide + (" *x*" if number["mean"] < 0 else "")


def titles_of_recipes():
    recipes = json.loads((HERE.parent.parent / "data/recipes.json").read_text())
    titles = {r["name"]: r["title"] for r in recipes}
    titles["mxfp4"] = ("te_nvfp4's plan in MXFP4: blocks of 32 (weights 32x32) under E8M0 scales that are rounded up, "
                       "RHT32 on wgrad")
    return titles


def half_width(noise, a, b, level):
    """Of the difference of two rows at a level, two-sided, from the noise of their pools. Degrees of freedom of a pair
    of pools: the smaller ones of the two."""
    pools = sorted((a["pool"], b["pool"]))
    known = noise["half_width_of_one_seed"]
    half = known.get(", ".join(pools)) or known[", ".join(reversed(pools))]
    degrees = min(noise["pools"][pool]["degrees_of_freedom"] for pool in pools)
    seeds = len(set(a["seeds"]) & set(b["seeds"]))
    return (half / student_quantile(0.975, degrees) * student_quantile(1 - level / 2, degrees) / math.sqrt(seeds))


def tiers(rows, noise, level=0.05):
    """The tier of each row, by loss: the first row opens tier 1, and a row opens the next one if its loss is told from
    that of the row which opened the present one. Each row is compared once, so that all comparisons hold together at
    level / their number (Bonferroni). None: the noise of the row is not known."""
    found, head, tier = [], None, 0
    number = max(sum(bool(row["pool"]) for row in rows) - 1, 1)
    for row in rows:
        if not row["pool"]:
            found.append(None)
            continue
        if head is None or row["loss"] - head["loss"] > half_width(noise, head, row, level / number):
            head, tier = row, tier + 1
        found.append(tier)
    return found


def league_rows(studies, four_bits, head, cost):
    """A row a recipe, by loss, with its tier among these rows."""
    titles = titles_of_recipes()
    rows = ["| tier | recipe | loss above BF16's, nats | minus te_nvfp4's | tokens / BF16's | tokens / te_nvfp4's "
            f"| {head} | what it is |", "|---|---|---|---|---|---|---|---|"]
    document = league(studies)
    own = [row for row in document["rows"]
           if row["four_bits"] == four_bits and row["recipe"] not in ("bf16", "null")]
    for row, tier in zip(own, tiers(own, document["noise"]), strict=True):
        rows.append(f"| {tier or ''} | {row['recipe']} | {league_gap(row, 'bf16')} | {league_gap(row, 'te_nvfp4')} "
                    f"| {league_ratio(row, 'bf16')} | {league_ratio(row, 'te_nvfp4')} | {cost(row)} "
                    f"| {titles[row['recipe']]} |")
    return rows


def leaguetable(studies):
    """The recipes with 4-bit products only."""
    return league_rows(studies, True, "operands of 6: RHT, SR, two scales, MS-EDEN", lambda row: ", ".join(
        str(row["extras"][k]) for k in ("hadamard", "stochastic", "two_scales", "ms_eden")))


def leaguerest(studies):
    """The other recipes."""
    return league_rows(studies, False, "% of products of 4, 8, 16 bits; their time", lambda row: ", ".join(
        f"{100 * row['shares'][k]:.0f}" for k in ("4", "8", "16")) + f"; {row['product_time']:.2f}")


def difference_text(pair):
    return "{:+.4f}&nbsp;[{:+.4f},&nbsp;{:+.4f}]".format(pair["mean"], *pair["interval"])


def leaguepairs(studies):
    """A row a pair: the difference of two recipes of the league, alone and among all pairs."""
    rows = ["| recipe | against | what differs | difference of losses, nats per byte | verdict "
            "| among all pairs (Holm) |",
            "|---" * 6 + "|"]
    for pair in league(studies)["pairs"]:
        low, high = pair["interval"]
        verdict = "not identified" if low <= 0 <= high else "helps" if high < 0 else "harms"
        kept = "" if verdict == "not identified" else "kept" if pair["kept"] else "not kept"
        rows.append(f"| {pair['recipe']} | {pair['against']} | {pair['what']} | {difference_text(pair)} | {verdict} "
                    f"| {kept} |")
    return rows


def leaguefirst(studies):
    """A row a size and comparison of the recipe that leads, its interval alone and as the best of all."""
    rows = ["| block parameters | difference | seeds | nats per byte | tokens / te_nvfp4's |", "|---|---|---|---|---|"]

    def row(size, what, pair):
        ratio = ""
        if "token_ratio" in pair:
            ratio = "{:.2f} [{:.2f}, {:.2f}]".format(*pair["token_ratio"]) + widths.mark(pair["token_ratio"][1:])
        rows.append(f"| {size} | {pair['recipe']} - {pair['against']}{what} | {pair['seeds']} "
                    f"| {difference_text(pair)} | {ratio} |")

    for document in of_both_sizes(studies):
        first = document["first"]
        size = f"{first['block_parameters'] / 1e6:.1f}M"
        row(size, "", first["against_base"])
        if "simultaneous" in first:
            row(size, f", as the best of {first['family'] + 1}", first["simultaneous"])
        row(size, "", first["against_second"])
    return rows


def leagueorder(studies):
    """How far apart the NVFP4 recipes behind the first are, beside what seeds alone leave."""
    order = league(studies)["order"]
    return ["| NVFP4 recipes behind the first | standard deviation of their means, nats per byte | of seeds alone "
            "| ratio of variances | p |", "|---|---|---|---|---|",
            f"| {order['recipes']} | {order['deviation_of_means']:.4f} | {order['of_seeds_alone']:.4f} "
            f"| {order['f']:.1f} | {order['p']:.3f} |"]


def leagueplans(studies):
    """A row a plan: how many recipes, the range of their gaps, of their token ratios to BF16, of the time of a token's
    products relative to BF16's, and of the time of all products until an equal loss."""
    document = league(studies)
    rows = ["| what multiplies | recipes | loss above BF16's, nats | tokens / BF16's | time of a token's products "
            "| time to equal loss |", "|---|---|---|---|---|---|"]

    def span(values, digits):
        values = sorted(values)
        if len(values) < 4:
            return ", ".join(f"{v:.{digits}f}" for v in values)
        return f"{values[0]:.{digits}f} to {values[-1]:.{digits}f}, median {statistics.median(values):.{digits}f}"

    for index, title in enumerate(document["plans"]):
        own = [row for row in document["rows"]
               if row["plan"] == index and row["pool"] and row["recipe"] not in ("bf16", "null")]
        times = [row["product_time"] for row in own]
        stands = [row for row in own if row["log_ratio"]["bf16"]]
        ratios = [math.exp(row["log_ratio"]["bf16"]["mean"]) for row in stands]
        until = [ratio * row["product_time"] for ratio, row in zip(ratios, stands)]
        beyond = len(own) - len(stands)
        time = f"{times[0]:.2f}" if max(times) - min(times) < 0.005 else span(times, 2)
        rows.append(f"| {title} | {len(own)} | {span([row['gap']['bf16']['mean'] for row in own], 3)} "
                    f"| {span(ratios, 2)}{f', {beyond} out of reach' * (beyond > 0)} | {time} | {span(until, 2)} |")
    return rows


def leaguenoise(studies):
    """A row a pool of recipes, or a pair of them: the noise of seeds."""
    noise = league(studies)["noise"]
    rows = ["| fprop | recipes | standard deviation of a seed, nats | degrees of freedom "
            "| half-width of a difference, 5 seeds | 3 seeds |", "|---|---|---|---|---|---|"]
    own, between = [], []
    for pair, half in noise["half_width_of_one_seed"].items():
        a, b = pair.split(", ")
        widths = f"| {half / math.sqrt(5):.4f} | {half / math.sqrt(3):.4f} |"
        if a != b:
            between.append(f"| {a} against {b} | | | {widths}")
            continue
        pool = noise["pools"][a]
        own.append(f"| {a} | {pool['recipes']} | {pool['deviation']:.4f} | {pool['degrees_of_freedom']} {widths}")
    return rows + own + between


def leaguesizes(studies):
    """A row a recipe of the larger league: the same numbers at both sizes."""
    document, of_large = of_both_sizes(studies)
    small = {row["recipe"]: row for row in document["rows"]}
    rows = ["| recipe | loss above BF16's at 1.2M, nats | at 4.7M | minus te_nvfp4's at 1.2M | at 4.7M "
            "| tokens / te_nvfp4's at 1.2M | at 4.7M |", "|---|---|---|---|---|---|---|"]
    for row in of_large["rows"]:
        if row["recipe"] not in ("bf16", "null"):
            both = small[row["recipe"]], row
            cells = [league_gap(of, reference) for reference in ("bf16", "te_nvfp4") for of in both]
            cells += [league_ratio(of, "te_nvfp4") for of in both]
            rows.append(f"| {row['recipe']} | {' | '.join(cells)} |")
    return rows


KINDS = {"league": leaguetable, "leaguerest": leaguerest, "leagueplans": leagueplans, "leaguenoise": leaguenoise,
         "leaguepairs": leaguepairs, "leaguesizes": leaguesizes, "leaguefirst": leaguefirst, "leagueorder": leagueorder}
