#!/usr/bin/env python3
"""The tables of results in README.md and in the pages of studies/results, its folder league, studies/atlas and
studies/surface.

    python3 studies/results/tables.py [--check]

replaces every part of these pages between a line <!-- table KIND STUDY ... --> and the line
<!-- end of table --> by the table that the "analysis" of STUDY/results.json gives. With --check no
file is written, and the exit code is 1 if a page differs from its data.
"""
import argparse
import json
import math
import pathlib
import re
import statistics
import sys

HERE = pathlib.Path(__file__).resolve().parent
PAGES = [HERE.parent.parent / "README.md", HERE / "README.md", HERE.parent / "atlas/README.md",
         HERE.parent / "surface/README.md", HERE / "league/README.md"]


class Study:
    """A study's results. `views` are its analyses with their labels: one, or in a sweep of learning rates all arms at
    the reference's best rate, each arm at its own best, and all arms at each other rate."""

    def __init__(self, name):
        path = HERE / name / "results.json"
        if not path.exists():
            sys.exit(f"{name}: there is no {path}; name a folder of studies/results")
        self.results = json.loads(path.read_text())
        self.analysis = self.results["analysis"]
        self.views = [("", self.analysis)]
        if isinstance(self.analysis, list):
            self.views = list(zip(self.labels_of_rates(), self.analysis, strict=True))

    def labels_of_rates(self):
        study = self.results["study"]
        reference, primary = study["analysis"]["reference"], study["analysis"]["primary_tokens"]
        rates = study["sweep"]["learning_rate"]

        def loss(rate):
            return sum(p["validation_loss"] for run in self.results["runs"] for p in run["points"]
                       if (run["arm"], p["tokens"]) == (f"{reference}+lr{rate:g}", primary))

        shared = min(rates, key=loss)
        return [f"rate {shared:g}", "each arm's best rate"] + [f"rate {r:g}" for r in rates if r != shared]

    def size(self):
        millions = self.results["model"]["block_parameters"] / 1e6
        return f"{millions:.{1 if millions < 10 else 0}f}M"

    def ratio(self, tokens, estimator, form, view=None, pair=None):
        """Of the arms `pair`, or of the study's contrast."""
        pair = pair or self.results["study"]["analysis"]["contrast"]
        return next(r for r in (view or self.analysis)["token_ratios"]
                    if r["precision"] == "training" and [r["format"], r["reference"]] == pair
                    and (r["tokens"], r["estimator"], r["form"]) == (tokens, estimator, form))


def each_text(x):
    """Bytes or tokens a parameter."""
    return f"{x:.{1 if x < 10 else 0}f}"


def per_parameter(ratio):
    return each_text(ratio["tokens_per_parameter"])


def ratio_text(ratio):
    """"1.36 [1.21, 1.52]", with " *e*" if a seed is extrapolated and " *?*" if estimators part."""
    if not ratio["identified"]:
        return ""
    text = f"{ratio['ratio']:.2f}"
    if ratio["interval_t"]:
        text += " [{:.2f}, {:.2f}]".format(*ratio["interval_t"])
    return text + (" *e*" if ratio["extrapolated"] else "") + (" *?*" if ratio["disagreement"] else "")


def standing(ratios):
    """The first that is identified without extrapolation; None if none is."""
    return next((r for r in ratios if r["identified"] and not r["extrapolated"]), None)


def formed_text(ratio):
    """As ratio_text, with the form if it is not extend; None: "not identified"."""
    if ratio is None:
        return "not identified"
    return ratio_text(ratio) + " (shrink form)" * (ratio["form"] == "shrink")


def ratios(studies):
    """A row a budget, with both forms of the crossing and the other two estimators."""
    rows = ["| parameters | tokens each | crossing, extend | crossing, shrink | power law "
            "| shared baseline |", "|---|---|---|---|---|---|"]
    for study in studies:
        for tokens in study.analysis["budgets"]:
            cells = [study.ratio(tokens, "crossing", "extend"),
                     study.ratio(tokens, "crossing", "shrink"),
                     study.ratio(tokens, "power_law", "extend"),
                     study.ratio(tokens, "shared_baseline", "extend")]
            rows.append(f"| {study.size()} | {per_parameter(cells[0])} | "
                        + " | ".join(map(ratio_text, cells)) + " |")
    return rows


