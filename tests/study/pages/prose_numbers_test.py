"""Checks the marks around numbers in the sentences of pages: studies/results/tables.py knows each of them and finds a
wrong number, and the pages hold the numbers that their findings rest on. A sentence has no interval that was typed, and
one with an interval that is too wide for its token ratio says so. A decimal is not typed either, unless the page says
what it is."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "studies/results"), str(ROOT / "tests/pages")]
import prose_numbers  # noqa: E402
from tables import NUMBER, PAGES, filled  # noqa: E402
from pages import COMMENT  # noqa: E402
from words_test import FENCE, INDENTED, MADE, blanked, sentences  # noqa: E402

WANTED = {  # page: the functions whose numbers it must print
    "README.md": ("recipe-count", "ratio-with-text", "star"),
    "docs/findings/index.md": ("league-ratio", "star", "spread-by-noise", "first", "hits", "missed-mxfp4",
                               "missed-loss", "held", "atlas-count"),
    "docs/findings/sizes.md": ("growth", "exponent", "predicted", "measured", "hits", "missed-mxfp4", "missed-loss",
                               "same-text", "same-bytes", "held"),
    "docs/findings/recipes.md": ("star", "first", "simultaneous", "league-recipe-count"),
    "docs/findings/others.md": ("paired-less", "atlas-count", "atlas-less", "atlas-kept", "first-block", "closes"),
    "docs/trust/index.md": ("speed", "null-places"),
    "docs/history/predictions.md": ("atlas-claims", "atlas-count"),
    "studies/surface/README.md": ("persistence", "missed-mxfp4", "missed-loss", "ratio-of-gaps", "share-of-forward",
                                  "passing-exponents", "last-predicted-ratio", "smallest-of-rates", "law-errs", "narrower",
                                  "null-outside", "shared-differ", "half-widths", "share-range"),
    "studies/results/league/README.md": ("until", "league-ratio", "simultaneous", "first", "pairs-count", "not-kept",
                                         "spread-by-noise", "rate-gain", "told", "told-count", "tier-recipes", "tier-end",
                                         "gaps-of-plans", "most-of-switches"),
    "studies/fp8-gap/README.md": ("joined-seeds", "seeds-of", "paired-gap", "paired-percent", "tokens-over"),
    "studies/results/README.md": ("contrast-growth", "contrast-ratio", "null-places", "gap-range", "all-gaps"),
    "studies/results/parity/README.md": ("parity-range", "parity-gap"),
    "studies/stability/README.md": ("limit-range", "best-rate"),
    "studies/architectures/README.md": ("paired-less",),
    "studies/outliers/README.md": ("paired-less", "paired-gap"),
    "studies/atlas/README.md": ("first-block", "closes", "lowest-lower-end", "atlas-kept"),
}

TYPED = re.compile(r"(?<!within )(?<!range )\[[-+]?\d+\.\d+(?: %)?,(?: |&nbsp;)[-+]?\d+\.\d+\](?!\()")
SAID = "too wide", "not decided"


def check_intervals(name, text):
    """Ranges of criteria are typed ("within [1.10, 2.50]"), and no interval is."""
    typed = set(TYPED.findall(blanked(FENCE, blanked(MADE, NUMBER.sub("", text)))))
    assert not typed, f"{name}: typed, not from results: {typed}; write a mark <!--n FUNCTION ARGUMENT ...-->"
    for line, _, sentence, _ in sentences(text):
        if re.search(r"\d\]?(&nbsp;| )\*wide\*", sentence):
            assert any(said in sentence for said in SAID), f"{name}:{line} claims a ratio that is wide: {sentence}"


CODE = re.compile(r"`[^`\n]*`")
TARGET = re.compile(r"\]\([^)\n]*\)")
NAMED = re.compile(r"(?<![\w.])(?:\d{4}\.\d{5}(?!\d)|\d+(?:\.\d+){2,}|\d+\.\d+(?:&nbsp;| )?(?:[kMGT]?B|[kMTm])\b)")
DECIMAL = re.compile(r"(?<![\w.])\d+\.\d+(?:e-?\d+)?")
SAYS = re.compile(r"<!--typed (?:published|setting|measured): ([\d. e-]+)-->")


def check_decimals(name, text):
    """A decimal in prose that is no size (4.7M), version or number of arXiv stands in a mark, or in a list of the page,
    <!--typed KIND: NUMBER ...-->: of another's publication, of a study file or criterion, or measured outside of
    results.json. What stands in a list stands in the prose, too."""
    prose = text
    for pattern in (NUMBER, MADE, FENCE, INDENTED, CODE, TARGET, COMMENT, NAMED):
        prose = blanked(pattern, prose)
    listed = {number for m in SAYS.finditer(text) for number in m[1].split()}
    lines = [(n, number) for n, line in enumerate(prose.split("\n"), 1) for number in DECIMAL.findall(line)]
    typed = [f"{name}:{n}: {number}" for n, number in lines if number not in listed]
    assert not typed, (f"typed, not from results: {typed}; write a mark <!--n FUNCTION ARGUMENT ...-->, or say what it "
                       "is (CONTRIBUTING.md)")
    gone = listed - {number for _, number in lines}
    assert not gone, f"{name}: listed as typed, and not there: {gone}"
    assert text.count("<!--typed ") == len(SAYS.findall(text)), f"{name}: a list <!--typed ...--> that is none"


def main():
    marked = "<!--n f-->1.19 [1.00, 1.41] *wide*<!--/n--> at 72."
    for check, text, right in (
            (check_intervals, f"It is {marked}", False), (check_intervals, f"It is too wide, {marked}", True),
            (check_intervals, "It is 1.2 [1.10, 1.30].", False), (check_intervals, "A ratio within [1.10, 2.50] held.", True),
            (check_decimals, "A gap of 0.02.", False), (check_decimals, "A gap of <!--n f-->0.02<!--/n-->.", True),
            (check_decimals, "4.7M, `0.02`", True), (check_decimals, "A rule says 0.02.\n<!--typed setting: 0.02-->", True),
            (check_decimals, "0.03 <!--typed setting: 0.02-->", False), (check_decimals, "0.02 <!--typed result: 0.02-->", False),
            (check_decimals, "arXiv 2509.25149, c-4.7m.json", True)):
        try:
            check("a page", text)
            found = True
        except AssertionError:
            found = False
        assert found == right, text
    for page in PAGES:
        text = page.read_text()
        check_intervals(page.relative_to(ROOT), text)
        check_decimals(page.relative_to(ROOT), text)
        marks = [m[2] for m in NUMBER.finditer(text)]
        assert text.count("<!--n ") == text.count("<!--/n-->") == len(marks), f"{page}: a mark without its end"
        found = {mark.split()[0] for mark in marks}
        wanted = WANTED.get(str(page.relative_to(ROOT)), ())
        assert found >= set(wanted), f"{page}: no {set(wanted) - found}"
        assert found <= prose_numbers.FUNCTIONS.keys(), f"{page}: {found - prose_numbers.FUNCTIONS.keys()}"
        for mark in NUMBER.finditer(text):
            number = text[mark.end(1):mark.start(3)]
            digit = next(i for i, c in enumerate(number) if c.isdigit()) if any(map(str.isdigit, number)) else None
            if digit is None:
                continue
            wrong = number[:digit] + str((int(number[digit]) + 1) % 10) + number[digit + 1:]
            assert filled(mark[1] + wrong + mark[3]) == mark[0], f"{page}: {mark[2]} lets {wrong} pass"


if __name__ == "__main__":
    main()
