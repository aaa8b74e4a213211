"""The program fp4lab that the package carries."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

_PATH = os.path.join(os.path.dirname(__file__), "bin", "fp4lab")


def carried() -> str | None:
    """The path of the package's own program; None of a package that was built without it."""
    return _PATH if os.access(_PATH, os.X_OK) else None


def main() -> NoReturn:
    """Becomes the program, with this process's arguments, streams and exit code."""
    program = carried()
    if program is None:
        sys.exit(
            "error: this package was built without the program (FP4LAB_PYTHON_PROGRAM=OFF): install a wheel that has "
            "it, or build it with tools/run"
        )
    os.execv(program, ["fp4lab", *sys.argv[1:]])