def rates(studies):
    """A row a learning rate and budget: the token ratio of the contrast, and the gaps of its two arms."""
    arm, base = studies[0].results["study"]["analysis"]["contrast"]
    rows = [f"| learning rate | tokens each | tokens of {arm} / {base}, equal loss | {base} above BF16, nats "
            f"| {arm} above BF16 |", "|---|---|---|---|---|"]
    for study in studies:
        for label, view in study.views:
            for tokens in view["budgets"]:
                found = [study.ratio(tokens, "crossing", form, view) for form in ("extend", "shrink")]
                ratio = formed_text(standing(found))
                gaps = [gap_text(study, name, view, tokens) for name in (base, arm)]
                rows.append(f"| {label.removeprefix('rate ')} | {per_parameter(found[0])} | {ratio} "
                            f"| {' | '.join(gaps)} |")
    return rows


def verdict(criterion):
    held = criterion["status"] in ("held", "reproduced")
    return criterion["status"] if held else f"**{criterion['status']}**"


def criteria(studies):
    several = len(studies) > 1
    swept = any(label for study in studies for label, _ in study.views)
    rows = ["|" + " parameters |" * several + " learning rate |" * swept + " criterion | verdict | numbers |",
            "|---" * (3 + several + swept) + "|"]
    for study in studies:
        for label, view in study.views:
            for c in view["criteria"]:
                rows.append((f"| {study.size()} " if several else "")
                            + (f"| {label.removeprefix('rate ')} " if swept else "")
                            + f"| {c['statement']} | {verdict(c)} | {c['numbers']} |")
    return rows


def missed(studies):
    """A row for each criterion that did not hold everywhere, with the numbers of each failure."""
    rows = ["| criterion | not held at |", "|---|---|"]
    places = {}
    for study in studies:
        for c in study.analysis["criteria"]:
            if c["status"] not in ("held", "reproduced"):
                statement = re.sub(r",? from \S+ tokens on", "", c["statement"])
                numbers = f" ({c['numbers']})" if c["status"] in ("failed", "not reproduced") else ""
                which = " in BPE tokens" if study.results["corpus"]["name"].endswith(".bin") else ""
                which = ", continued" if study.results["name"].endswith("-long") else which
                places.setdefault(statement, []).append(f"{study.size()}{which}: {verdict(c)}{numbers}")
    return rows + [f"| {statement} | {'<br>'.join(where)} |" for statement, where in places.items()]


def gap_text(study, arm, view=None, tokens=None):
    """"+0.027 [+0.021, +0.033]": the arm's gap to the reference at a budget, the largest if none is named, in nats."""
    view = view or study.analysis
    reference = study.results["study"]["analysis"]["reference"]
    gap = next(g for g in view["gaps"]
               if g["precision"] == "training" and g["tokens"] == (tokens or view["budgets"][-1])
               and (g["arm"], g["reference"]) == (arm, reference))
    interval = gap["interval_t"]
    return f"{gap['mean']:+.4f}" + (" [{:+.4f}, {:+.4f}]".format(*interval) if interval else "")


def short_name(study):
    return study.results["name"].removeprefix("atlas-")


def atlas(studies):
    """A row a claim, with its source, verdict and numbers."""
    rows = ["| study | claim | source | verdict | numbers |", "|---|---|---|---|---|"]
    for study in studies:
        link = f"[{short_name(study)}]({short_name(study)}.json)"
        for label, view in study.views:
            for c in view["criteria"]:
                if c.get("source"):
                    rows.append(f"| {link}{', ' * bool(label)}{label} | {c.get('claim', c['statement'])} "
                                f"| {c['source']} | {verdict(c)} | {c['numbers']} |")
    return rows


def gaps(studies):
    """A row an arm: the gap to the study's reference at the largest budget."""
    rows = ["| study | arm | loss minus the reference's, nats |", "|---|---|---|"]
    for study in studies:
        if len(study.views) > 1:
            continue
        reference = study.results["study"]["analysis"]["reference"]
        for arm in study.results["study"]["arm_order"]:
            if arm != reference:
                rows.append(f"| {short_name(study)} | {arm} | {gap_text(study, arm)} |")
    return rows


