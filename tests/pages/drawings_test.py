"""The figures of docs/ are what the program draws.

    python3 tests/pages/drawings_test.py PROGRAM

A line <!-- drawn: NAME ARGUMENT ... --> before a figure says that `fp4lab draw NAME ARGUMENT ...`, run in the root of
the repository, writes it. With FP4LAB_APPROVE=1 the figures are written. No SVG of docs/ is without such a line, and no
two texts of a figure overlap or leave it.
"""

import html
import os
import pathlib
import re
import subprocess
import sys

from pages import ROOT, front_pages, name_of

DRAWN = re.compile(r"^<!-- drawn: (.+) -->\n!\[([^\]]+)\]\(([\w.-]+\.svg)\)$", re.MULTILINE)
MARK = "<!-- drawn:"
TEXT = re.compile(r'<text class="([^"]*)" x="([\d.-]+)" y="([\d.-]+)"([^>]*)>([^<]*)</text>')
SIZE = re.compile(r'<svg[^>]* width="([\d.]+)" height="([\d.]+)"')
LETTER = 0.56  # of the font size: the mean width of a letter


def figures():
    """[(page, command, path)]"""
    found, wrong = [], []
    for page in front_pages():
        text = page.read_text()
        marks = DRAWN.findall(text)
        if text.count(MARK) != len(marks):
            wrong.append(f"{name_of(page)}: a line {MARK} ... is not followed by a figure")
        found += [(page, command.split(), page.parent / file) for command, _, file in marks]
    drawn = {path for _, _, path in found}
    wrong += [f"{name_of(p)}: no page says what draws it" for p in (ROOT / "docs").rglob("*.svg") if p not in drawn]
    return found, wrong


def boxes(svg):
    """[(left, top, right, bottom, text)] of the upright texts."""
    for classes, x, y, rest, content in TEXT.findall(svg):
        if "rotate" in rest or not content:
            continue
        size = 16 if "title" in classes else 12 if "small" in classes else 13
        width = LETTER * size * len(html.unescape(content))
        anchor = re.search(r'text-anchor="(\w+)"', rest)
        left = float(x) - {"middle": width / 2, "end": width}.get(anchor[1] if anchor else "", 0)
        yield left, float(y) - 0.75 * size, left + width, float(y) + 0.2 * size, html.unescape(content)


def faults(svg):
    width, height = map(float, SIZE.search(svg).groups())
    found = list(boxes(svg))
    for left, top, right, bottom, text in found:
        if left < -2 or top < -2 or right > width + 2 or bottom > height + 2:
            yield f"{text!r} leaves the figure"
    for i, a in enumerate(found):
        for b in found[:i]:
            across = min(a[2], b[2]) - max(a[0], b[0])
            down = min(a[3], b[3]) - max(a[1], b[1])
            if across > 1 and down > 1:
                yield f"{a[4]!r} and {b[4]!r} overlap"


def main():
    program = pathlib.Path(sys.argv[1]).resolve()
    found, wrong = figures()
    for page, command, path in found:
        ran = subprocess.run([program, "draw", *command], cwd=ROOT, capture_output=True, text=True)
        if ran.returncode:
            wrong.append(f"{name_of(page)}: fp4lab draw {' '.join(command)}: {ran.stderr.strip()}")
            continue
        if os.environ.get("FP4LAB_APPROVE"):
            path.write_text(ran.stdout)
        if not path.exists() or path.read_text() != ran.stdout:
            wrong.append(f"{name_of(path)} is not what fp4lab draw {' '.join(command)} writes (FP4LAB_APPROVE=1 writes it)")
        wrong += [f"{name_of(path)}: {fault}" for fault in faults(ran.stdout)]
    listed = {line.split()[0] for line in subprocess.run([program, "draw"], capture_output=True, text=True).stdout.splitlines()}
    wrong += [f"no page shows the drawing {name}" for name in sorted(listed - {command[0] for _, command, _ in found})]
    print("\n".join(wrong) or f"{len(found)} figures are what the program draws")
    sys.exit(bool(wrong) or len(found) < 10)


if __name__ == "__main__":
    main()
