"""Compares formats and dialects with the packages that they cite.

`python -m fp4lab.check` compares the installed packages; its exit code is 0 if every comparison
agrees, 1 if one differs, 2 for an error. `--watch` downloads the newest release of each package that
a row cites, and compares the source of the named function with that of the row's release: 0 if all
are the same, 1 if one differs, 2 if one could not be read.
"""

from __future__ import annotations

from .dialects import check_dialects
from .command import main
from .report import CheckReport, Comparison

__all__ = ["CheckReport", "Comparison", "check_dialects", "main"]