def analyzed(studies):
    """The parts of surface.json, which studies/surface/surface.py makes, that are of these studies."""
    parts = json.loads((HERE / "surface/surface.json").read_text())["studies"]
    for study in studies:
        part = next(p for p in parts if p["name"] == study.results["name"])
        suffixes = [s for s in ("-seeds", "-long") if part["name"] + s not in (p["name"] for p in parts)]
        if hashes_of(part) != hashes_beside(study, suffixes):
            sys.exit(f"surface.json is not of {part['name']}: run python3 studies/surface/surface.py")
        yield study, part


def hashes_of(part):
    """Of a study's results, and of those that joined it, as a file that was made of them says."""
    return [p["sha256_of_results"] for p in (part, *part.get("joined", []))]


def hashes_beside(study, suffixes):
    """Of the study's results, and of those beside it that end so."""
    beside = [HERE / (study.results["name"] + suffix) / "results.json" for suffix in suffixes]
    return [study.results["sha256"]] + [json.loads(p.read_text())["sha256"] for p in beside if p.exists()]


def overview(studies):
    """A row a study: the ratio at the three largest budgets that the extend form reaches, and the gaps at the largest
    budget; surface() has every ratio."""
    rows = ["| block parameters | tokens each | tokens of MXFP4 / NVFP4, equal loss "
            "| NVFP4 above BF16, nats | MXFP4 above BF16 |", "|---|---|---|---|---|"]
    for study, part in analyzed(studies):
        shown = [r for r in part["ratios"] if r["form"] == "extend"][-3:]
        ratios = [formed_ratio(r, 2).replace(" ", "&nbsp;") for r in shown]
        places = [each_text(r["bytes_per_parameter"]) for r in shown]
        gaps = [signed_text(part["gaps"][-1][arm]) for arm in ("nvfp4", "mxfp4")]
        rows.append(f"| {study.size()} | {'<br>'.join(places)} | {'<br>'.join(ratios)} | {' | '.join(gaps)} |")
    return rows


def signed_text(number):
    return "{:+.4f} [{:+.4f}, {:+.4f}]".format(number["mean"], *number["interval_t"])


def formed_ratio(ratio, digits):
    """"1.360 [1.210, 1.520] *?* (shrink form)", of a ratio in surface.json."""
    log = ratio["log_ratio"]
    text = "{:.{d}f} [{:.{d}f}, {:.{d}f}]".format(*map(math.exp, (log["mean"], *log["interval_t"])), d=digits)
    form = "" if ratio["form"] == "extend" else " (shrink form)"
    return text + ("" if ratio["estimators_agree"] else " *?*") + form


def place(study, part, *bytes_each):
    cells = [study.size(), part["text"], part["sequence"], *map(each_text, bytes_each)]
    return "| " + " | ".join(map(str, cells)) + " |"


def surface(studies):
    """A row a study, budget and form: the token ratio of MXFP4 to NVFP4, and the shares of that in extend form."""
    rows = ["| block parameters | text | sequence | NVFP4's bytes each | MXFP4's | tokens of MXFP4 / NVFP4 "
            "| half-width of ln r | seeds for 0.08 | scale format | block length | weight tile |", "|---" * 11 + "|"]
    for study, part in analyzed(studies):
        shares = {r["tokens"]: r["shares"] for r in part["shares"]}
        for r in part["ratios"]:
            (low, high), nvfp4 = r["log_ratio"]["interval_t"], r["bytes_of_nvfp4"][0]
            of = shares.get(r["tokens"], {}) if r["form"] == "extend" else {}
            rows.append(f"{place(study, part, nvfp4, nvfp4 * math.exp(r['log_ratio']['mean']))} {formed_ratio(r, 3)} "
                        f"| {(high - low) / 2:.3f} | {r['seeds_that_suffice']} |"
                        + "".join(" {:+.3f} [{:+.3f}, {:+.3f}] |".format(s["mean"], *s["interval_t"])
                                  for s in of.values()) + " |" * (3 - len(of)))
    return rows


def surfacegaps(studies):
    """A row a study and budget: losses above BF16's, and how far apart the seeds are."""
    rows = ["| block parameters | text | sequence | bytes each | NVFP4 above BF16, nats | MXFP4 above BF16 "
            "| ratio of gaps | seeds apart by |", "|---|---|---|---|---|---|---|---|"]
    for study, part in analyzed(studies):
        for r in part["gaps"]:
            gap = [signed_text(r[arm]) for arm in ("nvfp4", "mxfp4")]
            rows.append(f"{place(study, part, r['bytes_per_parameter'])} {gap[0]} | {gap[1]} "
                        f"| {r['ratio_of_gaps']:.2f} | {r['apart']:.3f} |")
    return rows


