"""Tables of a study's own results, for tables.py."""
import json
import pathlib
import re
import sys

import widths

HERE = pathlib.Path(__file__).resolve().parent


class Study:
    """A study's results. `views` are its analyses with their labels: one, one per model, or in a sweep of learning rates all arms at
    the reference's best rate, each arm at its own best, and all arms at each other rate."""

    def __init__(self, name):
        path = HERE / name / "results.json"
        if not path.exists():
            sys.exit(f"{name}: there is no {path}; name a folder of studies/results")
        self.results = json.loads(path.read_text())
        self.analysis = self.results["analysis"]
        self.views = [("", self.analysis)]
        if isinstance(self.analysis, list) and "sweep" not in self.results["study"]:  # of several models
            self.views = list(zip(self.results["study"]["analysis"]["reference"], self.analysis, strict=True))
        elif isinstance(self.analysis, list):
            self.views = list(zip(self.labels_of_rates(), self.analysis, strict=True))

    def labels_of_rates(self):
        study = self.results["study"]
        references, primary = study["analysis"]["reference"], study["analysis"]["primary_tokens"]
        rates = study["sweep"]["learning_rate"]

        def loss(reference, rate):
            return sum(p["validation_loss"] for run in self.results["runs"] for p in run["points"]
                       if (run["arm"], p["tokens"]) == (f"{reference}+lr{rate:g}", primary))

        labels = []
        for reference in references if isinstance(references, list) else [references]:  # one per model
            shared = min(rates, key=lambda rate: loss(reference, rate))
            labels += [f"rate {shared:g}", "each arm's best rate"] + [f"rate {r:g}" for r in rates if r != shared]
        return labels

    def size(self):
        millions = self.results["model"]["block_parameters"] / 1e6
        return f"{millions:.{1 if millions < 10 else 0}f}M"

    def gap(self, arm, tokens=None, view=None):
        """Of an arm to the study's reference at a budget, the largest if none is named."""
        view = view or self.analysis
        reference = self.results["study"]["analysis"]["reference"]
        return next(g for g in view["gaps"] if g["precision"] == "training"
                    and (g["tokens"], g["arm"], g["reference"]) == (tokens or view["budgets"][-1], arm, reference))

    def ratio(self, tokens, estimator, form, view=None, pair=None):
        """Of the study's contrast, unless a pair is named."""
        pair = pair or self.results["study"]["analysis"]["contrast"]
        return next(r for r in (view or self.analysis)["token_ratios"]
                    if r["precision"] == "training" and [r["format"], r["reference"]] == pair
                    and (r["tokens"], r["estimator"], r["form"]) == (tokens, estimator, form))


def each_text(x):
    """Bytes or tokens per parameter."""
    return f"{x:.{1 if x < 10 else 0}f}"


def per_parameter(ratio):
    return each_text(ratio["tokens_per_parameter"])


def ratio_text(ratio):
    """"1.36 [1.21, 1.52]", with " *wide*" where that claims no ratio, " *e*" if a seed is extrapolated and " *?*" if
    estimators part."""
    if not ratio["identified"]:
        return ""
    text = f"{ratio['ratio']:.2f}"
    if ratio["interval_t"]:
        text += " [{:.2f}, {:.2f}]".format(*ratio["interval_t"]) + widths.mark(ratio["interval_t"])
    return text + (" *e*" if ratio["extrapolated"] else "") + (" *?*" if ratio["disagreement"] else "")


def inside_text(ratio):
    """As ratio_text; "not identified" beyond the budgets."""
    return ratio_text(ratio) if ratio["identified"] and not ratio["extrapolated"] else "not identified"


def ratios(studies):
    """A row a budget that any estimator reaches in extend form, with all three."""
    rows = ["| parameters | tokens each | crossing, extend form | power law | shared baseline |",
            "|---|---|---|---|---|"]
    for study in studies:
        for tokens in study.analysis["budgets"]:
            cells = [study.ratio(tokens, estimator, "extend")
                     for estimator in ("crossing", "power_law", "shared_baseline")]
            if any(cell["identified"] for cell in cells):
                rows.append(f"| {study.size()} | {per_parameter(cells[0])} | "
                            + " | ".join(map(ratio_text, cells)) + " |")
    return rows


def ratiosshrink(studies):
    """A row a budget that the crossing reaches in shrink form."""
    rows = ["| parameters | tokens each | crossing, shrink form |", "|---|---|---|"]
    for study in studies:
        for tokens in study.analysis["budgets"]:
            ratio = study.ratio(tokens, "crossing", "shrink")
            if ratio["identified"]:
                rows.append(f"| {study.size()} | {per_parameter(ratio)} | {ratio_text(ratio)} |")
    return rows


