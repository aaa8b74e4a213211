"""Checks that studies/surface/surface.py adds the seeds of NAME-seeds and the budgets of NAME-long to the study NAME: a
study in two parts is the whole, and a part that does not fit is refused."""
import copy
import json
import pathlib
import sys
import tempfile

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "studies/surface"))
from surface import (PARTS, Study, growth, joins, log_ratios, seeds_that_suffice, standing_ratios,  # noqa: E402
                     t_interval)

WHOLE = ROOT / "studies/results/surface-c-1.2m"


def part(seeds, arms, budgets=slice(None)):
    results = json.loads((WHOLE / "results.json").read_text())
    results["study"]["seeds"] = seeds
    results["study"]["budgets"] = results["study"]["budgets"][budgets]
    results["runs"] = [r | {"points": r["points"][budgets]} for r in results["runs"]
                       if r["seed"] in seeds and r["arm"] in arms]
    results["numerics"] = {arm: f for arm, f in results["numerics"].items() if arm in arms}
    return results


def study_of(folder, first, second, suffix):
    for name, results in ("s", first), ("s" + suffix, second):
        (folder / name).mkdir(exist_ok=True)
        (folder / name / "results.json").write_text(json.dumps(results))
    return Study(folder / "s", PARTS)


def refused(folder, first, second, suffix):
    try:
        study_of(folder, first, second, suffix)
    except SystemExit as error:
        return str(error)
    raise AssertionError("taken")


def refuses_another_study(folder, first, second, suffix):
    for change in (lambda r: r["study"].update(batch=512), lambda r: r["corpus"].update(name="english.txt"),
                   lambda r: r["numerics"].update(mxfp4="0")):
        other = copy.deepcopy(second)
        change(other)
        assert "another set-up, text or fingerprint" in refused(folder, first, other, suffix)


def test_seeds(whole, arms):
    first, second = part([1, 2, 3], (*arms, "null")), part([4, 5], arms)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        both = study_of(folder, first, second, "-seeds")
        assert both.seeds == whole.seeds and both.losses.keys() == set(arms)
        for arm in arms:
            assert np.array_equal(both.losses[arm], whole.losses[arm]), arm
        assert np.array_equal(both.null_gaps, whole.null_gaps[:3])
        at = whole.budgets.index(75497472)
        ratios = [log_ratios(study, study.means(), "mxfp4", "nvfp4", at) for study in (both, whole)]
        assert np.array_equal(*ratios) and np.isfinite(ratios[0]).all()
        assert Study(folder / "s").seeds == [1, 2, 3], "the law's fits take the study alone"

        again = copy.deepcopy(second)
        again["study"]["seeds"] = [3, 4]
        for run in again["runs"]:
            run["seed"] -= 1
        assert "give each seed in one study" in refused(folder, first, again, "-seeds")
        assert "other budgets" in refused(folder, first, part([4, 5], arms, slice(2, None)), "-seeds")
        refuses_another_study(folder, first, second, "-seeds")


def test_budgets(whole, arms):
    first, second = part([1, 2, 3, 4, 5], (*arms, "null"), slice(0, 5)), part([1, 2, 3, 4, 5], arms, slice(4, 8))
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        both = study_of(folder, first, second, "-long")
        assert both.budgets == whole.budgets and both.bytes_each == whole.bytes_each
        for arm in arms:
            assert np.array_equal(both.losses[arm], whole.losses[arm]), arm
            assert np.array_equal(both.apart[arm], whole.apart[arm]), arm

        # The budgets that both have may lie between others.
        between = part([1, 2, 3, 4, 5], arms, slice(0, 8, 2)), part([1, 2, 3, 4, 5], arms, slice(1, 7))
        assert np.array_equal(study_of(folder, *between, "-long").losses["mxfp4"], whole.losses["mxfp4"][:, :7])

        assert "other seeds" in refused(folder, first, part([1, 2, 3, 4], arms, slice(4, 8)), "-long")
        refuses_another_study(folder, first, second, "-long")
        other = copy.deepcopy(second)
        other["runs"][3]["points"][0]["chunk_losses"][7] += 1e-9
        assert "another loss" in refused(folder, first, other, "-long")
        # A part that is named itself stays apart.
        assert joins(folder / "s", [folder / "s", "elsewhere/s-long"]) == ["-seeds"]
        assert Study(folder / "s", joins("s", ["s", "s-long"])).budgets == first["study"]["budgets"]


def test_seeds_that_suffice(whole):
    """Seeds enough and one fewer, by the interval itself."""
    values = log_ratios(whole, whole.means(), "mxfp4", "nvfp4", whole.budgets.index(75497472))
    n = seeds_that_suffice(values)
    for count, suffices in (n, True), (n - 1, False):
        scatter = np.resize([1.0, -1.0], count)
        scatter = (scatter - scatter.mean()) / scatter.std(ddof=1) * values.std(ddof=1)
        low, high = t_interval(scatter)
        assert ((high - low) / 2 <= 0.08) == suffices, (count, low, high)


def test_growth(whole):
    """Paired over seeds, and without the last budget in shrink form, on which the estimators part."""
    means = whole.means()
    ratios = standing_ratios(whole, means, "mxfp4", "nvfp4")
    last = next(r for r in ratios if (r["tokens"], r["form"]) == (whole.budgets[-1], "shrink"))
    assert not last["estimators_agree"]
    shrink = [log_ratios(whole, means, "mxfp4", "nvfp4", at, "shrink") for at in range(len(whole.budgets))]
    first = next(at for at, values in enumerate(shrink) if np.isfinite(values).all())
    grown = growth(ratios)
    assert grown["to_bytes_per_parameter"] == whole.bytes_each[-2]
    assert np.array_equal(grown["log_ratio"]["seeds"], shrink[-2] - shrink[first])
    assert growth(ratios[:1]) is None


def main():
    whole, arms = Study(WHOLE), ("bf16", "nvfp4", "mxfp4")
    test_seeds(whole, arms)
    test_budgets(whole, arms)
    test_seeds_that_suffice(whole)
    test_growth(whole)


if __name__ == "__main__":
    main()
