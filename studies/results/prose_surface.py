"""Numbers of sentences about surface/surface.json and its laws, for prose_numbers.py."""
import functools
import json
import math
import statistics

import widths
from prose_studies import losses, study
from study_tables import HERE
from surface_tables import registered_sizes, sizes_of_model, surface_parts

MEASURED_25M = ("surface-c-25m", "surface-c-25m-long")


@functools.cache
def law(name):
    """surface/law-NAME.json."""
    return json.loads((HERE / f"surface/law-{name}.json").read_text())


def near(value, place):
    return abs(math.log(value / float(place))) < 0.01


def gap_records(name, place):
    """The record of a study's gaps at a place in bytes per parameter."""
    return next(g for g in surface_parts()[name]["gaps"] if near(g["bytes_per_parameter"], place))


def half_widths(form, *names):
    """The smallest and the largest half-width of ln r of these studies with all their seeds; of both forms: any."""
    found = [widths.half_width(*map(math.exp, r["log_ratio"]["interval_t"])) for name in names
             for r in surface_parts()[name]["ratios"] if form in ("any", r["form"])]
    return f"{min(found):.2f} to {max(found):.2f}"


def widest_half_width(form, *names):
    """The largest of them."""
    return "{:.3f}".format(max(widths.half_width(*map(math.exp, r["log_ratio"]["interval_t"])) for name in names
                               for r in surface_parts()[name]["ratios"] if r["form"] == form))


def seeds_for_width(*names):
    """The fewest and the most seeds that a half-width of 0.08 takes at the places of these studies."""
    found = [r["seeds_that_suffice"] for name in names for r in surface_parts()[name]["ratios"]]
    return f"{min(found)} to {max(found)}"


def null_errors(name):
    """The null arm's gap at the largest budget in standard errors."""
    return f"{abs(surface_parts()[name]['null_gap']['standard_errors']):.1f}"


def null_outside(*names):
    """At how many budgets of these studies the null arm's interval leaves 0 out."""
    gaps = [g for name in names for g in study(name).analysis["gaps"]
            if (g["arm"], g["reference"], g["precision"]) == ("null", "bf16", "training")]
    return f"{sum(not g['interval_t'][0] <= 0 <= g['interval_t'][1] for g in gaps)} of {len(gaps)}"


def surface_gap(name, arm, place, digits=4):
    """An arm's mean gap over all seeds at a place in bytes per parameter, nats."""
    return f"{gap_records(name, place)[arm]['mean']:.{digits}f}"


def surface_gap_ratio(name, place):
    """MXFP4's mean gap over NVFP4's at a place."""
    return f"{gap_records(name, place)['ratio_of_gaps']:.1f}"


def text_widens(name, arm):
    """How many times as wide the validation text makes the interval of an arm's gap, at most over the budgets."""
    found = [(g[arm]["interval_with_text"], g[arm]["interval_t"]) for g in surface_parts()[name]["evaluation"]["gaps"]]
    return f"{max((b - a) / (d - c) for (a, b), (c, d) in found):.1f}"


def most_apart(name, place):
    """The most by which seeds of one arm lie apart at a place or later, nats."""
    return "{:.3f}".format(max(g["apart"] for g in surface_parts()[name]["gaps"]
                               if g["bytes_per_parameter"] > 0.99 * float(place)))


def committed(arm):
    """The interval of the 4.7M law at 64 bytes per parameter before it was widened, nats."""
    low, high = law("4.7m")["arms"][arm]["predictions"][-1]["interval"]
    return f"[{low:.4f}, {high:.4f}]"


def at_4_7m(arm, seeds):
    """[(place of the 4.7M law, measured gap)]; seeds: "own" are those of the study that the law was made for, "all"
    those that joined it, too."""
    found, of = [], study("surface-c-4.7m")
    for p in law("4.7m")["arms"][arm]["predictions"]:
        own = next(g["mean"] for g in of.analysis["gaps"]
                   if (g["arm"], g["reference"], g["precision"]) == (arm, "bf16", "training")
                   and near(g["tokens"] / of.results["model"]["block_parameters"], p["bytes_per_parameter"]))
        every = gap_records("surface-c-4.7m", p["bytes_per_parameter"])[arm]["mean"]
        found.append((p, own if seeds == "own" else every))
    return found


def above_law(arm, seeds="own"):
    """By how much the gaps at 4.7M lie above the law's at its three places, in %."""
    return "{:.0f}, {:.0f} and {:.0f} %".format(*(100 * (gap / p["gap"] - 1) for p, gap in at_4_7m(arm, seeds)))


def outside_law_4_7m(arm, seeds="own"):
    """The places in bytes per parameter at which the gap at 4.7M lies outside the widened interval."""
    places = [f"{p['bytes_per_parameter']:.0f}" for p, gap in at_4_7m(arm, seeds)
              if not p["interval_three_seeds"][0] <= gap <= p["interval_three_seeds"][1]]
    return " and ".join(places) or "none"


def of_25m(name):
    """[(arm, place, interval of a law, measured gap)] at 25M, both series, where the law has the place."""
    return [(arm, p["bytes_per_parameter"], p["interval_three_seeds"], g[arm]["mean"])
            for arm, fit in law(name)["arms"].items() for p in fit["predictions"] for series in MEASURED_25M
            for g in surface_parts()[series]["gaps"] if near(g["bytes_per_parameter"], p["bytes_per_parameter"])]


def below_law(arm):
    """By how much of the end the gap of 25M lies below the law's interval at 1.875 bytes per parameter, in %."""
    low, gap = next((low, gap) for own, place, (low, _), gap in of_25m("25m") if own == arm and near(place, 1.875))
    return f"{100 * (1 - gap / low):.0f} %"


