"""Tables of surface/surface.json and surface/law-SIZE.json, which `fp4lab study surface` and `fp4lab study law` make of
several studies, for tables.py."""
import functools
import json
import math
import sys

import widths
from study_tables import HERE, Study, each_text

FACTORS = ("scale format", "block length", "weight tile")  # the columns of shares
COMMAND = "`fp4lab study {0} studies/several/{1}.json --json > studies/results/surface/{1}.json`"


@functools.cache
def surface_document():
    """What `fp4lab study surface studies/several/surface.json --json` prints."""
    return json.loads((HERE / "surface/surface.json").read_text())


@functools.cache
def size_records():
    """The records of BF16-equivalent sizes of surface.json and size.json, checked to be of the results that are here."""
    found = []
    for name in ("surface", "size"):
        document = json.loads((HERE / f"surface/{name}.json").read_text())
        for part in document["studies"] + document["references"]:
            if not is_of_results(part):
                sys.exit(f"{name}.json is not of {part['name']}: run {COMMAND.format('surface', name)}")
        found += document["sizes"]["reference_size"]
    return found


def sizes_of_model(name):
    """The records of size_records() of a study's model, by rising text."""
    return [r for r in size_records() if r["studies"][1] == name]


def registered_sizes(study):
    """{format: the BF16-equivalent size that the study's file registered}."""
    (prediction,) = study.results["study"]["analysis"]["predictions"]
    predicted = json.loads((HERE.parent.parent / prediction["file"]).read_text())
    return {"nvfp4": predicted["te_nvfp4"], "mxfp4": predicted["mxfp4"]}


@functools.cache
def surface_parts():
    """{name: its part of surface.json}."""
    return {part["name"]: part for part in surface_document()["studies"]}


def analyzed(studies):
    """The parts of surface.json that are of these studies."""
    parts = surface_parts()
    for study in studies:
        part = parts[study.results["name"]]
        if not is_of_results(part):
            sys.exit(f"surface.json is not of {part['name']}: run {COMMAND.format('surface', 'surface')}")
        yield study, part


@functools.cache
def hash_of(name):
    return json.loads((HERE / name / "results.json").read_text())["sha256"]


def is_of_results(part):
    """Whether a record of a study and of those that joined it was made of the results.json that are here."""
    return all(p["sha256_of_results"] == hash_of(p["name"]) for p in (part, *part["joined"]))


def predictedsize(studies):
    """A row a budget of a study: its BF16-equivalent sizes beside those that its file registered."""
    rows = ["| bytes of text | bytes per parameter | NVFP4, predicted | measured | MXFP4, predicted | measured |",
            "|---" * 6 + "|"]
    for study in studies:
        predicted, by_text = registered_sizes(study), {}
        for r in sizes_of_model(study.results["name"]):
            by_text.setdefault(r["tokens"], {})[r["arm"]] = r
        for tokens, own in by_text.items():
            cells = []
            for arm in ("nvfp4", "mxfp4"):
                low, high = own[arm]["interval_with_text"]
                verdict = "" if low <= predicted[arm] <= high else ", **missed**"
                cells += [f"{predicted[arm]:.2f}", f"{own[arm]['size']:.3f} [{low:.3f}, {high:.3f}]{verdict}"]
            rows.append(f"| {tokens / 1e6:.0f}M | {each_text(own['nvfp4']['bytes_per_parameter'])} "
                        f"| {' | '.join(cells)} |")
    return rows


def signed_text(number):
    return "{:+.4f} [{:+.4f}, {:+.4f}]".format(number["mean"], *number["interval_t"])


def formed_ratio(ratio, digits):
    """"1.360 [1.210, 1.520] *wide* *?* (shrink form)", of a ratio in surface.json."""
    log = ratio["log_ratio"]
    mean, *interval = map(math.exp, (log["mean"], *log["interval_t"]))
    text = "{:.{d}f} [{:.{d}f}, {:.{d}f}]".format(mean, *interval, d=digits) + widths.mark(interval)
    form = "" if ratio["form"] == "extend" else " (shrink form)"
    return text + ("" if ratio["estimators_agree"] else " *?*") + form


def place(study, part, *bytes_each):
    cells = [study.size(), part["text"], part["sequence"], *map(each_text, bytes_each)]
    return "| " + " | ".join(map(str, cells)) + " |"


