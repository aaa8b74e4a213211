"""Every relative link of every page leads to a file, and to a heading of it. Source files that pages name exist."""

import re
import sys

from pages import ROOT, all_pages, name_of

FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"`[^`\n]*`")
SOURCE = re.compile(r"`((\w+)/[\w./-]+\.(?:h|cc|cu|cuh|py|json|cmake))`")


def anchors_of(text):
    """The headings as GitHub turns them into anchors."""
    anchors, seen = set(), {}
    for line in FENCED.sub("", text).split("\n"):
        if not re.match(r"#{1,6} ", line):
            continue
        title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", line.lstrip("#").strip())
        anchor = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        count = seen[anchor] = seen.get(anchor, -1) + 1
        anchors.add(f"{anchor}-{count}" if count else anchor)
    return anchors


def sources():
    """The files of the repository by every end of their paths, and the names of its folders."""
    ends, folders = set(), set()
    for top in ("lib", "tools", "tests", "studies", "data", "docs", "cmake"):
        for path in (ROOT / top).rglob("*"):
            parts = path.relative_to(ROOT).parts
            if path.is_dir():
                folders.add(path.name)
            else:
                ends.update("/".join(parts[i:]) for i in range(len(parts)))
    return ends, folders


def main():
    wrong, count = [], 0
    ends, folders = sources()
    for page in all_pages():
        text = FENCED.sub(lambda m: "\n" * m[0].count("\n"), page.read_text())
        for number, line in enumerate(text.split("\n"), 1):
            for path, folder in SOURCE.findall(line):
                if folder in folders and path not in ends:
                    wrong.append(f"{name_of(page)}:{number}: no file {path}")
            for link in LINK.findall(CODE.sub("``", line)):
                if re.match(r"[a-z]+:", link):
                    continue
                count += 1
                path, _, anchor = link.partition("#")
                target = (page.parent / path).resolve() if path else page
                if not target.exists():
                    wrong.append(f"{name_of(page)}:{number}: no file {path}")
                elif anchor and anchor not in anchors_of(target.read_text()):
                    wrong.append(f"{name_of(page)}:{number}: {path or 'the page'} has no heading #{anchor}")
    print("\n".join(wrong) or f"{count} links lead somewhere")
    sys.exit(bool(wrong) or count < 100)


if __name__ == "__main__":
    main()