def law(studies):
    """Rows of the law fitted to these studies, surface/law-SIZE.json: each arm's exponents with the gaps that it
    predicts for SIZE, below them those of law-SIZE-seeds.json, the same fit with more seeds, if it is there, and the
    gaps that surface-c-SIZE and its -long measured, where these studies have been run. Where the law has them, such
    rows of BF16's loss and of the token ratio in extend form, too."""
    names = ", ".join(study.results["name"] for study in studies)
    path, fitted = law_file(studies, "law-*.json", [])
    if fitted is None:
        sys.exit(f"no law of {names}: run python3 studies/surface/law.py")
    again = path.with_name(path.stem + "-seeds.json")
    laws = [("predicted", fitted)]
    if again.exists():
        laws.append(("fitted again, all seeds", law_file(studies, again.name, ["-seeds"])[1]))
        if laws[-1][1] is None:
            sys.exit(f"{again.name} is not of {names} with -seeds: run python3 studies/surface/law.py --join-seeds")
    of_size = path.stem.replace("law", "surface-c", 1)
    measured = [Study(name) for name in with_continued(of_size) if (HERE / name).exists()]
    size = fitted["predicted_parameters"]
    places = [p["bytes_per_parameter"] for p in fitted["arms"]["nvfp4"]["predictions"]]
    rows = ["| | | a | b | " + " | ".join(f"at {p:g} bytes each" for p in places) + " |",
            "|---" * (4 + len(places)) + "|"]
    for arm in fitted["arms"]:
        for kind, f in ((kind, law["arms"][arm]) for kind, law in laws):
            cells = ["{:.2f} [{:.2f}, {:.2f}]".format(f[k], *f[k + "_interval"]) for k in "ab"]
            cells += ["{:.4f} [{:.4f}, {:.4f}]".format(p["gap"], *p["interval_three_seeds"]) for p in f["predictions"]]
            rows.append(law_row(f"{arm}'s gap, nats", kind, cells))
        for study in measured:
            gaps = {g["tokens"] / size: (g["mean"], *g["interval_t"]) for g in study.results["analysis"]["gaps"]
                    if g["arm"] == arm and g["reference"] == "bf16" and g["precision"] == "training"}
            rows.append(measured_row(study.results["name"], gaps, places, "{:.4f} [{:.4f}, {:.4f}]"))
    return rows + (law_of_loss(laws, of_size) if "loss" in fitted else [])


def law_file(studies, pattern, suffixes):
    """The path and content of the file of surface/ whose law was fitted to these studies and those beside them that end
    so; None, None if there is none."""
    hashes = [hashes_beside(study, suffixes) for study in studies]
    for path in sorted((HERE / "surface").glob(pattern)):
        fitted = json.loads(path.read_text())
        if [hashes_of(part) for part in fitted["studies"]] == hashes:
            return path, fitted
    return None, None


def law_row(of, kind, cells):
    return "|" + "".join(f" {cell} |" if cell else " |" for cell in (of if kind == "predicted" else "", kind, *cells))


def with_continued(of_size):
    return of_size, of_size + "-long"


def measured_row(name, values, places, form):
    """`values` at places near those of the law: {bytes a parameter: mean, low, high}."""
    at = [next((value for each, value in values.items() if abs(math.log(each / place)) < 0.01), None)
          for place in places]
    name = name.removeprefix("surface-")
    return f"| | measured, {name} | | | " + " | ".join(form.format(*v) if v else "" for v in at) + " |"


