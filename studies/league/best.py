#!/usr/bin/env python3
"""Puts the best recipes of a league into the file of a study.

    python3 studies/league/best.py studies/results/league/league.json studies/league/c-4.7m.json

adds to the second file's arms the six recipes of the first, which `fp4lab study league` printed, whose three GEMMs
multiply 4-bit operands in every linear of every block and whose mean loss is least. Recipes that are there stay and do
not count.
"""
import json
import pathlib
import sys

COUNT = 6


def best(league, without):
    """By loss; rows without a pool are recipes that hardly learn."""
    return [row["recipe"] for row in sorted(league["rows"], key=lambda row: row["loss"])
            if row["four_bits"] and row["pool"] and row["recipe"] not in without][:COUNT]


def main(league, file):
    league = json.loads(pathlib.Path(league).read_text())
    text = pathlib.Path(file).read_text()
    there = json.loads(text)["arms"]
    lines = "".join(f',\n    "{arm}": {{"recipe": "{arm}"}}' for arm in best(league, there))
    end = text.rindex("\n  }\n}")
    pathlib.Path(file).write_text(text[:end] + lines + text[end:])


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
