"""How often the intervals of null arms hold 0, for tables.py. A null arm is named so by its study: the reference with one
weight moved by one ulp, or without rounding. A place is a budget with at least two differences of seeds and an interval."""
import functools
import math
import statistics

import significance
from study_tables import HERE, Study, gap_text

CONFIDENCE = 0.95


def places_of(study):
    """[(budget, {seed: difference of losses}, gap)] of a study's null arms, at each learning rate of its own."""
    of, found = study.results["study"], []
    losses = {(run["arm"], p["tokens"], run["seed"]): p["validation_loss"]
              for run in study.results["runs"] for p in run["points"]}
    for label, view in study.views:
        for arm in of["analysis"]["null_arms"]:
            for gap in view["gaps"]:
                if (gap["arm"], gap["precision"]) != (arm, "training") or not gap["interval_t"]:
                    continue
                rate = "+lr" + label.removeprefix("rate ") if label else ""
                if (arm + rate, gap["tokens"], of["seeds"][0]) not in losses:
                    continue  # each arm's best rate: runs of other views
                differences = {s: losses[arm + rate, gap["tokens"], s] - losses[gap["reference"] + rate, gap["tokens"], s]
                               for s in of["seeds"]}
                found.append((gap["tokens"], differences, gap))
    return found


@functools.cache
def series():
    """[(studies, places)]: the null arms of all results, with runs that several studies share counted once."""
    found = []
    for path in sorted(HERE.glob("*/results.json"), key=lambda p: p.parent.name):
        study = Study(path.parent.name)
        places = places_of(study) if study.results["study"]["analysis"].get("null_arms") else []
        if places:
            found.append(([study], places))
    found.sort(key=lambda s: (-len(s[1]), -len(s[1][0][1])))  # the longest first, then those that repeat a part of it
    kept = []
    for studies, places in found:
        known = [own for own in kept if all(any(is_part(p, q) for q in own[1]) for p in places)]
        if known:
            known[0][0].extend(studies)
        else:
            kept.append((studies, places))
    return sorted(kept, key=lambda s: s[0][0].results["name"])


def is_part(place, of):
    """Whether the runs of a place are among those of another."""
    return place[0] == of[0] and place[1].items() <= of[1].items()


def holds(gap):
    low, high = gap["interval_t"]
    return low <= 0 <= high


def nulls(studies):
    """A row per series of runs: its places, and those at which the interval leaves 0 out."""
    rows = ["| runs | block parameters | seeds | places | interval holds 0 | leaves 0 out |", "|---" * 6 + "|"]
    for own, places in series():
        inside = sum(holds(gap) for _, _, gap in places)
        out = ["{:+.4f} [{:+.4f}, {:+.4f}] at {:.1f}M tokens".format(gap["mean"], *gap["interval_t"], tokens / 1e6)
               for tokens, _, gap in places if not holds(gap)]
        shared = f", shared with {len(own) - 1} more studies" if len(own) > 2 else ""
        shared = f", shared with {own[1].results['name']}" if len(own) == 2 else shared
        size = own[0].results["model"]["block_parameters"]
        rows.append(f"| {own[0].results['name']}{shared} | {own[0].size() if size >= 1e5 else f'{size / 1e3:.0f}k'} | {len(places[0][1])} | {len(places)} "
                    f"| {inside} | {'<br>'.join(out)} |")
    gaps = all_gaps()
    rows.append(f"| all | | | {len(gaps)} | {sum(map(holds, gaps))} ({100 * sum(map(holds, gaps)) / len(gaps):.0f} %) | |")
    return rows


def all_gaps():
    return [gap for _, places in series() for _, _, gap in places]


def text(which):
    gaps = all_gaps()
    if which == "inside":
        return f"{sum(map(holds, gaps))} of {len(gaps)}"
    out = (1 - CONFIDENCE) * len(gaps)
    return f"{out:.1f} ± {2 * math.sqrt(out * CONFIDENCE):.1f}"


def losses_at_the_end(study):
    """{(arm, seed): the loss at the largest budget}."""
    return {(run["arm"], run["seed"]): run["points"][-1]["validation_loss"] for run in study.results["runs"]}


def difference(study, arm, base):
    """"+0.0126 [+0.0044, +0.0208]": the loss of an arm less another's at the largest budget, over paired seeds."""
    last = losses_at_the_end(study)
    paired = [last[arm, seed] - last[base, seed] for seed in study.results["study"]["seeds"]]
    mean = statistics.mean(paired)
    half = (significance.student_quantile((1 + CONFIDENCE) / 2, len(paired) - 1) * statistics.stdev(paired)
            / math.sqrt(len(paired)))
    return f"{mean:+.4f} [{mean - half:+.4f}, {mean + half:+.4f}]"


def againstnull(studies):
    """A row an arm: its gap at every budget, that of each seed at the largest, and its loss there less the null arm's."""
    study = studies[0]
    of = study.results["study"]
    reference, (null,) = of["analysis"]["reference"], of["analysis"]["null_arms"]
    last, budgets = losses_at_the_end(study), study.analysis["budgets"]
    rows = [f"| arm | {' | '.join(f'above {reference} at {t / 1e6:.2f} MB' for t in budgets)} | the seeds, at the last "
            "| above the null arm, at the last |", "|---" * (3 + len(budgets)) + "|"]
    for arm in of["arm_order"]:
        if arm != reference:
            seeds = " ".join(f"{last[arm, s] - last[reference, s]:+.3f}" for s in of["seeds"])
            rows.append(f"| {arm}{' (null)' * (arm == null)} | {' | '.join(gap_text(study, arm, None, t) for t in budgets)} "
                        f"| {seeds} | {difference(study, arm, null) if arm != null else ''} |")
    return rows


KINDS = {"nulls": nulls, "againstnull": againstnull}
