"""Numbers of sentences about the losses of single studies, for prose_numbers.py."""
import functools
import math
import statistics

import widths
from significance import student_quantile
from null_tables import losses_at_the_end
from study_tables import Study


@functools.cache
def study(name):
    return Study(name)


def listed(texts):
    """"a, b and c"."""
    return ", ".join(texts[:-1]) + " and " * (len(texts) > 1) + texts[-1]


def budgets_between(name, first, last):
    """A study's budgets from so many to so many million tokens; all without them."""
    return [t for t in study(name).analysis["budgets"] if first <= t / 1e6 <= last]


def gaps_between(name, arm, first, last):
    return [study(name).gap(arm, t)["mean"] for t in budgets_between(name, first, last)]


def all_gaps(name, arm):
    """The mean gaps of an arm to its study's reference, nats, one per budget."""
    return listed([f"{gap:+.4f}" for gap in gaps_between(name, arm, 0, math.inf)])


def gap_range(name, arm, first=0, last=math.inf):
    """The smallest and the largest mean gap of an arm over budgets of so many to so many million tokens, nats; one
    number where they round to the same."""
    gaps = gaps_between(name, arm, first, last)
    ends = list(dict.fromkeys(f"{end:.3f}" for end in (min(gaps), max(gaps))))
    return " to ".join(ends)


def gaps_rounded(name, arm, first=0, last=math.inf):
    """The mean gaps of an arm at budgets of so many to so many million tokens, nats, three digits."""
    return listed([f"{gap:.3f}" for gap in gaps_between(name, arm, first, last)])


def gap_ratio_range(name, arm, base, first=0, last=math.inf):
    """The smallest and the largest ratio of two arms' mean gaps over budgets of so many to so many million tokens."""
    ratios = [a / b for a, b in zip(*(gaps_between(name, x, first, last) for x in (arm, base)), strict=True)]
    return " to ".join(dict.fromkeys(f"{end:.1f}" for end in (min(ratios), max(ratios))))


def farthest(name, arm, base, first=0, last=math.inf):
    """By how much an arm's mean loss lies from another's, at most, over budgets of so many to so many million tokens,
    nats."""
    pairs = zip(*(gaps_between(name, x, first, last) for x in (arm, base)), strict=True)
    return f"{max(abs(a - b) for a, b in pairs):.4f}"


def gap_percents(name, arm):
    """The mean gaps of an arm in % of its reference's loss, one per budget."""
    return listed([f"{100 * study(name).gap(arm, t)['relative']:.1f}" for t in study(name).analysis["budgets"]]) + " %"


def gap_share(name, arm, of_name, of_arm):
    """An arm's mean gap at the largest budget over that of another study's arm at its own."""
    return f"{study(name).gap(arm)['mean'] / study(of_name).gap(of_arm)['mean']:.2f}"


def standard_errors(name, arm, tokens=None):
    """An arm's mean gap in standard errors of its seeds, at the largest budget or at one of so many tokens."""
    gap = study(name).gap(arm, tokens)
    return f"{abs(gap['mean']) / (gap['sd'] / math.sqrt(gap['count'])):.1f}"


def gap_half_width(name, arm, tokens=None):
    """Half of an arm's interval over seeds, nats, at the largest budget or at one of so many tokens."""
    low, high = study(name).gap(arm, tokens)["interval_t"]
    return f"{(high - low) / 2:.4f}"


def gaps_of_seeds(name, arm):
    """An arm's gap at the largest budget, nats, seed by seed."""
    last, of = losses_at_the_end(study(name)), study(name).results["study"]
    reference = of["analysis"]["reference"]
    return listed([f"{last[arm, seed] - last[reference, seed]:.3f}" for seed in of["seeds"]])


def gap_of_seeds_range(name, arm):
    """The smallest and the largest gap of an arm's seeds at the largest budget, nats."""
    last, of = losses_at_the_end(study(name)), study(name).results["study"]
    gaps = [last[arm, seed] - last[of["analysis"]["reference"], seed] for seed in of["seeds"]]
    return f"{min(gaps):.3f} to {max(gaps):.3f}"