def law_of_loss(laws, of_size):
    """The rows of BF16's loss and of the token ratio; `of_size`: the study that measured them, if it has been run."""
    rows = []
    for kind, loss in ((kind, law["loss"]) for kind, law in laws):
        cells = ["{:.2f} [{:.2f}, {:.2f}]".format(loss[k], *loss[k + "_interval"]) for k in ("alpha", "beta")]
        cells += ["{:.3f} [{:.3f}, {:.3f}]".format(p["loss"], *p["interval"]) for p in loss["predictions"]]
        rows.append(law_row("bf16's loss, nats", kind, cells))
    places = [r["bytes_per_parameter"] for r in laws[0][1]["token_ratios"]]
    parts = {p["name"]: p for p in json.loads((HERE / "surface/surface.json").read_text())["studies"]}
    measured = [parts[name] for name in with_continued(of_size) if name in parts]
    for part in measured:
        losses = {r["bytes_per_parameter"]: (r["bf16"]["mean"], *r["bf16"]["interval_t"]) for r in part["gaps"]}
        rows.append(measured_row(part["name"], losses, places, "{:.3f} [{:.3f}, {:.3f}]"))
    for kind, ratios in ((kind, law["token_ratios"]) for kind, law in laws):
        rows.append(law_row("tokens of mxfp4 / nvfp4", kind, ["", ""] + [
            "{:.2f} [{:.2f}, {:.2f}]".format(r["ratio"], *r["interval_three_seeds"]) for r in ratios]))
    for part in measured:
        seen = {r["bytes_per_parameter"]: map(math.exp, (r["log_ratio"]["mean"], *r["log_ratio"]["interval_t"]))
                for r in part["ratios"] if r["form"] == "extend"}
        rows.append(measured_row(part["name"], seen, places, "{:.2f} [{:.2f}, {:.2f}]"))
    return rows


