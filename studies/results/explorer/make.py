#!/usr/bin/env python3
"""The league's explorer: one page that reads nothing else, from committed results.

    python3 studies/results/explorer/make.py [--check]

writes studies/results/league/explorer.html. A browser without scripts shows the table against te_nvfp4. With --check
nothing is written, and the exit code is 1 if the page differs from its data.
"""
import argparse
import html
import json
import sys

from rows import HERE, RESULTS, data, difference

PAGE = RESULTS / "league/explorer.html"
BASELINE = "te_nvfp4"
MARKS = {"lower loss": ("lower", '<path d="M1 3H11L6 10Z"/>'), "higher loss": ("higher", '<path d="M1 9H11L6 2Z"/>'),
         "not told apart": ("same", '<circle cx="6" cy="6" r="4"/>')}


def verdict(d):
    if d is None:
        return "baseline"
    mean, half, _ = d
    if half is None:
        return "noise not known"
    return "lower loss" if mean + half < 0 else "higher loss" if mean - half > 0 else "not told apart"


def difference_text(d):
    if d is None:
        return ""
    mean, half, _ = d
    return f"{mean:+.4f}" + ("" if half is None else f" [{mean - half:+.4f}, {mean + half:+.4f}]")


def ratio_text(row):
    if row["recipe"] == "bf16":
        return ""
    if row["ratio"] is None:
        return "out of reach"
    mean, *ends = row["ratio"]
    return f"{mean:.2f}" + (f" [{ends[0]:.2f}, {ends[1]:.2f}]" if ends else "")


def number_and_interval(text):
    """An interval is never broken."""
    number, bracket, interval = text.partition(" [")
    return f'{number} <span class="interval">[{interval}</span>' if bracket else text


def compared(size):
    """[(row, difference from the baseline, verdict)] of the recipes with 4-bit products only, by difference."""
    base = next(row for row in size["rows"] if row["recipe"] == BASELINE)
    found = [(row, difference(size, row, base)) for row in size["rows"] if row["four"]]
    found = [(row, d, verdict(d)) for row, d in found]
    return sorted(found, key=lambda of: of[1][0] if of[1] else 0.0)


def row_html(document, row, d, text):
    css, mark = MARKS.get(text, ("", ""))
    plan, chip = document["plans"][row["plan"]], document["chips"][row["chip"]]
    until = f"{row['ratio'][0] * row['time']:.2f}" if row["ratio"] else ""
    return (f'<tr><th scope="row">{row["recipe"]}<small>{html.escape(row["title"])}</small></th>'
            f'<td class="number">{number_and_interval(difference_text(d))}</td><td class="plot"></td>'
            f'<td class="verdict {css}"><svg viewBox="0 0 12 12" aria-hidden="true">{mark}</svg> {text}</td>'
            f'<td class="number wide">{number_and_interval(ratio_text(row))}</td><td class="number wide">{row["time"]:.2f}</td>'
            f'<td class="number wide">{until}</td><td class="wide plan">{plan}</td><td class="wide">{chip}</td>'
            f'<td class="number wide seeds">{len(row["losses"])}</td></tr>\n')


def sentence(found):
    best, d, text = next(of for of in found if of[1] and of[1][1] is not None)
    count = {name: sum(of[2] == name for of in found) for name in MARKS}
    return (f"{best['recipe']} - {BASELINE}: {difference_text(d)}, {text}. "
            f"Of the {len(found) - 1} others shown, {count['lower loss']} have a lower loss than {BASELINE}, "
            f"{count['higher loss']} a higher one, and {count['not told apart']} are not told apart.")


def page():
    document = data()
    first = next(iter(document["sizes"]))
    found = compared(document["sizes"][first])
    parts = {
        "style": (HERE / "page.css").read_text(), "script": (HERE / "page.js").read_text(),
        "verdict": sentence(found), "rows": "".join(row_html(document, *of) for of in found),
        "shown": f"{len(found)} of {len(document['sizes'][first]['rows'])} recipes, {first} block parameters",
        "sizes": "".join(f'<option value="{size}">{size}, {len(of["rows"])} recipes</option>'
                         for size, of in document["sizes"].items()),
        "features": "".join(f'<label><input type="checkbox" data-feature="{i}"> {name}</label>'
                            for i, name in enumerate(document["features"])),
        "data": json.dumps(document, separators=(",", ":")).replace("<", "\\u003c")}
    text = (HERE / "page.html").read_text()
    for name, part in parts.items():
        text = text.replace("{" + name + "}", part, 1)
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 on a difference")
    text = page()
    if not parser.parse_args().check:
        PAGE.write_text(text)
    elif not PAGE.exists() or PAGE.read_text() != text:
        sys.exit(f"{PAGE} differs from its data; run python3 studies/results/explorer/make.py")


if __name__ == "__main__":
    main()