def surface(studies):
    """A row a study and budget: the token ratio of MXFP4 to NVFP4 in extend form, and the shares of it."""
    rows = ["| block parameters | text | sequence | NVFP4's bytes each | MXFP4's | tokens of MXFP4 / NVFP4, extend form "
            "| half-width of ln r | seeds for 0.08 | scale format | block length | weight tile |", "|---" * 11 + "|"]
    for study, part in analyzed(studies):
        shares = {r["tokens"]: r["shares"] for r in part["shares"]}
        for r in part["ratios"]:
            if r["form"] != "extend":
                continue
            of = shares.get(r["tokens"], {})
            of = [of[factor] for factor in FACTORS] if of else []
            rows.append(ratio_row(study, part, r)
                        + "".join(" {:+.3f} [{:+.3f}, {:+.3f}] |".format(s["mean"], *s["interval_t"])
                                  for s in of) + " |" * (3 - len(of)))
    return rows


def ratio_row(study, part, r):
    """The cells of a ratio that both forms have."""
    (low, high), nvfp4 = r["log_ratio"]["interval_t"], r["bytes_at_equal_loss"][0]
    return (f"{place(study, part, nvfp4, nvfp4 * math.exp(r['log_ratio']['mean']))} "
            f"{formed_ratio(r, 3).removesuffix(' (shrink form)')} | {(high - low) / 2:.3f} "
            f"| {r['seeds_that_suffice']} |")


def surfaceshrink(studies):
    """A row a study and budget: the token ratio of MXFP4 to NVFP4 in shrink form."""
    rows = ["| block parameters | text | sequence | NVFP4's bytes each | MXFP4's | tokens of MXFP4 / NVFP4, shrink form "
            "| half-width of ln r | seeds for 0.08 |", "|---" * 8 + "|"]
    return rows + [ratio_row(study, part, r) for study, part in analyzed(studies) for r in part["ratios"]
                   if r["form"] == "shrink"]


def surfacegaps(studies):
    """A row a study and budget: losses above BF16's, and how far apart the seeds are."""
    rows = ["| block parameters | text | sequence | bytes each | NVFP4 above BF16, nats | MXFP4 above BF16 "
            "| ratio of gaps | seeds apart by |", "|---|---|---|---|---|---|---|---|"]
    for study, part in analyzed(studies):
        for r in part["gaps"]:
            gap = [signed_text(r[arm]) for arm in ("nvfp4", "mxfp4")]
            rows.append(f"{place(study, part, r['bytes_per_parameter'])} {gap[0]} | {gap[1]} "
                        f"| {r['ratio_of_gaps']:.2f} | {r['apart']:.3f} |")
    return rows


def law(studies):
    """Rows of the law fitted to these studies, surface/law-SIZE.json: each arm's exponents with the gaps that it
    predicts for SIZE, below them those of law-SIZE-seeds.json, the same fit with more seeds, if it is there, and the
    gaps that surface-c-SIZE and its -long measured, where these studies have been run. Where the law has them, such
    rows of BF16's loss and of the token ratio in extend form, too."""
    names = ", ".join(study.results["name"] for study in studies)
    path, fitted = law_file(studies, "law-*.json", joined=False)
    if fitted is None:
        sys.exit(f"no law of {names}: run {COMMAND.format('law', 'law-SIZE')}")
    again = path.with_name(path.stem + "-seeds.json")
    laws = [("predicted", fitted)]
    if again.exists():
        laws.append(("fitted again, all seeds", law_file(studies, again.name, joined=True)[1]))
        if laws[-1][1] is None:
            sys.exit(f"{again.name} is not of {names}: run {COMMAND.format('law', again.stem)}")
    of_size = path.stem.replace("law", "surface-c", 1)
    measured = [Study(name) for name in with_continued(of_size) if (HERE / name).exists()]
    size = fitted["predicted_parameters"]
    places = [p["bytes_per_parameter"] for p in fitted["arms"]["nvfp4"]["predictions"]]
    rows = ["| | | a | b | " + " | ".join(f"at {p:g} bytes each" for p in places) + " |",
            "|---" * (4 + len(places)) + "|"]
    for arm in fitted["arms"]:
        for kind, of_kind in laws:
            fit = of_kind["arms"][arm]
            cells = exponents(fit, "ab") + ["{:.4f} [{:.4f}, {:.4f}]".format(p["gap"], *p["interval_three_seeds"])
                                            for p in fit["predictions"]]
            rows.append(law_row(f"{arm}'s gap, nats", kind, cells))
        for study in measured:
            gaps = {g["tokens"] / size: (g["mean"], *g["interval_t"]) for g in study.results["analysis"]["gaps"]
                    if g["arm"] == arm and g["reference"] == "bf16" and g["precision"] == "training"}
            rows.append(measured_row(study.results["name"], gaps, places, "{:.4f} [{:.4f}, {:.4f}]"))
    return rows + (law_of_loss(laws, of_size) if "loss" in fitted else [])