@functools.cache
def losses(name):
    """{(arm, seed, tokens): loss} of a study."""
    return {(run["arm"], run["seed"], p["tokens"]): p["validation_loss"]
            for run in study(name).results["runs"] for p in run["points"]}


def seeds_differ(name, arm, high, low, million):
    """By how much one seed's loss lies above another's at the budget nearest to so many million tokens, nats."""
    tokens = min(study(name).analysis["budgets"], key=lambda t: abs(t / 1e6 - million))
    return f"{losses(name)[arm, high, tokens] - losses(name)[arm, low, tokens]:.3f}"


def seed_difference(name, arm, base, seed):
    """The loss of one seed of an arm less that of another arm at the largest budget, nats."""
    last = losses_at_the_end(study(name))
    return f"{last[arm, seed] - last[base, seed]:.4f}"


def seed_percent(name, arm, base, seed):
    """The same in % of the other's loss."""
    last = losses_at_the_end(study(name))
    return f"{100 * (last[arm, seed] / last[base, seed] - 1):.1f} %"


def shared_losses(names, others, arm=None):
    """{(arm, seed, tokens): (loss, loss)} of runs that two studies share."""
    return {key: (loss, losses(other)[key]) for name, other in zip(names, others, strict=True)
            for key, loss in losses(name).items() if key in losses(other) and arm in (None, key[0])}


def shared_count(name, other, arm=None):
    """How many losses two studies share, by arm, seed and budget."""
    return str(len(shared_losses([name], [other], arm)))


def shared_differ(name, other, arm=None):
    """The least and the most by which the losses differ that two studies share, nats."""
    found = [abs(a - b) for a, b in shared_losses([name], [other], arm).values()]
    return f"{min(found):.4f} to {max(found):.4f}"


def shared_mean(name, other, arm):
    """By how much an arm's shared losses lie lower in the second study, in the mean, nats."""
    return f"{statistics.mean(a - b for a, b in shared_losses([name], [other], arm).values()):.4f}"


def seeds_apart(name, arm, base):
    """The least and the most by which two arms of a study differ at the largest budget over its seeds, nats."""
    last = losses_at_the_end(study(name))
    found = [abs(last[arm, s] - last[base, s]) for s in study(name).results["study"]["seeds"]]
    return f"{min(found):.4f} to {max(found):.4f}"


def losses_of_rate(name, rate):
    """{(arm, seed, tokens): loss} of a sweep's runs at a learning rate."""
    return {(arm.removesuffix(f"+lr{rate}"), *rest): loss for (arm, *rest), loss in losses(name).items()
            if arm.endswith(f"+lr{rate}")}


def equal_in_sweep(name, sweep, rate):
    """How many losses a study shares with a sweep's at a rate; an error unless all are equal to the last bit."""
    of_rate = losses_of_rate(sweep, rate)
    shared = losses(name).keys() & of_rate.keys()
    assert all(losses(name)[key] == of_rate[key] for key in shared), f"{name} and {sweep} differ at {rate}"
    return str(len(shared))


def best_rate(name, arm):
    """The learning rate of a sweep at which an arm's mean loss at the largest budget is the smallest."""
    rates, last = study(name).results["study"]["sweep"]["learning_rate"], losses_at_the_end(study(name))
    return f"""{min(rates, key=lambda rate: statistics.mean(
        loss for (own, _), loss in last.items() if own == f"{arm}+lr{rate:g}")):g}"""


def spread_of_gaps(name, *arms):
    """By how much the mean gaps of arms lie apart at most, at the largest budget, nats."""
    gaps = [study(name).gap(arm)["mean"] for arm in arms]
    return f"{max(gaps) - min(gaps):.4f}"


def farthest_of(name, base, *arms):
    """By how much the loss of any of these arms lies from another's at the largest budget, at most, nats."""
    gaps = [study(name).gap(arm)["mean"] - study(name).gap(base)["mean"] for arm in arms]
    return f"{max(map(abs, gaps)):.4f}"


