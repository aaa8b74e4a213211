"""Tables of the atlas: what was tested, and whether the claim holds as it is quoted, for tables.py."""
import math
import re
import statistics

from difference_tables import document
from significance import holm_kept, student_above, two_sided
from study_tables import short_name, verdict


def difference(study, arm, base):
    """The record of loss(arm) - loss(base) at the largest budget, paired over seeds."""
    return next(d for d in document("atlas") if (d["study"], d["arm"], d["base"]) == (study.results["name"], arm, base))


def percent(share):
    low, high = share["interval"]
    return f"{100 * share['ratio']:.0f} % [{100 * low:.0f}, {100 * high:.0f}]"


def first_block(study, arm):
    """"the first do not": whether BF16 in the first block recovers something."""
    recovered = difference(study, arm, arm + "-first1")
    mean, (low, high) = recovered["mean"], recovered["interval_with_text"]
    status = "**not reproduced**" if low > 0 else "not identified"
    return status, (f"BF16 in the first block recovers {mean:+.4f} [{low:.4f}, {high:.4f}], "
                    f"{percent(recovered['share'])} of the gap")


def most(study, arm):
    """"most of the gap": whether the share that `arm` closes is above a half."""
    closed = difference(study, "nvfp4", arm)["share"]
    low, high = closed["interval"]
    status = "reproduced" if low > 0.5 else "**not reproduced**" if high < 0.5 else "**not identified**"
    return status, f"{arm} closes {percent(closed)} of the gap"


def divergence(study, arm):
    runs = [run for run in study.results["runs"] if run["arm"] == arm]
    lost = sum(run["status"] == "diverged" for run in runs)
    return "reproduced" if lost else "**not reproduced**", f"{lost} of {len(runs)} runs diverged; the loss is higher"


def size_of(study, arm, base, published):
    of = difference(study, arm, base)
    mean, (low, high) = of["mean"], of["interval_with_text"]
    inside = low <= published <= high
    below = difference(study, base, "bf16")["mean"]
    return "sign only" if inside else "**not reproduced**", (
        f"{mean:+.4f} [{low:.4f}, {high:.4f}] {'holds' if inside else 'leaves out'} {published} and is wide; "
        f"{base} lies {below:+.4f} from BF16")


QUOTED = {  # (study, claim, the arms in order): where the claim says more than the order that was tested
    ("blocks", "nvfp4-last1 < nvfp4-first1"): lambda s: first_block(s, "nvfp4"),
    ("blocks", "mxfp4-last1 < mxfp4-first1"): lambda s: first_block(s, "mxfp4"),
    ("switch", "nvfp4-then-bf16-forward < nvfp4-then-bf16-backward"): lambda s: most(s, "nvfp4-then-bf16-forward"),
    ("switch", "nvfp4-then-bf16 < nvfp4"): lambda s: most(s, "nvfp4-then-bf16"),
    ("rounding", "gradients < activations"): lambda s: divergence(s, "activations"),
    ("rounding", "gradients < weights"): lambda s: divergence(s, "weights"),
    ("maxtext", "fp8-delayed-mlp < nvfp4-mlp"): lambda s: size_of(s, "nvfp4-mlp", "fp8-delayed-mlp", 0.026),
    ("gemms", "fp8 < mxfp4-fprop < mxfp4-fprop-dgrad < mxfp4-all"): lambda _: ("percentages not tested", ""),
    ("gemms", "mxfp4-all-h16 < mxfp4-all"): lambda _: ("percentages not tested", ""),
    ("quantizers", "fouroversix < fouroversix-static6"): lambda _: ("22 % not tested", ""),
    ("tokens", "tokens mxfp4 needs to match nvfp4: ratio within [1.10, 2.50], its t interval excluding 1, from 2.05M "
               "tokens on"): lambda _: ("a range around 1.36, so 1.36 itself not tested", ""),
}


def tested(criterion):
    """What the criterion tests, without the words that all share."""
    return (criterion["statement"].removeprefix("mean losses in the order ")
            .removesuffix(" at the largest budget"))


def judged(studies):
    """(study, label of the rate, criterion, what was tested, its quoted claim's status and numbers or None)."""
    for study in studies:
        for label, view in study.views:
            for c in view["criteria"]:
                if c.get("source"):
                    check = QUOTED.get((short_name(study), tested(c)))
                    yield study, label, c, tested(c), check and check(study)


