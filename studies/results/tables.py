#!/usr/bin/env python3
"""The tables of token ratios and criteria in README.md, studies/results/README.md and studies/atlas/README.md.

    python3 studies/results/tables.py [--check]

replaces every part of these pages between a line <!-- table KIND STUDY ... --> and the line
<!-- end of table --> by the table that the "analysis" of STUDY/results.json gives. With --check no
file is written, and the exit code is 1 if a page differs from its data.
"""
import argparse
import json
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
PAGES = [HERE.parent.parent / "README.md", HERE / "README.md", HERE.parent / "atlas/README.md"]


class Study:
    def __init__(self, name):
        path = HERE / name / "results.json"
        if not path.exists():
            sys.exit(f"{name}: there is no {path}; name a folder of studies/results")
        self.results = json.loads(path.read_text())
        self.analysis = self.results["analysis"]

    def size(self):
        millions = self.results["model"]["block_parameters"] / 1e6
        return f"{millions:.{1 if millions < 10 else 0}f}M"

    def ratio(self, tokens, estimator, form):
        pair = self.results["study"]["analysis"]["contrast"]
        return next(r for r in self.analysis["token_ratios"]
                    if r["precision"] == "training" and [r["format"], r["reference"]] == pair
                    and (r["tokens"], r["estimator"], r["form"]) == (tokens, estimator, form))

    def gap(self, arm):
        """The arm's mean gap at the largest budget."""
        reference = self.results["study"]["analysis"]["reference"]
        return next(f"{g['mean']:+.3f}" for g in self.analysis["gaps"]
                    if g["precision"] == "training" and g["tokens"] == self.analysis["budgets"][-1]
                    and (g["arm"], g["reference"]) == (arm, reference))


def per_parameter(ratio):
    x = ratio["tokens_per_parameter"]
    return f"{x:.{1 if x < 10 else 0}f}"


def ratio_text(ratio):
    """"1.36 [1.21, 1.52]", with " *e*" if a seed is extrapolated and " *?*" if estimators part."""
    if not ratio["identified"]:
        return ""
    text = f"{ratio['ratio']:.2f}"
    if ratio["interval_t"]:
        text += " [{:.2f}, {:.2f}]".format(*ratio["interval_t"])
    return text + (" *e*" if ratio["extrapolated"] else "") + (" *?*" if ratio["disagreement"] else "")


def overview(studies):
    """A row a study: at each budget the extend form, or the shrink form where that is identified
    alone."""
    rows = ["| block parameters | tokens each | ratio | gaps of NVFP4, MXFP4 to BF16 |",
            "|---|---|---|---|"]
    for study in studies:
        each, ratios = [], []
        for tokens in study.analysis["budgets"]:
            forms = [study.ratio(tokens, "crossing", form) for form in ("extend", "shrink")]
            shown = next((r for r in forms if r["identified"]), None)
            if shown:
                each.append(per_parameter(shown))
                text = ratio_text(shown)
                if shown["form"] == "shrink":
                    text = text.replace("]", "] *s*", 1)
                ratios.append(text.replace(" ", "&nbsp;"))
        rows.append(f"| {study.size()} | {'<br>'.join(each)} | {'<br>'.join(ratios)} "
                    f"| {study.gap('nvfp4')}, {study.gap('mxfp4')} |")
    return rows


def ratios(studies):
    """A row a budget, with both forms of the crossing and the other two estimators."""
    rows = ["| parameters | tokens each | crossing, extend | crossing, shrink | power law "
            "| shared baseline |", "|---|---|---|---|---|---|"]
    for study in studies:
        for tokens in study.analysis["budgets"]:
            cells = [study.ratio(tokens, "crossing", "extend"),
                     study.ratio(tokens, "crossing", "shrink"),
                     study.ratio(tokens, "power_law", "extend"),
                     study.ratio(tokens, "shared_baseline", "extend")]
            rows.append(f"| {study.size()} | {per_parameter(cells[0])} | "
                        + " | ".join(map(ratio_text, cells)) + " |")
    return rows


def verdict(criterion):
    held = criterion["status"] in ("held", "reproduced")
    return criterion["status"] if held else f"**{criterion['status']}**"


def criteria(studies):
    several = len(studies) > 1
    rows = ["|" + " parameters |" * several + " criterion | verdict | numbers |",
            "|---" * (3 + several) + "|"]
    for study in studies:
        for c in study.analysis["criteria"]:
            rows.append((f"| {study.size()} " if several else "")
                        + f"| {c['statement']} | {verdict(c)} | {c['numbers']} |")
    return rows


def missed(studies):
    """A row for each criterion that did not hold everywhere, with the numbers of each failure."""
    rows = ["| criterion | not held at |", "|---|---|"]
    places = {}
    for study in studies:
        for c in study.analysis["criteria"]:
            if c["status"] not in ("held", "reproduced"):
                statement = re.sub(r",? from \S+ tokens on", "", c["statement"])
                numbers = f" ({c['numbers']})" if c["status"] in ("failed", "not reproduced") else ""
                places.setdefault(statement, []).append(f"{study.size()}: {verdict(c)}{numbers}")
    return rows + [f"| {statement} | {'<br>'.join(where)} |" for statement, where in places.items()]


def gap_text(study, arm):
    """"+0.027 [+0.021, +0.033]": the arm's gap to the reference at the largest budget, in nats."""
    reference = study.results["study"]["analysis"]["reference"]
    gap = next(g for g in study.analysis["gaps"]
               if g["precision"] == "training" and g["tokens"] == study.analysis["budgets"][-1]
               and (g["arm"], g["reference"]) == (arm, reference))
    interval = gap["interval_t"]
    return f"{gap['mean']:+.4f}" + (" [{:+.4f}, {:+.4f}]".format(*interval) if interval else "")


def atlas(studies):
    """A row a claim, with the study's question, source and verdict."""
    rows = ["| study | claim | source | verdict | numbers |", "|---|---|---|---|---|"]
    for study in studies:
        short = study.results["name"].removeprefix("atlas-")
        link = f"[{short}]({short}.json)"
        for c in study.analysis["criteria"]:
            if c.get("source"):
                rows.append(f"| {link} | {c.get('claim', c['statement'])} | {c['source']} | {verdict(c)} "
                            f"| {c['numbers']} |")
    return rows


def gaps(studies):
    """A row an arm: the gap to the study's reference at the largest budget."""
    rows = ["| study | arm | loss minus the reference's, nats |", "|---|---|---|"]
    for study in studies:
        short = study.results["name"].removeprefix("atlas-")
        reference = study.results["study"]["analysis"]["reference"]
        for arm in study.results["study"]["arm_order"]:
            if arm != reference:
                rows.append(f"| {short} | {arm} | {gap_text(study, arm)} |")
    return rows


KINDS = {"overview": overview, "ratios": ratios, "criteria": criteria, "missed": missed,
         "atlas": atlas, "gaps": gaps}
PART = re.compile(r"(<!-- table (\w+) ([\w .-]+?) -->\n).*?(<!-- end of table -->)", re.DOTALL)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 on a difference")
    options = parser.parse_args()
    differs = False
    for page in PAGES:
        text = page.read_text()
        new = PART.sub(lambda m: m[1] + "\n".join(KINDS[m[2]](list(map(Study, m[3].split())))) + "\n"
                       + m[4], text)
        if new == text:
            continue
        if options.check:
            print(f"{page} differs from its data; run python3 studies/results/tables.py")
            differs = True
        else:
            page.write_text(new)
    sys.exit(differs)


if __name__ == "__main__":
    main()