def missed_again():
    """How many measured gaps of 25M lie outside the law that was fitted again."""
    found = [not low <= gap <= high for _, _, (low, high), gap in of_25m("25m-seeds")]
    return f"{sum(found)} of {len(found)}"


def missed_again_by():
    """By how much of an end they lie outside at most, in %."""
    beyond = [max(1 - gap / low, gap / high - 1) for _, _, (low, high), gap in of_25m("25m-seeds")]
    return f"{100 * max(beyond):.0f} %"


def steady(name, arm):
    """By how much an arm's mean gaps deviate from their mean over a study's budgets at most, in %."""
    gaps = [g[arm]["mean"] for g in surface_parts()[name]["gaps"]]
    return "{:.0f} %".format(100 * max(abs(g / statistics.mean(gaps) - 1) for g in gaps))


def fitted_again(arm):
    """The gap of 25M at 12 bytes per parameter by the law that was fitted again, nats."""
    return f"{law('25m-seeds')['arms'][arm]['predictions'][-1]['gap']:.4f}"


def law_ratio_at(name, place):
    """The token ratio of a law between its places, straight in ln r over ln bytes."""
    points = [(math.log(r["bytes_per_parameter"]), math.log(r["ratio"])) for r in law(name)["token_ratios"]]
    x = math.log(float(place))
    (x0, y0), (x1, y1) = next(pair for pair in zip(points, points[1:]) if pair[0][0] <= x <= pair[1][0])
    return f"{math.exp(y0 + (y1 - y0) * (x - x0) / (x1 - x0)):.2f}"


def narrower():
    """How much narrower the ratio's intervals in ln r are of the law that was fitted again, at its places, in %."""
    pairs = zip(law("25m-seeds")["token_ratios"], law("25m")["token_ratios"], strict=True)
    found = [100 * (1 - widths.half_width(*a["interval_three_seeds"]) / widths.half_width(*b["interval_three_seeds"]))
             for a, b in pairs]
    return f"{min(found):.0f} to {max(found):.0f} %"


def too_high_again():
    """By how much the law that was fitted again puts BF16's loss at 12 bytes per parameter too high, nats."""
    last = law("25m-seeds")["loss"]["predictions"][-1]["loss"]
    return f"{last - gap_records('surface-c-25m-long', 12)['bf16']['mean']:.3f}"


def measured_fall(name, first, last):
    """By how much BF16's mean loss falls between two places in bytes per parameter, nats."""
    return f"{gap_records(name, first)['bf16']['mean'] - gap_records(name, last)['bf16']['mean']:.3f}"


def law_fall(first, last):
    """The same by the registered law of 25M."""
    at = [next(p["loss"] for p in law("25m")["loss"]["predictions"] if near(p["bytes_per_parameter"], place))
          for place in (first, last)]
    return f"{at[0] - at[1]:.3f}"


def law_errs():
    """By how much the registered law of BF16's loss lies from the means that it was fitted to at most, nats."""
    fit, found = law("25m")["loss"], []
    for part in law("25m")["studies"]:
        size = study(part["name"]).results["model"]["block_parameters"]
        for each in part["bytes_per_parameter"]:
            own = [loss for (arm, _, tokens), loss in losses(part["name"]).items()
                   if arm == "bf16" and near(tokens / size, each)]
            of_law = (fit["E"] + math.exp(fit["ln_A"]) * (size / 1e6) ** -fit["alpha"]  # both in millions
                      + math.exp(fit["ln_B"]) * (each * size / 1e6) ** -fit["beta"])
            found.append(abs(of_law - statistics.mean(own)))
    return f"{max(found):.3f}"


def registered_size(arm):
    """The BF16-equivalent size at 11M that was registered."""
    return f"{registered_sizes(study('surface-c-10.6m'))[arm]:.2f}"


def bytes_of_token():
    """Bytes per BPE token of the training text of c-1.2m-bpe.json."""
    text = json.loads((HERE / "surface-c-1.2m-bpe/tokens.json").read_text())["parts"]["train"]
    return f"{text['bytes_per_token']:.2f}"


def late_seed(name, arm):
    """By how much the highest seed of an arm lies above the next at the largest budget, nats."""
    last = study(name).analysis["budgets"][-1]
    found = sorted(loss for (own, _, tokens), loss in losses(name).items() if (own, tokens) == (arm, last))
    return f"{found[-1] - found[-2]:.3f}"


def shares_of(factor):
    """[(place, a factor's part of the mean of ln r)] of all studies that have shares."""
    return [(r["bytes_per_parameter"], r["shares"][factor.replace("-", " ")]["mean"]
             / sum(share["mean"] for share in r["shares"].values()))
            for part in surface_parts().values() for r in part["shares"]]


def share_range(factor):
    """The smallest and the largest part of ln r that a factor makes, in %."""
    found = [100 * share for _, share in shares_of(factor)]
    return f"{min(found):.0f} to {max(found):.0f} %"


def share_places():
    """The first and the last place in bytes per parameter at which shares are defined."""
    found = [place for place, _ in shares_of("scale-format")]
    return f"{min(found):.0f} to {max(found):.0f}"


FUNCTIONS = (
    half_widths, widest_half_width, seeds_for_width, null_errors, null_outside, surface_gap, surface_gap_ratio,
    text_widens, most_apart, committed, above_law, outside_law_4_7m, below_law, missed_again, missed_again_by, steady,
    fitted_again,
    law_ratio_at, narrower, too_high_again, measured_fall, law_fall, law_errs, registered_size, bytes_of_token,
    late_seed, share_range, share_places)
