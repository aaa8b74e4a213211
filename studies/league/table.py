#!/usr/bin/env python3
"""The league table of recipes.

    python3 studies/league/table.py studies/results/league-h100 --results out/league/results.json

reads the results of a study whose arms are recipes and writes league.json (the table's numbers, with
the hash of the results), league.svg and README.md's table between its markers. Without --results the
numbers are read from league.json. With --check no file is written; the exit code is 1 if the page or
the figure differs.
"""
import argparse
import json
import math
import pathlib
import sys

from costs import bf16_blocks

T975 = {2: 4.3027, 3: 3.1824, 4: 2.7764}  # Student's t by degrees of freedom


def interval(values):
    n = len(values)
    mean = sum(values) / n
    deviation = math.sqrt(sum((v - mean) ** 2 for v in values) / (n - 1))
    half = T975[n - 1] * deviation / math.sqrt(n)
    return [mean, mean - half, mean + half]


def read(path):
    results = json.loads(path.read_text())
    analysis, study = results["analysis"], results["study"]
    last = max(analysis["budgets"])
    arms = {}
    for gap in analysis["gaps"]:
        if gap["tokens"] == last and gap["precision"] == "training":
            arms[gap["arm"]] = {"per_seed": gap["per_seed"], "diverged": gap["diverged"]}
    for ratio in analysis["token_ratios"]:
        if (ratio["tokens"] == last and ratio["precision"] == "training"
                and ratio["estimator"] == "crossing" and ratio["format"] in arms):
            arms[ratio["format"]][ratio["form"]] = (
                [ratio["ratio"], *ratio["interval_t"]]
                if ratio["identified"] and ratio["interval_t"] else None)
    nvfp4 = arms["te_nvfp4"]["per_seed"]
    rows = []
    for name, arm in arms.items():
        recipe = study["arms"][name]["recipe"]
        row = {"recipe": name, "bf16_blocks": bf16_blocks(recipe, study["model"]["layers"]),
               "diverged": arm["diverged"], "extend": arm.get("extend"), "shrink": arm.get("shrink")}
        if None not in arm["per_seed"]:
            row["gap"] = interval(arm["per_seed"])
            row["to_te_nvfp4"] = interval([a - b for a, b in zip(arm["per_seed"], nvfp4)])
        rows.append(row)
    rows.sort(key=lambda r: r["gap"][0] if "gap" in r else math.inf)
    return {"name": results["name"], "fp4lab_version": results["fp4lab_version"],
            "results_sha256": results["sha256"], "tokens": last, "seeds": len(analysis["seeds"])
            if isinstance(analysis["seeds"], list) else analysis["seeds"],
            "block_parameters": analysis["block_parameters"], "corpus": results["corpus"],
            "model": study["model"], "rows": rows}


def bracket(numbers, digits, sign=""):
    mean, low, high = (f"{v:{sign}.{digits}f}" for v in numbers)
    return f"{mean} [{low}, {high}]"


def table(league):
    lines = ["| recipe | loss minus BF16's, nats | minus te_nvfp4's | tokens / BF16's | blocks in BF16 |",
             "|---|---|---|---|---|"]
    for row in league["rows"]:
        ratio = "not identified"
        if row["extend"]:
            ratio = bracket(row["extend"], 2)
        elif row["shrink"]:
            ratio = bracket(row["shrink"], 2) + " s"
        gap = bracket(row["gap"], 4, "+") if "gap" in row else f"{row['diverged']} runs diverged"
        other = bracket(row["to_te_nvfp4"], 4, "+") if "to_te_nvfp4" in row else ""
        lines.append(f"| {row['recipe']} | {gap} | {other} | {ratio} | {row['bf16_blocks'] or ''} |")
    return "\n".join(lines)


def figure(league):
    rows = [r for r in league["rows"] if "gap" in r]
    height, left, right, top, step = 54 + 13 * len(rows), 290, 840, 48, 13
    least, most = -0.025, 0.1
    x = lambda v: left + (right - left) * (min(max(v, least), most) - least) / (most - least)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 860 {height + 10}" '
           'font-family="sans-serif" font-size="10">',
           '<style>text{fill:#333}.g{stroke:#ccc}.i{stroke:#0072b2;stroke-width:2}.d{fill:#0072b2}'
           '@media(prefers-color-scheme:dark){text{fill:#ddd}.g{stroke:#444}.i{stroke:#4fb0ea}'
           '.d{fill:#4fb0ea}}</style>',
           f'<text x="10" y="14" font-size="12">Loss minus BF16\'s after {league["tokens"]:,} tokens, '
           f'nats: mean and 95 % interval over {league["seeds"]} seeds</text>']
    for tick in (-0.02, 0, 0.02, 0.04, 0.06, 0.08, 0.1):
        out.append(f'<line class="g" x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="{top - 8}" y2="{height}"/>'
                   f'<text x="{x(tick):.1f}" y="{top - 11}" text-anchor="middle">{tick:.2f}</text>')
    for i, row in enumerate(rows):
        y = top + step * i + 4
        mean, low, high = row["gap"]
        out.append(f'<text x="{left - 8}" y="{y + 3}" text-anchor="end">{row["recipe"]}</text>')
        if low > most:
            out.append(f'<text x="{right}" y="{y + 3}" text-anchor="end">{mean:.2f}, beyond</text>')
            continue
        out.append(f'<line class="i" x1="{x(low):.1f}" x2="{x(high):.1f}" y1="{y}" y2="{y}"/>'
                   f'<circle class="d" cx="{x(mean):.1f}" cy="{y}" r="3"/>')
    return "\n".join(out + ["</svg>\n"])


def with_table(page, league):
    begin, end = "<!-- table: begin -->\n", "\n<!-- table: end -->"
    first, last = page.index(begin) + len(begin), page.index(end)
    return page[:first] + table(league) + page[last:]


def main():
    parser = argparse.ArgumentParser(description="The league table of recipes")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--results", type=pathlib.Path)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    data = options.folder / "league.json"
    league = read(options.results) if options.results else json.loads(data.read_text())
    page = (options.folder / "README.md").read_text()
    made = {data: json.dumps(league, indent=1) + "\n", options.folder / "league.svg": figure(league),
            options.folder / "README.md": with_table(page, league)}
    for path, text in made.items():
        if options.check:
            if path.read_text() != text:
                sys.exit(f"{path} differs from {data}: run {sys.argv[0]} {options.folder}")
        else:
            path.write_text(text)


main()
