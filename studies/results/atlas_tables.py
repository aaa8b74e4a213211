"""Tables of the atlas: what was tested, and whether the claim holds as it is quoted, for tables.py."""
import math

from study_tables import short_name, verdict

T95 = {5: 2.776445105}  # Student's quantile of 95 % by the number of seeds


def paired(study, arm, base):
    """The arm's losses less the base's at the largest budget, a seed each."""
    losses = {a: {run["seed"]: run["points"][-1]["validation_loss"] for run in study.results["runs"] if run["arm"] == a}
              for a in (arm, base)}
    return [losses[arm][s] - losses[base][s] for s in study.results["study"]["seeds"]]


def moments(x, y):
    """Means of paired values, and the covariance matrix of these means."""
    n = len(x)
    means = sum(x) / n, sum(y) / n
    rest = [[v - m for v in values] for values, m in zip((x, y), means)]
    return means, [[sum(a * b for a, b in zip(p, q)) / (n - 1) / n for q in rest] for p in rest]


def t_text(values):
    (mean, _), ((variance, _), _) = moments(values, values)
    half = T95[len(values)] * math.sqrt(variance)
    return mean, (mean - half, mean + half)


def share(part, whole):
    """mean(part) / mean(whole) of paired values, with Fieller's 95 % interval."""
    (p, w), ((pp, pw), (_, ww)) = moments(part, whole)
    t = T95[len(part)] ** 2
    a, b, c = w * w - t * ww, p * w - t * pw, p * p - t * pp
    root = math.sqrt(b * b - a * c)
    return p / w, ((b - root) / a, (b + root) / a)


def percent(number):
    value, (low, high) = number
    return f"{100 * value:.0f} % [{100 * low:.0f}, {100 * high:.0f}]"


def first_block(study, arm):
    """"the first do not": whether BF16 in the first block recovers something."""
    recovered = paired(study, arm, arm + "-first1")
    mean, (low, high) = t_text(recovered)
    status = "**not reproduced**" if low > 0 else "not identified"
    return status, (f"BF16 in the first block recovers {mean:+.4f} [{low:.4f}, {high:.4f}], "
                    f"{percent(share(recovered, paired(study, arm, 'bf16')))} of the gap")


def most(study, arm):
    """"most of the gap": whether the share that `arm` closes is above a half."""
    closed = share(paired(study, "nvfp4", arm), paired(study, "nvfp4", "bf16"))
    low, high = closed[1]
    status = "reproduced" if low > 0.5 else "**not reproduced**" if high < 0.5 else "**not identified**"
    return status, f"{arm} closes {percent(closed)} of the gap"


def divergence(study, arm):
    runs = [run for run in study.results["runs"] if run["arm"] == arm]
    lost = sum(run["status"] == "diverged" for run in runs)
    return "reproduced" if lost else "**not reproduced**", f"{lost} of {len(runs)} runs diverged; the loss is higher"


def size_of(study, arm, base, published):
    mean, (low, high) = t_text(paired(study, arm, base))
    inside = low <= published <= high
    below, _ = t_text(paired(study, base, "bf16"))
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


def atlas(studies):
    """A row a claim, with its source, what was tested of it, the verdict on that, and on the claim as it is quoted."""
    rows = ["| study | published claim | source | tested | verdict on that | on the claim as quoted | numbers |",
            "|---" * 7 + "|"]
    for study, label, c, what, quoted in judged(studies):
        link = f"[{short_name(study)}]({short_name(study)}.json)"
        status, numbers = quoted or ("the same", "")
        rows.append(f"| {link}{', ' * bool(label)}{label} | {c.get('claim', c['statement'])} | {c['source']} "
                    f"| {what} | {verdict(c)} | {status} | {c['numbers']}{'; ' * bool(numbers)}{numbers} |")
    return rows


def atlascounts(studies):
    """How many claims have which verdict."""
    found = list(judged(studies))
    count = {s: [q for *_, c, _, q in found if c["status"] == s]
             for s in ("reproduced", "not identified", "not reproduced")}
    less = [q for q in count["reproduced"] if q and q[0] != "reproduced"]  # of the claim as quoted
    return ["| verdict on what was tested | claims |", "|---|---|",
            f"| reproduced | {len(count['reproduced'])}, of which {len(less)} are not reproduced as quoted |",
            f"| not identified | {len(count['not identified'])} |",
            f"| not reproduced | {len(count['not reproduced'])} |"]


KINDS = {"atlas": atlas, "atlascounts": atlascounts}
