"""Releases from PyPI in a cache folder, by pip, and the files in them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path


class DownloadError(Exception):
    """One line: what pip could not do."""


# Found as `setuptools` by the processes that pip starts for a source distribution.
_METADATA_ONLY = Path(__file__).with_name("metadata_only")


def reason(stderr: str) -> str:
    """The line of pip's messages that names the cause: its last ERROR, else the last exception of a package."""
    lines = [re.sub(r"\s+", " ", line).strip() for line in stderr.splitlines()]
    errors = [line for line in lines if line.startswith("ERROR")]
    exceptions = [line for line in lines if re.match(r"[\w.]*(Error|Exception)\b", line)]
    others = [line for line in lines if line and not line.startswith(("hint:", "note:", "╰─>"))]
    text = (errors or exceptions or others or ["no message"])[-1]
    return text.removeprefix("ERROR:").strip()[:200]


def _pip(*arguments: str, **environment: str) -> str:
    command = [sys.executable, "-m", "pip", *arguments, "--disable-pip-version-check"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})
    if done.returncode:
        raise DownloadError(reason(done.stderr))
    return done.stdout


def newest(distribution: str) -> str:
    """The newest release of a distribution for this Python.

    Raises:
        DownloadError: if PyPI cannot be reached or has no such distribution.
    """
    out = _pip("index", "versions", distribution)
    found = re.search(r"\(([^)]+)\)", out)
    if not found:
        raise DownloadError(f"pip names no release of {distribution}")
    return found[1]


def archive(distribution: str, version: str, cache: Path) -> Path:
    """The wheel or source distribution of a release, downloaded once. No setup.py is run.

    Raises:
        DownloadError: if pip cannot download it.
    """
    folder = cache / distribution / version
    done = [p for p in folder.glob("*") if p.suffix in (".whl", ".gz", ".zip")]
    if done:
        return done[0]
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as work:
        wanted = f"{distribution}=={version}"
        command = ("download", "-q", "--no-deps", "-d", work, wanted)
        try:
            _pip(*command, "--only-binary", ":all:")
        except DownloadError:
            _pip(*command, "--no-build-isolation", "--use-pep517", PYTHONPATH=str(_METADATA_ONLY),
                 SETUPTOOLS_USE_DISTUTILS="stdlib")  # fmt: skip
        got = next(Path(work).iterdir())
        return Path(shutil.move(str(got), folder / got.name))


def text_of(path: Path, file: str) -> str | None:
    """A text file of a wheel or source distribution; None if it is not in there."""
    if path.suffix in (".whl", ".zip"):
        with zipfile.ZipFile(path) as z:
            names = [n for n in z.namelist() if n == file or n.endswith("/" + file)]
            return z.read(min(names, key=len)).decode("utf-8", "replace") if names else None
    with tarfile.open(path) as t:
        names = [n for n in t.getnames() if n.endswith("/" + file)]
        member = t.extractfile(min(names, key=len)) if names else None
        return member.read().decode("utf-8", "replace") if member else None
