"""Counts the words of sentences over all pages, and finds "a" where a quotient needs "per" ("tokens a second").

    python3 tests/pages/words_test.py [PAGE ...]

prints the ten longest sentences and fails where a page is above the limits, which are the same for all pages and for
the Markdown of notebooks.

A sentence ends at a full stop, a question or exclamation mark, or with its paragraph, item or cell. Code counts as one
word, an interval in brackets as none. Cells of tables do not count in the mean. Tables that studies/results/tables.py
or fp4lab bench makes are left out.
"""

import json
import math
import re
import sys

from pages import COMMENT, ROOT, all_pages, name_of

LONG = 25  # words of a sentence
LIMITS = {"mean": 20, "longest": LONG, "long": 0, "a_for_per": 0}

# What is counted or measured, and what it is divided by.
COUNTED = (
    "tokens?|bytes?|bits?|nats?|words?|values?|numbers?|elements?|instructions?|operations?|products?|steps?|rows?|"
    "lines?|points?|runs?|cases?|seeds?|scales?|calls?|figures?|letters?|registers?|loads?|threads?|blocks?|"
    "arms?|jobs?|files?|one|two|three|four|eight|16|32|GB|MB|kB|ns|us|ms|seconds?|minutes?|hours?|cycles?|"
    "multiply-adds?|additions?|places?|columns?|tests?|draws?|lookups?|exponents?|factors?|tables?|moments?"
)
DIVIDED = (
    "second|minute|hour|day|week|month|token|byte|bit|value|number|element|parameter|thread|block|row|column|seed|"
    "run|arm|budget|tensor|layer|core|GPU|word|instruction|product|machine|warp|lane|matrix|kernel|study|size|cycle|"
    "code|scale|fixture|operand|recipe|step|job|line|rate|pair|group|page|topic|fragment|tile|form|format|row-group"
)
A_FOR_PER = re.compile(rf"\b({COUNTED}|times) an? ({DIVIDED})\b(?!')")
RIGHT = re.compile(
    r"times an? (value|number|element|block|scale|code|product|tensor|matrix|factor)\b"  # a product
    r"|runs a "
)  # a verb

MADE = re.compile(
    r"^<!-- table .*?^<!-- end of table -->|"
    r"^<!-- fp4lab bench --markdown: begin -->.*?^<!-- fp4lab bench --markdown: end -->",
    re.DOTALL | re.MULTILINE,
)
FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
INDENTED = re.compile(r"^    .*$", re.MULTILINE)
END = re.compile(r"(?<=[.!?])[)\"*_]*\s+(?=[A-Z0-9`*\[(\"'>_])")
GENERATED = {  # as a whole
    "tests/python_packages/README.md",  # by its table.py
    "tests/python_packages/groups.md",  # likewise
    "studies/dialects.md",  # by train_test, of formulas
}
START = re.compile(r"\s*(#{1,6} |[-*] |\d+\. |\||>)")


def blanked(pattern, text):
    return pattern.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)


def prose_of(text):
    """The text with everything else as spaces, so that lines keep their numbers."""
    for pattern in (FENCE, MADE, COMMENT, INDENTED):
        text = blanked(pattern, text)
    return text


def pieces(text):
    """[(line, text, whether it is a cell)]: the paragraphs, items, headings and cells of a page."""
    text = prose_of(text)
    found, open_piece = [], False
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            open_piece = False
        elif line.lstrip().startswith("|"):
            found += [(number, cell, True) for cell in re.split(r"(?<!\\)\||<br>", line) if cell.strip(" -:")]
            open_piece = False
        elif open_piece and not START.match(line):
            found[-1] = (found[-1][0], found[-1][1] + "\n" + line, False)
        else:
            found.append((number, line, False))
            open_piece = not line.startswith("#")
    return found


def sentences(text):
    """[(line, words, sentence, whether it stands in a cell)] of a page."""
    found = []
    for number, piece, cell in pieces(text):
        starts = [0, *(end.end() for end in END.finditer(piece)), len(piece)]
        for start, end in zip(starts, starts[1:]):
            sentence = piece[start:end]
            found.append((number + piece.count("\n", 0, start), words_of(sentence), " ".join(sentence.split()), cell))
    return [s for s in found if s[1]]


def words_of(sentence):
    plain = re.sub(r"`[^`]*`", "code", sentence.replace("\n", " "))
    plain = re.sub(r"!?\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\([^)]*\)", r"\1", plain)  # a link counts as its title
    plain = re.sub(r"\[[^\]]*\d[^\]]*\]", "", plain).replace("&nbsp;", " ")  # an interval
    return sum(any(c.isalnum() for c in word) for word in plain.split())


def quotients(text):
    """[(line, words)] that have "a" for "per"."""
    text = prose_of(text)
    text = re.sub(r"`[^`\n]*`", lambda m: "x" * len(m[0]), text)
    flat = text.replace("\n", " ")
    return [(text.count("\n", 0, m.start()) + 1, m[0]) for m in A_FOR_PER.finditer(flat) if not RIGHT.match(m[0])]


def text_of(page):
    """The text of a page; of a notebook that of its cells of Markdown."""
    if page.suffix != ".ipynb":
        return page.read_text()
    cells = json.loads(page.read_text())["cells"]
    return "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")


def counted(text):
    all_of = sentences(text)
    prose = [words for _, words, _, cell in all_of if not cell]
    return {
        "mean": math.ceil(10 * sum(prose) / max(1, len(prose))) / 10,
        "longest": max((words for _, words, _, _ in all_of), default=0),
        "long": sum(words > LONG for _, words, _, _ in all_of),
        "a_for_per": len(quotients(text)),
    }


def main():
    named = [ROOT / name for name in sys.argv[1:]]
    notebooks = sorted((ROOT / "notebooks").glob("*.ipynb"))
    worst, wrong = [], []
    for page in named or [*(p for p in all_pages() if name_of(p) not in GENERATED), *notebooks]:
        name, text = name_of(page), text_of(page)
        now = counted(text)
        worst += [(words, name, line, sentence) for line, words, sentence, _ in sentences(text)]
        above = {key: f"{now[key]} of {most} at most" for key, most in LIMITS.items() if now[key] > most}
        if not above:
            continue
        wrong.append(f"{name}: {above}")
        wrong += [
            f"  {name}:{line}: {words} words: {sentence[:160]}"
            for line, words, sentence, _ in sentences(text)
            if words > LONG
        ]
        wrong += [f"  {name}:{line}: {found}" for line, found in quotients(text)]
    print("The longest sentences:")
    for words, name, line, sentence in sorted(worst, reverse=True)[:10]:
        print(f"  {words:3} words  {name}:{line}: {sentence[:100]} ...")
    print("\n".join(wrong) or "no page is above the limits")
    sys.exit(bool(wrong) or not worst)


if __name__ == "__main__":
    main()