def paired_half_width(name, base, *arms):
    """The largest half-width of the intervals of these arms' losses less another's at the largest budget, nats."""
    last, seeds = losses_at_the_end(study(name)), study(name).results["study"]["seeds"]
    deviation = max(statistics.stdev(last[arm, s] - last[base, s] for s in seeds) for arm in arms)
    return f"{student_quantile(0.975, len(seeds) - 1) * deviation / math.sqrt(len(seeds)):.3f}"


def other_estimator(name, estimator, form, place):
    """The contrast's token ratio by an estimator in a form, at a place in tokens per parameter."""
    of = study(name)
    tokens = min(of.analysis["budgets"], key=lambda t: abs(t / of.results["model"]["block_parameters"] - float(place)))
    return f"{of.ratio(tokens, estimator, form)['ratio']:.2f}"


def widest(names, form=None):
    """The largest half-width of ln r among the crossings that a study's own seeds identify."""
    found = [widths.half_width(*r["interval_t"]) for name in names for r in study(name).analysis["token_ratios"]
             if (r["estimator"], r["precision"]) == ("crossing", "training") and r["identified"] and r["interval_t"]
             and not r["extrapolated"] and form in (None, r["form"])
             and [r["format"], r["reference"]] == study(name).results["study"]["analysis"]["contrast"]]
    return max(found)


def widest_of_own_seeds(*names):
    """The same over studies, without the seeds that joined them later."""
    return f"{widest(names):.2f}"


def deviation_of_seed(name, arm, million):
    """The standard deviation of a seed by an arm's gaps at the budget nearest to so many million tokens: that of the
    gaps over the root of 2, nats."""
    tokens = min(study(name).analysis["budgets"], key=lambda t: abs(t / 1e6 - million))
    return f"{study(name).gap(arm, tokens)['sd'] / math.sqrt(2):.4f}"


def sqnr_range(name, arm):
    """The smallest and the largest SQNR of an arm's operands over all runs, dB."""
    found = [t["sqnr_db"] for run in study(name).results["runs"] if run["arm"] == arm for t in run["tensors"]]
    return f"{min(found):.1f} to {max(found):.1f}"


def underflows(name, arm):
    return [t["underflow_percent"] for run in study(name).results["runs"] if run["arm"] == arm for t in run["tensors"]]


def few_underflow(name, arm, most):
    """In how many of an arm's operands, over all runs, at most so many % of the elements underflow."""
    found = underflows(name, arm)
    return f"{sum(u <= float(most) for u in found)} of the arm's {len(found)}"


def most_underflow(name, arm):
    """The largest share of elements that underflow in an operand of an arm, %."""
    return f"{max(underflows(name, arm)):.1f} %"


def steps_of_run(name):
    """The steps of a study's longest branch."""
    return f"{max(p['steps'] for run in study(name).results['runs'] for p in run['points']):,}"


def run_count(*names):
    """The runs of these studies."""
    return str(sum(len(study(name).results["runs"]) for name in names))


def limits(parameters):
    """The safe rates' records of the sweep's models of so many block parameters, without the reference's."""
    found = next(a for _, a in study("stability-map").views
                 if "safe_rates" in a and a["block_parameters"] == parameters)
    return found["safe_rates"]["arms"][1:]


def limit_range(parameters, without=""):
    """Where the intervals of the recipes' limits over BF16's begin and end, one recipe left out by its name."""
    found = [arm["interval"] for arm in limits(parameters) if not without or not arm["arm"].startswith(without)]
    return f"{min(low for low, _ in found):.2f} to {max(high for _, high in found):.2f}"


FUNCTIONS = (
    all_gaps, gap_range, gaps_rounded, gap_ratio_range, farthest, gap_percents, gap_share, standard_errors,
    gap_half_width, gaps_of_seeds, gap_of_seeds_range, seeds_differ, seed_difference, seed_percent,
    shared_count, shared_differ, shared_mean, seeds_apart, equal_in_sweep, best_rate, spread_of_gaps, farthest_of,
    paired_half_width, other_estimator, widest_of_own_seeds, deviation_of_seed, sqnr_range, few_underflow,
    most_underflow, steps_of_run, run_count, limit_range)
