#!/usr/bin/env python3
"""The tables of results in README.md and in the pages of studies/results, its folder league, studies/atlas and
studies/surface.

    python3 studies/results/tables.py [--check]

replaces every part of these pages between a line <!-- table KIND STUDY ... --> and the line
<!-- end of table --> by the table that the "analysis" of STUDY/results.json gives. With --check no
file is written, and the exit code is 1 if a page differs from its data.
"""
import argparse
import re
import sys

import league_tables
import study_tables
import surface_tables
from study_tables import HERE, Study

PAGES = [HERE.parent.parent / "README.md", HERE / "README.md", HERE.parent / "atlas/README.md",
         HERE.parent / "surface/README.md", HERE / "league/README.md"]
KINDS = study_tables.KINDS | surface_tables.KINDS | league_tables.KINDS
PART = re.compile(r"(<!-- table (\w+) ([\w .-]+?) -->\n).*?(<!-- end of table -->)", re.DOTALL)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 on a difference")
    options = parser.parse_args()
    differs = False
    for page in PAGES:
        text = page.read_text()
        new = PART.sub(lambda m: m[1] + "\n".join(KINDS[m[2]](list(map(Study, m[3].split())))) + "\n"
                       + m[4], text)
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
