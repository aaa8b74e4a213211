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


def _pip(*arguments: str) -> str:
    command = [sys.executable, "-m", "pip", *arguments, "--disable-pip-version-check"]
    done = subprocess.run(command, capture_output=True, text=True,
                          env={**os.environ, "SKIP_CUDA_BUILD": "1"})  # fmt: skip
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        text = (errors or done.stderr.splitlines() or ["no message"])[-1]
        raise DownloadError(re.sub(r"\s+", " ", text.removeprefix("ERROR:")).strip()[:200])
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
    """The wheel or source distribution of a release, downloaded once.

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
            _pip(*command, "--no-build-isolation")  # a source distribution, of which pip reads the name
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
