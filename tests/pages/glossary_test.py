"""A word of the glossary is a link to its entry where a page first uses it.

    python3 tests/pages/glossary_test.py

With FP4LAB_APPROVE=1 the missing links are written. A use counts in a sentence, a list or a cell; uses in headings,
code, titles of links, figures and generated tables do not.
"""

import os
import re
import sys

from links_test import anchors_of
from pages import COMMENT, ROOT, all_pages, name_of
from words_test import FENCE, GENERATED, INDENTED, MADE, blanked

GLOSSARY = ROOT / "docs/concepts/glossary.md"
OTHERS = {"CHANGELOG.md", "docs/concepts/glossary.md"}
NAME = re.compile(r"^### (.+)$", re.MULTILINE)
USES = {  # of entries whose uses are not the entry's name, in singular or plural
    "Hadamard transform": r"(?:random )?Hadamard transforms?|RHT",
    "S\\*": r"S\\\*",
    "swizzled": r"swizzled?|swizzles",
    "nats": r"nats",
    "deviation": r"(?<!standard )deviations?",
    "directed cases": r"directed cases?",
    "not identified": r"not identified",
}
NOT_PROSE = (
    MADE,
    re.compile(r"^<!-- ([\w:]+)(?:: begin)? -->$.*?^<!-- (?:\1: )?end -->$", re.DOTALL | re.MULTILINE),  # by other tests
    FENCE,
    INDENTED,
    COMMENT,
    re.compile(r"^#.*$", re.MULTILINE),
    re.compile(r"`+[^`\n]*`+"),
    re.compile(r"<[^<>\n]*>"),
    re.compile(r"^\[[^\]]*\]: .*$", re.MULTILINE),
)
LINK = re.compile(r"!?\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^)\s]*)\)")
QUOTED = re.compile(r"\"[^\"\n]*\"|“[^”]*”")  # titles of papers, strings


def pattern(name):
    words = USES.get(name) or re.escape(name) + ("s?" if name[-1].islower() else "")
    case = "" if any(c.isupper() for c in name) else "i"
    return re.compile(rf"(?<![\w./*-])((?{case}:{words}))(?![\w/*]|[.-]\w)")


def entries():
    """{name: (anchor, pattern of its uses)}"""
    text = GLOSSARY.read_text()
    names = NAME.findall(text)
    anchors = {name: re.sub(r"[^\w\- ]", "", name.lower()).replace(" ", "-") for name in names}
    assert set(anchors.values()) <= anchors_of(text)
    return {name: (anchors[name], pattern(name)) for name in names}


def linked(page):
    """{anchor: place of the first link to it}"""
    found = {}
    for link in LINK.finditer(page):
        path, _, anchor = link[2].partition("#")
        if path.endswith("glossary.md"):
            found.setdefault(anchor, link.start())
    return found


def missing(page, known):
    """[(start, end, anchor)] of the first uses that are no links, at most one for each entry."""
    prose = page
    for rule in NOT_PROSE:
        prose = blanked(rule, prose)
    links = linked(prose)
    prose = blanked(QUOTED, blanked(LINK, prose))
    found = []
    for anchor, uses in known.values():
        use = uses.search(prose)
        if use and use.start() < links.get(anchor, len(page)):
            found.append((*use.span(1), anchor))
    # Of two uses that overlap the longer one counts: "tensor scale", and "scale" within it.
    return [
        f for f in found if not any(o != f and o[0] <= f[0] and f[1] <= o[1] and o[1] - o[0] > f[1] - f[0] for o in found)
    ]


def with_links(page, uses, path):
    for start, end, anchor in sorted(uses, reverse=True):
        page = f"{page[:start]}[{page[start:end]}]({path}#{anchor}){page[end:]}"
    return page


def main():
    known, wrong, count = entries(), [], 0
    for page in all_pages():
        if name_of(page) in OTHERS | GENERATED:
            continue
        text = page.read_text()
        path = os.path.relpath(GLOSSARY, page.parent)
        for _ in range(3):  # a use within a longer one may be the first when the longer one is a link
            uses = missing(text, known)
            if not uses or not os.environ.get("FP4LAB_APPROVE"):
                break
            text = with_links(text, uses, path)
        if text != page.read_text():
            page.write_text(text)
        wrong += [
            f"{name_of(page)}:{text.count(chr(10), 0, start) + 1}: the first {text[start:end]!r} is no link to #{anchor}"
            for start, end, anchor in missing(text, known)
        ]
        count += text.count("glossary.md#")
    print("\n".join(wrong) or f"{count} links to {len(known)} entries")
    sys.exit(bool(wrong) or count < 100)


if __name__ == "__main__":
    main()
