#!/usr/bin/env python3
"""The tables and numbers of results in README.md, docs/findings, docs/trust, docs/history and the pages of studies.

    python3 studies/results/tables.py [--check]

replaces every part of these pages between a line <!-- table KIND STUDY ... --> and the line
<!-- end of table --> by the table that the "analysis" of STUDY/results.json gives, or KIND's own file without a
STUDY, and every number <!--n FUNCTION ARGUMENT ...-->NUMBER<!--/n--> in a sentence by that of prose_numbers.py. With
--check no file is written, and the exit code is 1 if a page differs from its data.
"""
import argparse
import re
import sys

import atlas_tables
import difference_tables
import evaluation_tables
import league_tables
import null_tables
import parity_tables
import prose_numbers
import speed_tables
import study_tables
import surface_tables
import trained_tables
import transfer_tables
from study_tables import HERE, Study

DOCS = HERE.parent.parent / "docs"
PAGES = [HERE.parent.parent / "README.md", *sorted((DOCS / "findings").glob("*.md")),
         DOCS / "trust/index.md", DOCS / "history/predictions.md", DOCS / "develop/performance.md",
         HERE / "README.md", HERE.parent / "atlas/README.md",
         HERE.parent / "surface/README.md", HERE.parent / "stability/README.md", HERE.parent / "fp8-gap/README.md",
         HERE.parent / "architectures/README.md", HERE.parent / "outliers/README.md",
         HERE.parent / "figure6/README.md", HERE.parent / "trained/README.md",
         HERE.parent / "transfer/README.md", HERE / "league/README.md", HERE / "parity/README.md",
         HERE.parent / "token-gap/README.md", HERE.parent / "README.md"]
MODULES = (study_tables, atlas_tables, surface_tables, evaluation_tables, league_tables, speed_tables, difference_tables,
           trained_tables, transfer_tables, null_tables, parity_tables)
KINDS = {kind: make for module in MODULES for kind, make in module.KINDS.items()}
PART = re.compile(r"(<!-- table (\w+)((?: [\w.-]+)*) -->\n).*?(<!-- end of table -->)", re.DOTALL)
NUMBER = re.compile(r"(<!--n ([\w .-]+)-->)[^<]*(<!--/n-->)")


def filled(text):
    """The text with the tables and numbers that the results give."""
    text = PART.sub(lambda m: m[1] + "\n".join(KINDS[m[2]](list(map(Study, m[3].split())))) + "\n" + m[4], text)
    return NUMBER.sub(lambda m: m[1] + prose_numbers.number(m[2]) + m[3], text)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 on a difference")
    options = parser.parse_args()
    differs = False
    for page in PAGES:
        text = page.read_text()
        new = filled(text)
        if new == text:
            continue
        if options.check:
            print(f"{page} differs from its data; run python3 studies/results/tables.py")
            differs = True
        else:
            page.write_text(new)
    sys.exit(differs)


if __name__ == "__main__":
    main()
