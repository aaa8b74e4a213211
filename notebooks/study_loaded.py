"""A study's results in pandas: what each format costs against BF16, as a table and a figure.

pip install 'fp4lab[study]' matplotlib && python study_loaded.py [FOLDER with results.json]
"""

import pathlib
import sys

import matplotlib.pyplot as plt

from fp4lab import study

RESULTS = pathlib.Path(__file__).resolve().parent.parent / "studies/results/token-gap-laptop"


def gap_table(results, reference="bf16"):
    """Mean loss above the reference's after each budget, nats per token, with half of the 95 % t interval over seeds."""
    gaps = results.gaps
    gaps = gaps[(gaps.reference == reference) & (gaps.precision == "training")]
    half = (gaps.interval_t_high - gaps.interval_t_low) / 2
    return gaps.assign(half=half).pivot(index="arm", columns="tokens", values=["mean", "half"]).sort_values(
        ("mean", gaps.tokens.max())
    )  # fmt: skip


def gap_figure(table):
    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    for arm, row in table.iterrows():
        axes.errorbar(table["mean"].columns / 1e6, row["mean"], row["half"], marker="o", capsize=3, label=arm)
    axes.axhline(0, color="0.4", linewidth=1)
    axes.set(xscale="log", xlabel="training tokens, millions", ylabel="loss above BF16, nats per token")
    axes.legend(frameon=False)
    return figure


if __name__ == "__main__":
    results = study.load(sys.argv[1] if len(sys.argv) > 1 else RESULTS)
    table = gap_table(results)
    print(results.name)
    print(table.round(4).to_string())
    for criterion in results.criteria.itertuples():
        print(f"{criterion.status}: {criterion.statement}")
    gap_figure(table).savefig("study_loaded.png", dpi=150)
