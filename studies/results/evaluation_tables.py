"""Tables of the evaluations and sizes in surface/surface.json, for tables.py."""
import math

import widths
from study_tables import Study, each_text
from surface_tables import analyzed, size_records, sizes_of_model, surface_document


def evaluated(studies):
    """Pairs of a study and its "evaluation"."""
    return [(study, part["evaluation"]) for study, part in analyzed(studies)]


def sizes_of(studies):
    """"sizes" of surface.json, of these studies."""
    list(analyzed(studies))  # checks that it is of their results
    return surface_document()["sizes"]


def gap_text(gap, interval):
    return "{:+.4f}&nbsp;[{:+.4f},&nbsp;{:+.4f}]".format(gap["mean"], *gap[interval])


def ratio_text(ratio, interval):
    mean, *ends = map(math.exp, (ratio["mean"], *ratio[interval]))
    return "{:.2f}&nbsp;[{:.2f},&nbsp;{:.2f}]".format(mean, *ends) + widths.mark(ends, "&nbsp;")


def overview(studies):
    """A row a study: the ratio at the three largest budgets that the extend form reaches, and the gaps at the largest
    budget, all with intervals that hold the text."""
    rows = ["| block parameters | bytes per parameter | tokens of MXFP4 / NVFP4, equal loss (extend form) "
            "| NVFP4 above BF16, nats per byte | MXFP4 above BF16 | at |", "|---|---|---|---|---|---|"]
    for study, part in evaluated(studies):
        agree = {(r["tokens"], r["form"]): r["estimators_agree"] for _, s in analyzed([study]) for r in s["ratios"]}
        shown = [r for r in part["ratios"] if r["form"] == "extend"][-3:]
        ratios = [ratio_text(r["log_ratio"], "interval_with_text")
                  + "&nbsp;*?*" * (not agree[r["tokens"], "extend"]) for r in shown]
        places = [each_text(r["bytes_per_parameter"]) for r in shown]
        last = part["gaps"][-1]
        gaps = [gap_text(last[arm], "interval_with_text") for arm in ("nvfp4", "mxfp4")]
        rows.append(f"| {study.size()} | {'<br>'.join(places)} | {'<br>'.join(ratios)} "
                    f"| {' | '.join(gaps)} | {each_text(last['bytes_per_parameter'])} |")
    return rows


def withtext(studies):
    """A row a study and budget: both intervals of the gaps, and the ratio of the gaps with its own."""
    rows = ["| block parameters | bytes per parameter | NVFP4 above BF16, nats per byte: over seeds | and text "
            "| MXFP4 above BF16: over seeds | and text | ratio of the gaps, over seeds |", "|---" * 7 + "|"]
    for study, part in evaluated(studies):
        for gap in part["gaps"]:
            cells = [gap_text(gap[arm], key) for arm in ("nvfp4", "mxfp4")
                     for key in ("interval_t", "interval_with_text")]
            of = gap["ratio_of_gaps"]
            bounds = "[{:.2f},&nbsp;{:.2f}]".format(*of["interval"]) if of["interval"] else "unbounded"
            rows.append(f"| {study.size()} | {each_text(gap['bytes_per_parameter'])} | {' | '.join(cells)} "
                        f"| {of['ratio']:.2f}&nbsp;{bounds} |")
    return rows


def ratiotext(studies):
    """A row a study and budget: both intervals of the token ratio in extend form."""
    rows = ["| block parameters | bytes per parameter | tokens of MXFP4 / NVFP4, extend form: over seeds | and text |",
            "|---|---|---|---|"]
    for study, part in evaluated(studies):
        for r in part["ratios"]:
            if r["form"] == "extend":
                both = [ratio_text(r["log_ratio"], key) for key in ("interval_t", "interval_with_text")]
                rows.append(f"| {study.size()} | {each_text(r['bytes_per_parameter'])} | {' | '.join(both)} |")
    return rows


def served(studies):
    """A row a study: gaps at the largest budget and ratios in extend form, where BF16 products evaluate the weights."""
    rows = ["| block parameters | bytes per parameter | evaluated by | NVFP4 above BF16, nats per byte "
            "| MXFP4 above BF16 | tokens of MXFP4 / NVFP4, extend form, at bytes per parameter |", "|---" * 6 + "|"]
    for study, part in evaluated(studies):
        last = part["gaps"][-1]
        for by, gap, ratios in (("4-bit products", last, part["ratios"]),
                                ("BF16 products", last["high"], part["high_ratios"])):
            shown = [f"{ratio_text(r['log_ratio'], 'interval_t')} at {each_text(r['bytes_per_parameter'])}"
                     for r in ratios if r["form"] == "extend"][-3:]
            rows.append(f"| {study.size()} | {each_text(last['bytes_per_parameter'])} | {by} "
                        f"| {gap_text(gap['nvfp4'], 'interval_t')} | {gap_text(gap['mxfp4'], 'interval_t')} "
                        f"| {'<br>'.join(shown)} |")
    return rows


