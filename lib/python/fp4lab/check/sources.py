"""Which function of which package each row cites: the table sources.json."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path


@dataclass(frozen=True)
class Source:
    """Where a row's formula is published.

    Attributes:
        row: the dialect.
        distribution: the name on PyPI; "" for code bases that are in no package.
        version: the release of the distribution in which the row was last compared.
        file: the file in its wheel or source distribution; "" where it is not in there.
        functions: names of functions in the file, "Class.method" for methods.
        large: whether the download is larger than 100 MB.
        note: what a reader of a watch report should know.
        unwatched: the reason why `--watch` cannot look at the row; "" where it can.
        not_compared: the reason why no package is compared with the row on a CPU; "" where one is.
    """

    row: str
    distribution: str = ""
    version: str = ""
    file: str = ""
    functions: tuple[str, ...] = ()
    large: bool = False
    note: str = ""
    unwatched: str = ""
    not_compared: str = ""


@lru_cache(maxsize=None)
def sources() -> tuple[Source, ...]:
    """All entries of the table, one for each row."""
    groups = json.loads(Path(__file__).with_name("sources.json").read_text())
    return tuple(
        Source(row, **{**{k: v for k, v in group.items() if k != "rows"},
                       "functions": tuple(group.get("functions", ()))})
        for group in groups
        for row in group["rows"]
    )  # fmt: skip


def source_of(row: str) -> Source:
    """The entry of a row; one that says so for a row without an entry."""
    for source in sources():
        if source.row == row:
            return source
    missing = "has no entry in sources.json"
    return Source(row, unwatched=missing, not_compared=missing)
