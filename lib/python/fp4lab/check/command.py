"""The command line of fp4lab.check."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from .dialects import check_dialects
from .watch import watch


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m fp4lab.check",
        description="Compares formats and dialects with the packages that they cite.",
    )
    parser.add_argument("dialect", nargs="*", help="only these dialects")
    parser.add_argument("--package", action="append", default=[], metavar="NAME",
                        help="only this package, by its name on PyPI; may be repeated")  # fmt: skip
    parser.add_argument("--watch", action="store_true",
                        help="compare the sources of the newest releases with those of the rows, "
                             "instead of what is installed")  # fmt: skip
    parser.add_argument("--cache", type=Path, metavar="DIR",
                        help="with --watch: where downloads stay (default ~/.cache/fp4lab)")  # fmt: skip
    parser.add_argument("--large", action="store_true",
                        help="with --watch: also the packages of more than 100 MB")  # fmt: skip
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if not options.watch and (options.cache or options.large):
        parser.error("--cache and --large: add --watch, which downloads")
    try:
        if options.watch:
            folder = options.cache or Path.home() / ".cache" / "fp4lab"
            findings = watch(options.dialect, packages=options.package, cache=folder,
                             large=options.large)  # fmt: skip
            print(findings)
            return findings.exit_code
        report = check_dialects(options.dialect, packages=options.package)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(report)
    return 1 if any(c.different for c in report.comparisons) else 0