def losses_at(study, label):
    """{arm: losses by seed} at the largest budget, of a view of a sweep the arms at its rates."""
    budget = max(p["tokens"] for run in study.results["runs"] for p in run["points"])
    losses = {}
    for run in study.results["runs"]:
        for p in run["points"]:
            if p["tokens"] == budget:
                losses.setdefault(run["arm"], {})[run["seed"]] = p["validation_loss"]
    if not label:
        return losses
    at_rate = {}
    for swept, own in losses.items():
        arm, rate = swept.split("+lr")
        best = label == "each arm's best rate"
        if best and (arm not in at_rate or sum(own.values()) < sum(at_rate[arm].values())):
            at_rate[arm] = own
        elif label == f"rate {rate}":
            at_rate[arm] = own
    return at_rate


def p_of_pair(losses, low, high):
    """Of a paired t test."""
    differences = [losses[high][seed] - loss for seed, loss in losses[low].items()]
    error = statistics.stdev(differences) / math.sqrt(len(differences))
    return 2 * student_above(abs(statistics.mean(differences)) / error, len(differences) - 1)


def p_of(study, label, criterion):
    """The p of a verdict: of an order that of its weakest pair; of one that is refuted, that of the strongest pair
    times their number; of growth that of the weakest budget. None: the criterion is no test against 0."""
    if criterion["kind"] == "mean_order":
        losses, arms = losses_at(study, label), tested(criterion).split(" < ")
        found = [p_of_pair(losses, low, high) for low, high in zip(arms, arms[1:])]
        return min(1.0, min(found) * len(found)) if criterion["status"] == "not reproduced" else max(found)
    if criterion["kind"] == "token_ratio_grows":
        seeds = len(study.results["study"]["seeds"])
        logs = [[math.log(float(x)) for x in m] for m in
                re.findall(r"a factor of ([\d.]+) \[([\d.]+), ([\d.]+)\]", criterion["numbers"])]
        return max(two_sided(mean, (high - low) / 2, seeds - 1) for mean, low, high in logs)
    return None


def called(criterion):
    return criterion["status"] in ("reproduced", "not reproduced")


def together(studies):
    """Of each claim of judged(): "kept" or "not kept" among all claims by Holm's method, "" where nothing is called."""
    claims = list(judged(studies))
    p = [p_of(study, label, c) for study, label, c, _, _ in claims]
    kept = iter(holm_kept([x for x in p if x is not None]))
    words = ["no test against 0" if x is None else "kept" if next(kept) else "not kept" for x in p]
    return [word if called(c) else "" for word, (_, _, c, _, _) in zip(words, claims)]


def atlas(studies):
    """A row a claim, with its source, what was tested of it, the verdict on that alone and among all claims, and on the
    claim as it is quoted."""
    rows = ["| study | published claim | source | tested | verdict on that | among all claims (Holm) "
            "| on the claim as quoted | numbers |", "|---" * 8 + "|"]
    for (study, label, c, what, quoted), word in zip(judged(studies), together(studies), strict=True):
        link = f"[{short_name(study)}]({short_name(study)}.json)"
        status, numbers = quoted or ("the same", "")
        rows.append(f"| {link}{', ' * bool(label)}{label} | {c.get('claim', c['statement'])} | {c['source']} "
                    f"| {what} | {verdict(c)} | {word} | {status} | {c['numbers']}{'; ' * bool(numbers)}{numbers} |")
    return rows


def atlascounts(studies):
    """How many claims have which verdict."""
    found = list(judged(studies))
    count = {s: [q for *_, c, _, q in found if c["status"] == s]
             for s in ("reproduced", "not identified", "not reproduced")}
    less = [q for q in count["reproduced"] if q and q[0] != "reproduced"]  # of the claim as quoted
    words = together(studies)
    kept = {s: sum(word == "kept" and c["status"] == s for word, (_, _, c, _, _) in zip(words, found, strict=True))
            for s in count}
    return ["| verdict on what was tested | claims | among all claims (Holm) |", "|---|---|---|",
            f"| reproduced | {len(count['reproduced'])}, of which {len(less)} are not reproduced as quoted "
            f"| {kept['reproduced']} |",
            f"| not identified | {len(count['not identified'])} | |",
            f"| not reproduced | {len(count['not reproduced'])} | {kept['not reproduced']} |"]


KINDS = {"atlas": atlas, "atlascounts": atlascounts}