def size_text(studies):
    return {study.results["name"]: study.size() for study in studies}


def samebytes(studies):
    """A row an arm, form and pair of budgets: tokens over BF16's of two sizes at equal bytes per parameter."""
    document = sizes_of(studies)
    size = size_text(studies)
    rows = ["| format | sizes | bytes per parameter | form | tokens / BF16's, equal loss | larger size / smaller |",
            "|---" * 6 + "|"]
    for r in sorted(document["same_bytes"], key=lambda r: r["arm"] != "nvfp4"):
        of = r["log_difference"]
        factor, *ends = map(math.exp, (of["mean"], *of["interval"]))
        rows.append(f"| {r['arm'].upper()} | {' -> '.join(size[s] for s in r['studies'])} "
                    f"| {' -> '.join(dict.fromkeys(each_text(b) for b in r['bytes_per_parameter']))} | {r['form']} "
                    f"| {' -> '.join(f'{v:.2f}' for v in r['ratios'])} "
                    f"| {factor:.3f} [{ends[0]:.3f}, {ends[1]:.3f}]{widths.mark(ends)} |")
    return rows


def sametext(studies):
    """A row a size: tokens over BF16's after the same text."""
    document = sizes_of(studies)
    size, found = size_text(studies), document["same_text"]
    rows = [f"| block parameters | bytes per parameter | NVFP4's tokens / BF16's after {found[0]['tokens'] / 1e6:.0f}M "
            f"bytes ({found[0]['form']} form) | MXFP4's |", "|---|---|---|---|"]
    for name in size:
        own = {r["arm"]: r for r in found if r["study"] == name}
        cells = ["{:.2f} [{:.2f}, {:.2f}]".format(own[arm]["ratio"], *own[arm]["interval"])
                 + widths.mark(own[arm]["interval"]) for arm in ("nvfp4", "mxfp4")]
        rows.append(f"| {size[name]} | {each_text(own['nvfp4']['bytes_per_parameter'])} | {' | '.join(cells)} |")
    return rows


def bf16size(studies):
    """A row a size and budget: the size of a BF16 model of the same loss, over the model's."""
    size, found = size_text(studies), {}
    for name in size:
        for r in sizes_of_model(name):
            found.setdefault((name, r["tokens"]), {})[r["arm"]] = r
    rows = ["| block parameters | bytes of text | bytes per parameter | NVFP4's size in BF16 / its own, with text "
            "| MXFP4's |",
            "|---|---|---|---|---|"]
    for (name, tokens), own in found.items():
        cells = ["{:.2f} [{:.2f}, {:.2f}]".format(own[arm]["size"], *own[arm]["interval_with_text"])
                 for arm in ("nvfp4", "mxfp4")]
        rows.append(f"| {size[name]} | {tokens / 1e6:.0f}M | {each_text(own['nvfp4']['bytes_per_parameter'])} "
                    f"| {' | '.join(cells)} |")
    return rows


def decision(studies):
    """A row a study at its largest budget, in shrink form: tokens over BF16's and MXFP4's over NVFP4's, and the size of
    NVFP4's BF16 model where surface.json or size.json has it."""
    sizes = {(r["studies"][1], r["tokens"]): r for r in size_records() if r["arm"] == "nvfp4"}
    rows = ["| block parameters | bytes per parameter | seeds | NVFP4's tokens / BF16's | MXFP4's tokens / NVFP4's "
            "| NVFP4 learns like a BF16 model of this share of its size |", "|---" * 6 + "|"]
    for study, part in analyzed(studies):
        last = shrink(part["evaluation"]["ratios"])[-1]
        agrees = next(r["estimators_agree"] for r in shrink(part["ratios"]) if r["tokens"] == last["tokens"])
        above = next(r for r in shrink(part["ratios_to_reference"]["nvfp4"]) if r["tokens"] == last["tokens"])
        size = sizes.get((study.results["name"], last["tokens"]))
        seeds = {s for name in (part["name"], *(j["name"] for j in part["joined"]))
                 for s in Study(name).results["study"]["seeds"]}
        cells = [study.size(), each_text(last["bytes_per_parameter"]), str(len(seeds)),
                 ratio_text(above["log_ratio"], "interval_t"),
                 ratio_text(last["log_ratio"], "interval_with_text") + "&nbsp;*?*" * (not agrees),
                 "{:.0f}&nbsp;%&nbsp;[{:.0f},&nbsp;{:.0f}]".format(
                     *(100 * v for v in (size["size"], *size["interval_with_text"]))) if size else ""]
        rows.append(f"| {' | '.join(cells)} |")
    return rows


def shrink(ratios):
    return [r for r in ratios if r["form"] == "shrink"]


KINDS = {"decision": decision, "overview": overview, "withtext": withtext, "ratiotext": ratiotext,
         "served": served, "samebytes": samebytes,
         "sametext": sametext, "bf16size": bf16size}