def rates(studies):
    """A row a learning rate and budget: the token ratio of the contrast in shrink form, which reaches the largest
    budget, and the gaps of its two arms."""
    arm, base = studies[0].results["study"]["analysis"]["contrast"]
    rows = [f"| learning rate | tokens each | tokens of {arm} / {base}, shrink form | {base} above BF16, nats "
            f"| {arm} above BF16 |", "|---|---|---|---|---|"]
    for study in studies:
        for label, view in study.views:
            for tokens in view["budgets"]:
                found = study.ratio(tokens, "crossing", "shrink", view)
                gaps = [gap_text(study, name, view, tokens) for name in (base, arm)]
                rows.append(f"| {label.removeprefix('rate ')} | {per_parameter(found)} | {inside_text(found)} "
                            f"| {' | '.join(gaps)} |")
    return rows


def ratesextend(studies):
    """A row a learning rate and budget that the extend form reaches: the token ratio of the contrast in it."""
    arm, base = studies[0].results["study"]["analysis"]["contrast"]
    rows = [f"| learning rate | tokens each | tokens of {arm} / {base}, extend form |", "|---|---|---|"]
    for study in studies:
        for label, view in study.views:
            for tokens in view["budgets"]:
                found = study.ratio(tokens, "crossing", "extend", view)
                if found["identified"] and not found["extrapolated"]:
                    rows.append(f"| {label.removeprefix('rate ')} | {per_parameter(found)} | {ratio_text(found)} |")
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
    gap = study.gap(arm, tokens, view)
    interval = gap["interval_t"]
    return f"{gap['mean']:+.4f}" + (" [{:+.4f}, {:+.4f}]".format(*interval) if interval else "")


def short_name(study):
    return study.results["name"].removeprefix("atlas-")


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


def interval_of_text(ends, digits, sign=""):
    """" [+0.0222, +0.0268]" of a bootstrap over the validation text; "" without one."""
    return " [{:{f}}, {:{f}}]".format(*ends, f=f"{sign}.{digits}f") if ends else ""


def versus(studies):
    """A row an arm at the largest budget: its loss, its gap to the study's reference, and its tokens over the
    reference's at equal loss in shrink form. The interval of a gap holds the validation text, that of tokens is a t
    interval over seeds."""
    reference = studies[0].results["study"]["analysis"]["reference"]
    rows = [f"| arm | loss, nats | above {reference}, nats | above it, % | tokens over its, equal loss |",
            "|---|---|---|---|---|"]
    for study in studies:
        tokens = study.analysis["budgets"][-1]
        for arm in study.results["study"]["arm_order"]:
            losses = [p["validation_loss"] for run in study.results["runs"] for p in run["points"]
                      if (run["arm"], p["tokens"]) == (arm, tokens)]
            cells = [arm, f"{sum(losses) / len(losses):.4f}", "", "", ""]
            if arm != reference:
                gap = study.gap(arm, tokens)
                ratio = study.ratio(tokens, "crossing", "shrink", pair=[arm, reference])
                cells[2:] = [f"{gap['mean']:+.4f}" + interval_of_text(gap["interval_bootstrap"], 4, "+"),
                             f"{100 * gap['relative']:+.1f}",
                             f"{ratio['ratio']:.2f}" + interval_of_text(ratio["interval_t"], 2)
                             + widths.mark(ratio["interval_t"])]
            rows.append(f"| {' | '.join(cells)} |")
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


def saferates(studies):
    """A row per arm and size: its best rate, the largest safe rate, the limits of the seeds, and their ratio to those
    of the first arm of that size, the reference."""
    rows = ["| parameters | arm | best rate | largest safe rate | limit, by seed | limit / BF16's |",
            "|---|---|---|---|---|---|"]
    for analysis in (a for _, a in studies[0].views if "safe_rates" in a):
        millions = analysis["block_parameters"] / 1e6
        for arm in analysis["safe_rates"]["arms"]:
            limits = ", ".join("beyond the sweep" if x is None else f"{x:.4f}" for x in arm["limits"])
            relative = "1" if arm is analysis["safe_rates"]["arms"][0] else "not identified"
            if arm["relative"] is not None:
                low, high = arm["interval"]
                relative = f"{arm['relative']:.2f} [{low:.2f}, {high:.2f}]"
            name = arm["arm"].split("-d")[0]  # the width follows
            rows.append(f"| {millions:.1f}M | {name} | {arm['best']:g} | {arm['largest']:g} | {limits} | {relative} |")
    return rows


KINDS = {"ratios": ratios, "ratiosshrink": ratiosshrink, "ratesextend": ratesextend, "criteria": criteria, "missed": missed, "rates": rates, "gaps": gaps, "seeds": seeds,
         "saferates": saferates, "versus": versus}


def with_interval(number, digits, sign="", transform=lambda x: x):
    """A number of an analysis, {"mean", "interval"}, as tables show it."""
    ends = [f"{transform(x):{sign}.{digits}f}" for x in (number["mean"], *(number["interval"] or []))]
    return ends[0] + (f"&nbsp;[{ends[1]},&nbsp;{ends[2]}]" if number["interval"] else "")
