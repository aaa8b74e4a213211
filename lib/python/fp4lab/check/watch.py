"""Whether the functions that the rows cite are in the newest releases what they were."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import _tables
from . import downloads, extract, sources

_LINES = 12  # of a difference that a report shows


@dataclass(frozen=True)
class Finding:
    """What was seen of one row.

    Attributes:
        row: the dialect.
        outcome: "same", "differs", "not watched" or "error".
        text: one line, and the first lines of a difference.
    """

    row: str
    outcome: str
    text: str

    def __str__(self) -> str:
        return f"{self.outcome:<13} {self.row}: {self.text}"


@dataclass(frozen=True)
class Findings:
    """What was seen of all rows.

    Attributes:
        rows: one Finding each.
        exit_code: 0 if all that was looked at is the same, 1 if something differs, 2 if something
            could not be read.
    """

    rows: tuple[Finding, ...]

    @property
    def exit_code(self) -> int:
        outcomes = {f.outcome for f in self.rows}
        return 2 if "error" in outcomes else 1 if "differs" in outcomes else 0

    def __str__(self) -> str:
        count = {o: sum(f.outcome == o for f in self.rows)
                 for o in ("same", "differs", "not watched", "error")}  # fmt: skip
        last = ", ".join(f"{n} {outcome}" for outcome, n in count.items())
        return "\n".join([*map(str, self.rows), last])


def difference(old: str, new: str) -> str:
    """The first lines of a unified diff, indented."""
    lines = list(difflib.unified_diff(old.splitlines(), new.splitlines(), n=1, lineterm=""))[2:]
    shown = [f"    {line}" for line in lines[:_LINES]]
    if len(lines) > _LINES:
        shown.append(f"    ({len(lines) - _LINES} more lines)")
    return "\n".join(shown)


class _Releases:
    """Releases by distribution; a failure is kept, so that each package fails once."""

    def __init__(self, cache: Path) -> None:
        self.cache = cache
        self._newest: dict[str, Any] = {}
        self._paths: dict[tuple[str, str], Any] = {}

    @staticmethod
    def _kept(store: dict[Any, Any], key: Any, make: Any) -> Any:
        if key not in store:
            try:
                store[key] = make()
            except downloads.DownloadError as error:
                store[key] = error
        if isinstance(store[key], Exception):
            raise store[key]
        return store[key]

    def newest(self, distribution: str) -> str:
        return self._kept(self._newest, distribution, lambda: downloads.newest(distribution))

    def text(self, distribution: str, version: str, file: str) -> str | None:
        key = (distribution, version)
        path = self._kept(self._paths, key, lambda: downloads.archive(*key, self.cache))
        return downloads.text_of(path, file)


def _compare(source: sources.Source, releases: _Releases) -> Finding:
    newest = releases.newest(source.distribution)
    where = f"{source.distribution} {source.version}"
    note = f" ({source.note})" if source.note else ""
    if newest == source.version:
        texts = [releases.text(source.distribution, newest, source.file)] * 2
    else:
        texts = [releases.text(source.distribution, v, source.file) for v in (source.version, newest)]
    for version, text in zip((source.version, newest), texts):
        if text is None:
            return Finding(source.row, "differs" if version == newest else "error",
                           f"{source.distribution} {version} has no {source.file}{note}")  # fmt: skip
    for name in source.functions:
        old, new = (extract.function(source.file, str(t), name) for t in texts)
        if old is None:
            return Finding(source.row, "error", f"{where}: {source.file} defines no {name}")
        if new is None:
            what = f"{source.distribution} {newest}: {source.file} defines no {name} any more{note}"
            return Finding(source.row, "differs", what)
        if old != new:
            what = f"{name} of {where} and of {newest}, {source.file}{note}\n{difference(old, new)}"
            return Finding(source.row, "differs", what)
    names = ", ".join(source.functions)
    tail = "the newest release" if newest == source.version else f"as in {newest}, the newest"
    return Finding(source.row, "same", f"{names} of {where}, {tail}{note}")


def watch(names: Any = (), *, packages: Any = (), cache: Path, large: bool = False) -> Findings:
    """Compares the cited functions of the rows' releases with those of the newest ones.

    Args:
        names: dialects; empty: all.
        packages: distributions on PyPI; empty: all.
        cache: a folder for downloads, made if it is absent.
        large: whether to download packages of more than 100 MB.

    Returns:
        Findings, one for each row. A package that cannot be downloaded is an error of its rows.
    """
    wanted = {_tables.dialect(n).name for n in names}
    cache.mkdir(parents=True, exist_ok=True)
    releases = _Releases(cache)
    found = []
    for d in _tables.dialects():
        source = sources.source_of(d.name)
        if (wanted and d.name not in wanted) or (packages and source.distribution not in packages):
            continue
        if source.unwatched:
            found.append(Finding(d.name, "not watched", source.unwatched))
        elif source.large and not large:
            what = f"{source.distribution} is a download of more than 100 MB; add --large"
            found.append(Finding(d.name, "not watched", what))
        else:
            try:
                found.append(_compare(source, releases))
            except (downloads.DownloadError, SyntaxError) as error:
                what = f"{source.distribution}: {str(error).splitlines()[0]}"
                found.append(Finding(d.name, "error", what))
    return Findings(tuple(found))
