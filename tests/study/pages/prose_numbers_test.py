"""Checks the marks around numbers in the sentences of pages: studies/results/tables.py knows each of them and finds a
wrong number, and the pages hold the numbers that their findings rest on."""
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "studies/results"))
import prose_numbers  # noqa: E402
from tables import NUMBER, PAGES, filled  # noqa: E402

WANTED = {  # page: the functions whose numbers it must print
    "README.md": ("recipe-count", "ratio-with-text", "star"),
    "docs/findings/index.md": ("league-ratio", "star", "spread-by-noise", "first", "hits", "missed-mxfp4",
                               "missed-loss", "held", "atlas-count"),
    "docs/findings/sizes.md": ("growth", "exponent", "predicted", "measured", "hits", "missed-mxfp4", "missed-loss",
                               "same-text", "same-bytes", "held"),
    "docs/findings/recipes.md": ("star", "first", "simultaneous", "league-recipe-count"),
    "docs/findings/others.md": ("paired-less", "atlas-count", "atlas-less", "atlas-kept", "first-block", "closes"),
    "docs/trust/index.md": ("speed",),
    "studies/surface/README.md": ("persistence", "missed-mxfp4", "missed-loss", "ratio-of-gaps", "share-of-forward",
                                  "passing-exponents", "last-predicted-ratio", "smallest-of-rates"),
    "studies/results/league/README.md": ("until", "league-ratio", "simultaneous", "first", "pairs-count", "not-kept",
                                         "spread-by-noise", "rate-gain", "told", "told-count", "tier-recipes", "tier-end"),
    "studies/fp8-gap/README.md": ("joined-seeds", "seeds-of", "paired-gap", "paired-percent", "tokens-over"),
    "studies/architectures/README.md": ("paired-less",),
    "studies/outliers/README.md": ("paired-less", "paired-gap"),
    "studies/atlas/README.md": ("first-block", "closes", "lowest-lower-end", "atlas-kept"),
}


def main():
    for page in PAGES:
        text = page.read_text()
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
