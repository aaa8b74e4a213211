"""Tables of studies/trained: what each operand of a trained model costs, for tables.py."""
import functools
import json
import statistics

from study_tables import HERE, with_interval

KIND_NAMES = {"fprop.input": "fprop's input", "fprop.weight": "fprop's weight", "dgrad.grad": "dgrad's gradient",
              "dgrad.weight": "dgrad's weight", "wgrad.grad": "wgrad's gradient", "wgrad.input": "wgrad's input"}


@functools.cache
def document():
    """What studies/trained/shares.py wrote."""
    return json.loads((HERE / "trained-smollm2/shares.json").read_text())


def share_text(share, key, digits=3):
    return with_interval({"mean": share[key], "interval": share[key + "_interval"]}, digits, "+")


def adds(answer):
    return with_interval({"mean": answer["difference"], "interval": answer["difference_interval"]}, 3, "+")


def shares_of(answer):
    return {share["player"]: share for share in answer["shares"]}


def head_of(first, recipes):
    """The head of a table with two columns a recipe."""
    return ["| " + first + " | " + " | ".join(f"{r}: alone | {r}: left in BF16, saves" for r in recipes) + " |",
            "|---" * (1 + 2 * len(recipes)) + "|"]


def whole(studies):
    """A row a recipe: what it adds to the loss, and the shares of weights and inputs."""
    rows = ["| recipe | adds, nats per token | by the weights | by the inputs |", "|---|---|---|---|"]
    for recipe, answer in document()["questions"]["operands"].items():
        of = shares_of(answer)
        rows.append(f"| {recipe} | {adds(answer)} "
                    f"| {share_text(of['fprop.weight'], 'shapley')} | {share_text(of['fprop.input'], 'shapley')} |")
    return rows


def by_linear(studies):
    """A row a linear, all blocks together: what it adds alone, and what it saves if it alone stays in BF16."""
    answers = document()["questions"]["linears"]
    recipes = [recipe for recipe in answers if "fp4" in recipe]
    rows = head_of("linear, in all blocks", recipes)
    of = {recipe: shares_of(answers[recipe]) for recipe in recipes}
    for linear in sorted(of[recipes[0]], key=lambda name: -of[recipes[0]][name]["leave_one_in"]):
        cells = [share_text(of[r][linear], key, 2) for r in recipes for key in ("leave_one_in", "leave_one_out")]
        rows.append(f"| {linear} | {' | '.join(cells)} |")
    return rows


def by_gradient(studies):
    """A row an operand: the relative error of the gradient by it alone, and what is saved without it."""
    answers = document()["questions"]["gradients"]
    rows = head_of("operand, in all linears", answers)
    for kind, name in KIND_NAMES.items():
        cells = [share_text(shares_of(a)[kind], key, 2) for a in answers.values() for key in ("leave_one_in", "leave_one_out")]
        rows.append(f"| {name} | {' | '.join(cells)} |")
    return rows


def by_block(studies, shown=5):
    """The costliest blocks of each recipe, by what they add alone."""
    answers = document()["questions"]["blocks"]
    rows = ["| " + " | ".join(f"{r}: block | alone" for r in answers) + " |", "|---" * (2 * len(answers)) + "|"]
    for place in range(shown):
        cells = [(a["shares"][place]["player"], share_text(a["shares"][place], "leave_one_in")) for a in answers.values()]
        rows.append("| " + " | ".join(f"{player} | {text}" for player, text in cells) + " |")
    return rows


def spikes(studies):
    """A row an operand of each linear: kurtosis and crest factor, in the median block and the worst."""
    rows = ["| operand | kurtosis, median block | kurtosis, worst block | crest factor, median | crest factor, worst | worst block |",
            "|---|---|---|---|---|---|"]
    observed = document()["observed"]
    named = [name for name in observed if name.endswith(("fprop.input", "dgrad.grad", "fprop.weight"))]
    for name in sorted(named, key=lambda name: -max(observed[name]["kurtosis"]))[:8]:
        kurtosis, crest = observed[name]["kurtosis"], observed[name]["crest_factor"]
        rows.append(f"| {name} | {statistics.median(kurtosis):,.0f} | {max(kurtosis):,.0f} | {statistics.median(crest):.0f} "
                    f"| {max(crest):.0f} | {kurtosis.index(max(kurtosis))} |")
    return rows


KINDS = {"trainedwhole": whole, "trainedlinears": by_linear, "trainedgradients": by_gradient, "trainedblocks": by_block,
         "trainedspikes": spikes}