def buys(studies):
    """Rows of a study at the first, the middle and the last budget at which both ratios stand: tokens of NVFP4 and of
    MXFP4 over BF16's at equal loss, and a quarter of them, the time of all products over BF16's at four times its
    rate."""
    rows = ["| block parameters | bytes each | tokens of NVFP4 / BF16, equal loss | time of its products "
            "| tokens of MXFP4 / BF16 | time of its products |", "|---|---|---|---|---|---|"]
    for study, part in analyzed(studies):
        found = {arm: {} for arm in ("nvfp4", "mxfp4")}  # {arm: {tokens: ratio}}, in extend form if both stand
        for arm, ratios in part["ratios_to_bf16"].items():
            for r in ratios:
                found[arm].setdefault(r["tokens"], r)
        both = [tokens for tokens in part["budgets"] if all(tokens in f for f in found.values())]
        for tokens in both[0], both[len(both) // 2], both[-1]:
            ratios = [f[tokens] for f in found.values()]
            cells = [cell for r in ratios
                     for cell in (formed_ratio(r, 2), f"{math.exp(r['log_ratio']['mean']) / 4:.2f}")]
            rows.append(f"| {study.size()} | {each_text(ratios[0]['bytes_per_parameter'])} | {' | '.join(cells)} |")
    return rows


def league(studies, file="league.json"):
    """The file, which studies/league/league.py makes of these studies."""
    document = json.loads((HERE / "league" / file).read_text())
    hashes = {source["name"]: source["sha256_of_results"] for source in document["sources"]}
    if hashes != {study.results["name"]: study.results["sha256"] for study in studies}:
        sys.exit(f"{file} is not of these results: run python3 studies/league/league.py")
    losses = {}
    for study in studies:
        for run in study.results["runs"]:
            at = [p["validation_loss"] for p in run["points"] if p["tokens"] == document["budget"]]
            losses.setdefault(run["arm"], {}).update({run["seed"]: loss for loss in at})
    for row in document["rows"]:
        for reference in "bf16", "te_nvfp4":
            gaps = [losses[row["recipe"]][s] - losses[reference][s] for s in row["seeds"]]
            if max(abs(a - b) for a, b in zip(gaps, row["gap"][reference]["seeds"])) > 1e-12:
                sys.exit(f"{file} is not of the results in {row['recipe']}: run python3 studies/league/league.py")
    return document


def with_interval(number, digits, sign="", transform=lambda x: x):
    ends = [f"{transform(x):{sign}.{digits}f}" for x in (number["mean"], *(number["interval"] or []))]
    return ends[0] + (f"&nbsp;[{ends[1]},&nbsp;{ends[2]}]" if number["interval"] else "")


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
    return with_interval(number, 2, transform=math.exp) + (" *x*" if number["mean"] < 0 else "")


def titles_of_recipes():
    recipes = json.loads((HERE.parent.parent / "data/recipes.json").read_text())
    titles = {r["name"]: r["title"] for r in recipes}
    titles["mxfp4"] = ("te_nvfp4's plan in MXFP4: blocks of 32 (weights 32x32) under E8M0 scales that are rounded up, "
                       "RHT32 on wgrad")
    return titles


def league_rows(studies, four_bits, head, cost):
    """A row a recipe, by loss."""
    titles = titles_of_recipes()
    rows = ["| recipe | loss above BF16's, nats | minus te_nvfp4's | tokens / BF16's | tokens / te_nvfp4's "
            f"| {head} | what it is |", "|---|---|---|---|---|---|---|"]
    for row in league(studies)["rows"]:
        if row["four_bits"] == four_bits and row["recipe"] not in ("bf16", "null"):
            rows.append(f"| {row['recipe']} | {league_gap(row, 'bf16')} | {league_gap(row, 'te_nvfp4')} "
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


PAIRS = (  # recipes of the league that differ in one thing
    ("te_nvfp4_backward_high_precision", "te_nvfp4", "backward GEMMs in BF16"),
    ("te_mxfp8_fwd_nvfp4_bwd", "te_mxfp8", "backward GEMMs in NVFP4 instead of MXFP8"),
    ("nvidia_nvfp4_12b_switch_bf16", "nvidia_nvfp4_12b", "BF16 for the last 18 % of the steps"),
    ("nvidia_nvfp4_12b_switch_forward_bf16", "nvidia_nvfp4_12b_switch_bf16", "only the forward GEMMs so"),
    ("nvidia_nvfp4_12b", "te_nvfp4", "the first and the last of six blocks in BF16"),
    ("nvidia_nvfp4_8b", "te_nvfp4", "the last of six blocks in BF16"),
    ("maxtext_te_nvfp4_mlp", "te_nvfp4", "attention's linears in BF16"),
    ("te_nvfp4_no_sr", "te_nvfp4", "gradients to nearest"),
    ("te_nvfp4_no_rht", "te_nvfp4", "no RHT on wgrad"),
    ("te_nvfp4_no_2d", "te_nvfp4", "weights 1x16 instead of 16x16"),
    ("nvidia_nvfp4_1b_plain", "te_nvfp4", "no RHT, no SR, no 2D weights"),
    ("nvidia_nvfp4_12b_h4", "nvidia_nvfp4_12b", "RHT of 4 instead of 16"),
    ("nvidia_nvfp4_12b_h128", "nvidia_nvfp4_12b", "RHT of 128 instead of 16"),
    ("nvidia_nvfp4_12b_no_signs", "nvidia_nvfp4_12b", "no random signs in the RHT"),
    ("nvidia_nvfp4_12b_fresh_signs", "nvidia_nvfp4_12b", "new signs at each step"),
    ("te_nvfp4_4over6_all", "te_nvfp4_no_rht", "four over six"),
    ("fouroversix_mse", "fouroversix_static6", "four over six, scales to 256"),
    ("fouroversix_mseden", "fouroversix_mse", "weights 1x16, MS-EDEN and RHT16 in all backward GEMMs"),
    ("quartet2", "quartet2_nvidia_4over6_baseline",
     "MS-EDEN and RHT128 in the backward GEMMs, four over six on both sides"),
    ("quartet2", "torchao_nvfp4_v2", "four over six forward, MS-EDEN on weights and inputs too"),
    ("ue5m3_fp4", "te_nvfp4_no_rht", "UE5M3 scales instead of E4M3 under a tensor scale"),
    ("ue5m3_fp4_b32", "ue5m3_fp4", "blocks of 32 instead of 16"),
    ("fouroversix_nvint4", "fouroversix_static6", "4-bit integers instead of E2M1"),
    ("mxfp4", "te_nvfp4", "E8M0 scales on 32 elements"),
    ("mxfp4_tseng_rht_nearest", "mxfp4_tseng_plain", "RHT64 on MXFP4's backward GEMMs, BF16 forward"),
    ("mxfp4_tseng_no_rht", "mxfp4_tseng_plain", "SR on them"),
    ("mxfp4_tseng", "mxfp4_tseng_rht_nearest", "SR on them, after RHT64"),
    ("amd_mxfp4_full_h16", "amd_mxfp4_full", "Hadamard 16 without signs on all operands"),
    ("amd_mxfp4_full_rht16", "amd_mxfp4_full_h16", "random signs in that transform"),
    ("amd_mxfp4_full_sr", "amd_mxfp4_full", "gradients stochastically"),
    ("primus_turbo_mxfp4_sr", "primus_turbo_mxfp4", "gradients stochastically"),
    ("mfu_hybrid", "mfu_mxfp4_row_sr", "NVFP4 in dgrad"),
    ("te_fp8_delayedscaling", "te_fp8_currentscaling", "scales from the history of amax"),
    ("te_mxfp8", "te_fp8_currentscaling", "E8M0 scales on 32 elements instead of one scale"),
)


def leaguepairs(studies):
    """A row a pair: the difference of two recipes of the league."""
    document = league(studies)
    rows_of = {row["recipe"]: row for row in document["rows"]}
    rows = ["| recipe | against | what differs | difference of losses, nats | verdict |", "|---|---|---|---|---|"]
    for a, b, what in PAIRS:
        losses = [dict(zip(rows_of[r]["seeds"], rows_of[r]["gap"]["bf16"]["seeds"])) for r in (a, b)]
        values = [losses[0][s] - losses[1][s] for s in losses[0] if s in losses[1]]
        mean = sum(values) / len(values)
        pools = ", ".join(sorted(rows_of[r]["pool"] for r in (a, b)))
        half = document["noise"]["half_width_of_one_seed"][pools] / math.sqrt(len(values))
        verdict = "not identified" if abs(mean) <= half else "helps" if mean < 0 else "harms"
        rows.append(f"| {a} | {b} | {what} | {mean:+.4f}&nbsp;[{mean - half:+.4f},&nbsp;{mean + half:+.4f}] "
                    f"| {verdict} |")
    return rows


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
    def of_size(large):
        return [study for study in studies if ("4.7m" in study.results["name"]) == large]
    small = {row["recipe"]: row for row in league(of_size(False))["rows"]}
    rows = ["| recipe | loss above BF16's at 1.2M, nats | at 4.7M | minus te_nvfp4's at 1.2M | at 4.7M "
            "| tokens / te_nvfp4's at 1.2M | at 4.7M |", "|---|---|---|---|---|---|---|"]
    for row in league(of_size(True), "league-4.7m.json")["rows"]:
        if row["recipe"] not in ("bf16", "null"):
            both = small[row["recipe"]], row
            cells = [league_gap(of, reference) for reference in ("bf16", "te_nvfp4") for of in both]
            cells += [league_ratio(of, "te_nvfp4") for of in both]
            rows.append(f"| {row['recipe']} | {' | '.join(cells)} |")
    return rows


def seeds(studies):
    """A row an arm: the loss of each seed at the largest budget."""
    rows = ["| arm | loss of each seed at the largest budget, nats |", "|---|---|"]
    for study in studies:
        losses = {}
        for run in study.results["runs"]:
            losses.setdefault(run["arm"], []).append(f"{run['points'][-1]['validation_loss']:.3f}")
        rows += [f"| {arm} | {', '.join(losses[arm])} |" for arm in study.results["study"]["arm_order"]]
    return rows


KINDS = {"overview": overview, "ratios": ratios, "criteria": criteria, "missed": missed,
         "rates": rates,
         "atlas": atlas, "gaps": gaps, "seeds": seeds, "surface": surface,
         "surfacegaps": surfacegaps, "law": law, "buys": buys, "league": leaguetable, "leaguerest": leaguerest,
         "leagueplans": leagueplans, "leaguenoise": leaguenoise, "leaguepairs": leaguepairs,
         "leaguesizes": leaguesizes}
PART = re.compile(r"(<!-- table (\w+) ([\w .-]+?) -->\n).*?(<!-- end of table -->)", re.DOTALL)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 on a difference")
    options = parser.parse_args()
    differs = False
    for page in PAGES:
        text = page.read_text()
        new = PART.sub(lambda m: m[1] + "\n".join(KINDS[m[2]](list(map(Study, m[3].split())))) + "\n"
                       + m[4], text)
        if new == text:
            continue
        if options.check:
            print(f"{page} differs from its data; run python3 studies/results/tables.py")
            differs = True
        else:
            page.write_text(new)
    sys.exit(differs)


if __name__ == "__main__":
    main()
