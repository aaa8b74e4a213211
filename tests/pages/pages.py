"""The pages of the repository, for the tests of this folder: which there are, and their parts."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
SKIPPED = {"build", "out", "site-packages"}  # folders that hold no pages of ours
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)


def all_pages():
    """Every Markdown file of the repository, README.md first."""
    found = [
        p
        for p in ROOT.rglob("*.md")
        if not any(part.startswith(".") or part in SKIPPED for part in p.relative_to(ROOT).parts[:-1])
        and not p.relative_to(ROOT).parts[0].startswith("build")
    ]
    return sorted(found, key=lambda p: (p != ROOT / "README.md", p))


def front_pages():
    """README.md and the pages of docs/, whose commands are run."""
    return [p for p in all_pages() if p == ROOT / "README.md" or ROOT / "docs" in p.parents]


def name_of(page):
    return str(page.relative_to(ROOT))


def blocks_of(text):
    """[(language, text)] of the fenced blocks."""
    blocks, inside = [], None
    for line in text.split("\n"):
        if line.startswith("```"):
            inside = [] if inside is None else None
            if inside is not None:
                blocks.append((line[3:], inside))
        elif inside is not None:
            inside.append(line)
    return [(language, "".join(line + "\n" for line in lines)) for language, lines in blocks]