def law_file(studies, pattern, joined):
    """The path and content of the file of surface/ whose law was fitted to these studies, with others that joined them
    or without; None, None if there is none."""
    names = [study.results["name"] for study in studies]
    for path in sorted((HERE / "surface").glob(pattern)):
        fitted = json.loads(path.read_text())
        parts = [{"joined": []} | part for part in fitted["studies"]]
        if ([part["name"] for part in parts] == names and all(map(is_of_results, parts))
                and any(part["joined"] for part in parts) == joined):
            return path, fitted
    return None, None


def exponents(fit, names):
    return ["{:.2f} [{:.2f}, {:.2f}]".format(fit[name], *fit[name + "_interval"]) for name in names]


def law_row(of, kind, cells):
    return "|" + "".join(f" {cell} |" if cell else " |" for cell in (of if kind == "predicted" else "", kind, *cells))


def with_continued(of_size):
    return of_size, of_size + "-long"


def measured_row(name, values, places, form):
    """`values` at places near those of the law: {bytes per parameter: what `form` takes}."""
    at = [next((value for each, value in values.items() if abs(math.log(each / place)) < 0.01), None)
          for place in places]
    name = name.removeprefix("surface-")
    return f"| | measured, {name} | | | " + " | ".join(form.format(*v) if v else "" for v in at) + " |"


def law_of_loss(laws, of_size):
    """The rows of BF16's loss and of the token ratio; `of_size`: the study that measured them, if it has been run."""
    rows = []
    for kind, of_kind in laws:
        loss = of_kind["loss"]
        cells = exponents(loss, ("alpha", "beta")) + ["{:.3f} [{:.3f}, {:.3f}]".format(p["loss"], *p["interval"])
                                                      for p in loss["predictions"]]
        rows.append(law_row("bf16's loss, nats", kind, cells))
    places = [r["bytes_per_parameter"] for r in laws[0][1]["token_ratios"]]
    parts = surface_parts()
    measured = [parts[name] for name in with_continued(of_size) if name in parts]
    for part in measured:
        losses = {r["bytes_per_parameter"]: (r["bf16"]["mean"], *r["bf16"]["interval_t"]) for r in part["gaps"]}
        rows.append(measured_row(part["name"], losses, places, "{:.3f} [{:.3f}, {:.3f}]"))
    for kind, of_kind in laws:
        cells = ["", ""] + ["{:.2f} [{:.2f}, {:.2f}]".format(r["ratio"], *r["interval_three_seeds"])
                            + widths.mark(r["interval_three_seeds"]) for r in of_kind["token_ratios"]]
        rows.append(law_row("tokens of mxfp4 / nvfp4", kind, cells))
    for part in measured:
        seen = {}
        for r in part["ratios"]:
            if r["form"] == "extend":
                mean, *interval = map(math.exp, (r["log_ratio"]["mean"], *r["log_ratio"]["interval_t"]))
                seen[r["bytes_per_parameter"]] = mean, *interval, widths.mark(interval)
        rows.append(measured_row(part["name"], seen, places, "{:.2f} [{:.2f}, {:.2f}]{}"))
    return rows


def buys(studies):
    """Rows of a study at the first, the middle and the last budget at which both ratios stand in shrink form: tokens of
    NVFP4 and of MXFP4 over BF16's at equal loss, and a quarter of them, the time of all products over BF16's at four
    times its rate."""
    rows = ["| block parameters | bytes per parameter | tokens of NVFP4 / BF16, equal loss, shrink form "
            "| time of its products | tokens of MXFP4 / BF16 | time of its products |", "|---|---|---|---|---|---|"]
    for study, part in analyzed(studies):
        found = {arm: {r["tokens"]: r for r in part["ratios_to_reference"][arm] if r["form"] == "shrink"}
                 for arm in ("nvfp4", "mxfp4")}
        both = [tokens for tokens in part["budgets"] if all(tokens in f for f in found.values())]
        for tokens in sorted({both[0], both[len(both) // 2], both[-1]}):
            ratios = [f[tokens] for f in found.values()]
            cells = [cell for r in ratios for cell in (formed_ratio(r, 2).removesuffix(" (shrink form)"),
                                                       f"{math.exp(r['log_ratio']['mean']) / 4:.2f}")]
            rows.append(f"| {study.size()} | {each_text(ratios[0]['bytes_per_parameter'])} | {' | '.join(cells)} |")
    return rows


KINDS = {"surface": surface, "surfaceshrink": surfaceshrink, "surfacegaps": surfacegaps, "law": law, "buys": buys,
         "predictedsize": predictedsize}
