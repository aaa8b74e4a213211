"""What `fp4lab study differences` prints of published studies, and its tables, for tables.py."""
import functools
import json
import sys

from study_tables import HERE


@functools.cache
def document(name):
    """The list of `fp4lab study differences studies/several/NAME.json --json`, published as NAME.json beside this file."""
    printed = json.loads((HERE / f"{name}.json").read_text())
    for source in printed["sources"]:
        if source["sha256_of_results"] != json.loads((HERE / source["name"] / "results.json").read_text())["sha256"]:
            sys.exit(f"{name}.json is not of {source['name']}: run `fp4lab study differences studies/several/{name}.json "
                     f"--json > studies/results/{name}.json`")
    return printed["differences"]


def difference(name, arm, base, is_less=False, tokens=None):
    """The record of loss(arm) - loss(base); `is_less`: that less another difference; `tokens`: at this budget."""
    asked = arm, base, is_less, tokens
    return next(d for d in document(name) if (d["arm"], d["base"], "against" in d, d.get("tokens")) == asked)


def with_interval(record):
    low, high = record["interval_with_text"]
    return f"{record['mean']:+.4f} [{low:+.4f}, {high:+.4f}]"


def gap(name, arm, base, tokens=None):
    """A gap in nats with its interval, at the largest budget or at one of so many tokens."""
    return with_interval(difference(name, arm, base, tokens=tokens and int(tokens)))


def verdict(record):
    """Of a margin, with the smallest that such data show."""
    text = record["verdict"].replace("beyond the margin", "**beyond the margin**")
    return f"{text} ({record['shown_margin']:.4f})"


FORMATS = {"te_mxfp8": "te_mxfp8", "te_nvfp4": "te_nvfp4", "nvfp4_mlp": "maxtext_te_nvfp4_mlp", "mxfp4": "mxfp4"}
MODELS = {"qwen": "grouped queries, QK-norm", "windows": "windows, no rotary positions", "moe8": "8 experts, 2 for a token",
          "moe32": "32 experts, 2 for a token", "muon": "dense, under Muon"}
# Its pattern names the parts of a dense MLP, so in a model of experts it quantizes nothing.
WITHOUT_EXPERTS = "nvfp4_mlp"


def verdicts(asked):
    """How many margins of the models' gaps have a verdict; of all: any."""
    found = [difference("architectures", f"{model}-{arm}", f"{model}-bf16", is_less=True)["verdict"]
             for model in MODELS for arm in FORMATS if not (model.startswith("moe") and arm == WITHOUT_EXPERTS)]
    return str(sum(verdict.replace(" ", "-") == asked or asked == "any" for verdict in found))


def architectures(studies):
    """Gaps of each model, and what is left of them after the dense model's."""
    name = "architectures"
    lines = ["| model | format | above its BF16, nats | less the dense model's gap | verdict, margin 0.01 (shown) |", "|---|---|---|---|---|"]
    lines += [f"| dense | {called} | {gap(name, 'dense-' + arm, 'dense-bf16')} |  |  |" for arm, called in FORMATS.items()]
    for model, text in MODELS.items():
        for arm, called in FORMATS.items():
            if model.startswith("moe") and arm == WITHOUT_EXPERTS:
                continue
            less = difference(name, f"{model}-{arm}", f"{model}-bf16", is_less=True)
            lines.append(f"| {text} | {called} | {gap(name, f'{model}-{arm}', f'{model}-bf16')} | {with_interval(less)} | {verdict(less)} |")
    return lines


GAINS = 1, 16, 64, 256


def dose(studies):
    """Gaps by the gain of the planted outliers."""
    arms = "te_mxfp8", "te_nvfp4", "mxfp4"
    lines = ["| gain | " + " | ".join(f"{arm} above BF16, nats" for arm in arms) + " |", "|---|" + "---|" * len(arms)]
    for gain in GAINS:
        cells = (gap("outliers", f"g{gain}-{arm}", f"g{gain}-bf16") for arm in arms)
        lines.append(f"| {gain} | " + " | ".join(cells) + " |")
    return lines


def without(studies):
    """te_nvfp4 without one of its parts, by gain."""
    lines = ["| gain | without the transform, nats | verdict, margin 0.01 (shown) | without stochastic rounding, nats | verdict, margin 0.01 (shown) |",
             "|---|---|---|---|---|"]
    for gain in GAINS:
        cells = []
        for part in "rht", "sr":
            record = difference("outliers", f"g{gain}-te_nvfp4_no_{part}", f"g{gain}-te_nvfp4")
            cells += [with_interval(record), verdict(record)]
        lines.append(f"| {gain} | " + " | ".join(cells) + " |")
    return lines


def horizon(studies):
    """te_nvfp4 without one of its parts, by budget."""
    lines = ["| bytes per parameter | without the transform, nats | without stochastic rounding, nats |", "|---|---|---|"]
    for study in studies:
        for tokens in study.analysis["budgets"]:
            cells = (gap("horizon", f"te_nvfp4_no_{part}", "te_nvfp4", tokens) for part in ("rht", "sr"))
            lines.append(f"| {tokens / study.analysis['block_parameters']:.0f} | " + " | ".join(cells) + " |")
    return lines


def plans(studies):
    """What each recipe of figure 6's study costs."""
    rows = ["| recipe | blocks in BF16 | above BF16, nats per byte |", "|---|---|---|"]
    for arm in ("nvidia_nvfp4_8b", "te_nvfp4", "nvidia_mxfp4_8b", "mxfp4"):
        blocks = "the last of 6" if arm.startswith("nvidia") else "none"
        rows.append(f"| {arm} | {blocks} | {gap('figure6', arm, 'bf16')} |")
    return rows


KINDS = {"architectures": architectures, "dose": dose, "without": without, "horizon": horizon, "plans": plans}
