"""Checks that studies/surface/surface.py adds the seeds of NAME-seeds to the study NAME: a study in two parts is the
whole, and a part that does not fit is refused."""
import copy
import json
import pathlib
import sys
import tempfile

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "studies/surface"))
from surface import Study, log_ratios, seeds_that_suffice, t_interval  # noqa: E402

WHOLE = ROOT / "studies/results/surface-c-1.2m"


def part(seeds, arms):
    results = json.loads((WHOLE / "results.json").read_text())
    results["study"]["seeds"] = seeds
    results["runs"] = [r for r in results["runs"] if r["seed"] in seeds and r["arm"] in arms]
    results["numerics"] = {arm: f for arm, f in results["numerics"].items() if arm in arms}
    return results


def study_of(folder, first, second, more_seeds=True):
    for name, results in ("s", first), ("s-seeds", second):
        (folder / name).mkdir(exist_ok=True)
        (folder / name / "results.json").write_text(json.dumps(results))
    return Study(folder / "s", more_seeds)


def refused(folder, first, second):
    try:
        study_of(folder, first, second)
    except SystemExit as error:
        return str(error)
    raise AssertionError("taken")


def main():
    whole = Study(WHOLE)
    arms = ("bf16", "nvfp4", "mxfp4")
    first, second = part([1, 2, 3], (*arms, "null")), part([4, 5], arms)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        both = study_of(folder, first, second)
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
        assert "give each seed in one study" in refused(folder, first, again)
        for change in (lambda r: r["study"].update(batch=512), lambda r: r["corpus"].update(name="english.txt"),
                       lambda r: r["numerics"].update(mxfp4="0")):
            other = copy.deepcopy(second)
            change(other)
            assert "another set-up, text or fingerprint" in refused(folder, first, other)

    # Seeds enough and one fewer, by the interval itself.
    values = ratios[0]
    n = seeds_that_suffice(values)
    for count, suffices in (n, True), (n - 1, False):
        scatter = np.resize([1.0, -1.0], count)
        scatter = (scatter - scatter.mean()) / scatter.std(ddof=1) * values.std(ddof=1)
        low, high = t_interval(scatter)
        assert ((high - low) / 2 <= 0.08) == suffices, (count, low, high)


if __name__ == "__main__":
    main()
