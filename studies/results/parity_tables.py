"""The table and numbers of parity/parity.json, which tests/python_jax/parity.py writes, for tables.py."""
import functools
import json
import math
import re
import statistics

from significance import student_quantile
from study_tables import HERE

BASELINES = "te_no_quant", "bf16"
LAST = 50  # steps over which a training loss is averaged


@functools.cache
def parity():
    """{trainer: {recipe: runs by seed}}."""
    return json.loads((HERE / "parity/parity.json").read_text())["runs"]


def training_loss(run):
    return statistics.mean(run["training"][-LAST:])


def validation_loss(run):
    return run["validation"]


def gaps(trainer, recipe, loss=validation_loss):
    """By how much the loss of a recipe lies above BF16's of its trainer, seed by seed, in %."""
    base = next(parity()[trainer][name] for name in BASELINES if name in parity()[trainer])
    return [100 * (loss(run) / loss(of) - 1) for run, of in zip(parity()[trainer][recipe], base, strict=True)]


def interval(values):
    """Their mean and half of its 95 % interval over seeds."""
    half = student_quantile(0.975, len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    return statistics.mean(values), half


def products(calls):
    """GEMMs of FP4 operands and of BF16 operands."""
    of = {"nvfp4": 0, "none": 0}
    for call, count in calls.items():
        found = re.match(r"te_gemm_v2_ffi scaling=(\w+)", call)
        if found:
            of[found[1]] += count
    return "{:,}, {:,}".format(of["nvfp4"], of["none"])


def table(studies):
    """A row a trainer and recipe: both losses with their gaps, and the GEMMs of a run."""
    rows = ["| trainer | recipe | training loss | gap | validation loss | gap | GEMMs of FP4, of BF16, a run |",
            "|---|---|---|---|---|---|---|"]
    for trainer, recipes in parity().items():
        for recipe, runs in recipes.items():
            cells = [trainer, recipe]
            for loss in training_loss, validation_loss:
                gap = "" if recipe in BASELINES else "{:+.2f} ± {:.2f}%".format(*interval(gaps(trainer, recipe, loss)))
                cells += [f"{statistics.mean(map(loss, runs)):.4f}", gap]
            cells.append(products(runs[0]["calls"]) if "calls" in runs[0] else "")
            rows.append(f"| {' | '.join(cells)} |")
    return rows


def parity_range():
    """The smallest and the largest gap of validation loss, over trainers, recipes and seeds."""
    found = [gap for trainer, recipes in parity().items() for recipe in recipes if recipe not in BASELINES
             for gap in gaps(trainer, recipe)]
    return f"{min(found):.1f} to {max(found):.1f} %"


def parity_gap(trainer, recipe):
    """A recipe's gap of validation loss with half of its interval."""
    return "{:.2f} ± {:.2f} %".format(*interval(gaps(trainer, recipe)))


KINDS = {"parity": table}
FUNCTIONS = (parity_range, parity_gap)
