#!/usr/bin/env python3
"""Puts the best recipes of one study into the file of another.

    python3 studies/league/best.py out/league-c-1.2m-4bit/results.json studies/league/c-4.7m.json

adds to the second file's arms the six recipes of the first whose three GEMMs multiply 4-bit operands in every
linear of every block and whose mean loss at the largest budget is least. Recipes that are there stay and do not count.
"""
import json
import pathlib
import sys

from costs import all_in_4_bits

COUNT = 6


def best(results, without):
    study = results["study"]
    losses = {}
    for run in results["runs"]:
        if run["arm"] not in without and run["status"] == "ok":
            last = max(run["points"], key=lambda p: p["tokens"])
            losses.setdefault(run["arm"], []).append(last["validation_loss"])
    arms = [arm for arm, values in losses.items() if len(values) == len(study["seeds"])
            and all_in_4_bits(study["arms"][arm]["recipe"], study["model"]["layers"])]
    return sorted(arms, key=lambda arm: sum(losses[arm]))[:COUNT]


def main(results, file):
    results = json.loads(pathlib.Path(results).read_text())
    text = pathlib.Path(file).read_text()
    there = json.loads(text)["arms"]
    lines = "".join(f',\n    "{arm}": {{"recipe": "{arm}"}}' for arm in best(results, there))
    end = text.rindex("\n  }\n}")
    pathlib.Path(file).write_text(text[:end] + lines + text[end:])


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
