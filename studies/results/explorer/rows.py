"""The rows of the league's explorer: per-seed losses, plans and what tensor cores multiply, from committed results."""
import json
import math
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
RESULTS = HERE.parent
sys.path.insert(0, str(RESULTS))
import league_tables  # noqa: E402
from significance import student_quantile  # noqa: E402
from study_tables import Study  # noqa: E402

SIZES = {  # label: file of the league and the studies that it is made of
    "1.2M": ("league.json", ["league-c-1.2m-4bit", "league-c-1.2m-4bit-more", "league-c-1.2m-rest",
                             "league-c-1.2m-references", "surface-c-1.2m"]),
    "4.7M": ("league-4.7m.json", ["league-c-4.7m", "surface-c-4.7m"]),
}
GEMMS = {"fprop": ("input", "weight"), "dgrad": ("grad", "weight"), "wgrad": ("grad", "input")}
CHIPS = ("Hopper, Blackwell", "Blackwell", "neither")
FEATURES = ("Hadamard transform", "stochastic rounding", "four over six", "MS-EDEN", "square blocks of weights",
            "BF16 in part")
TITLES = {"bf16": "BF16: operands of every linear rounded to BF16",
          "null": "BF16 with one weight moved by one ulp: the noise floor"}


def kind(operand):
    """What a tensor core would have to multiply: BF16, FP8, MXFP8, MXFP4, NVFP4, or a kind that none multiplies.

    Tensor and row scales multiply the result, so they need no support. FP8 with a scale in binary32 per block is a sum
    outside of the tensor cores, in blocks of 128."""
    of = operand["format"]
    if of == "none":
        return "BF16"
    own = of if isinstance(of, dict) else {"like": of}
    family = own["like"].split(".")[0]
    element = own.get("element", "e4m3" if "8" in family else "e2m1")
    scale = own.get("scale", {"nvfp4": "e4m3", "mxfp4": "e8m0", "mxfp8_e4m3": "e8m0", "mxfp8_e5m2": "e8m0",
                              "fp8_e4m3": "tensor", "fp8_e5m2": "tensor"}[family])
    block = max(own.get("block", [0, 32 if scale == "e8m0" else 16]))
    if element in ("e4m3", "e5m2"):
        return {"e8m0": "MXFP8", "tensor": "FP8", "fp32": "FP8"}[scale]
    if element == "e2m1" and scale == "e4m3" and block == 16:
        return "NVFP4"
    if element == "e2m1" and scale == "e8m0" and block % 32 == 0:
        return "MXFP4"
    scales = "" if scale == "tensor" else f" under {scale.upper()} scales"
    return {"e0m3": "INT4"}.get(element, element.upper()) + scales + ("" if scale == "tensor" else f" of {block}")


def chip(a, b):
    """The place in CHIPS of the first that multiplies two kinds at the rate of the wider one."""
    kinds = {a, b}
    if kinds <= {"BF16"} or kinds == {"FP8"} or "BF16" in kinds:  # a product with BF16 is one of decoded values
        return 0
    if kinds in ({"NVFP4"}, {"E2M1"}) or kinds <= {"MXFP4", "MXFP8"}:  # E2M1 alone is MXFP4 under scales of 1
        return 1
    return 2


def recipes_in(recipe):
    """A recipe and all that it changes to."""
    if "rules" in recipe:
        for rule in recipe["rules"]:
            yield from recipes_in(rule["recipe"])
        yield from recipes_in(recipe["rest"])
        return
    yield recipe
    if "then" in recipe:
        yield from recipes_in(recipe["then"]["recipe"])


def support(recipe):
    """(place in CHIPS, the kinds of each GEMM of the first recipe)."""
    found = [[kind(one[gemm][operand]) for operand in GEMMS[gemm]] for one in recipes_in(recipe) for gemm in GEMMS]
    return max(chip(*pair) for pair in found), [sorted(set(pair)) for pair in found[:3]]


def formats_of(recipe):
    for one in recipes_in(recipe):
        for gemm, operands in GEMMS.items():
            for operand in operands:
                yield operand, one[gemm][operand]


def features(recipe, row):
    """Which of FEATURES the recipe has."""
    operands = list(formats_of(recipe))
    texts = [json.dumps(of["format"]) for _, of in operands]

    def is_square(of):
        own = of["format"]
        return own.get("block", [1, 1])[0] > 1 if isinstance(own, dict) and "block" in own else \
            (own if isinstance(own, str) else own["like"]).endswith(".2d")

    has = (row["extras"]["hadamard"] > 0 or any(of["hadamard"] for _, of in operands),
           any(of["rounding"] == "stochastic" for _, of in operands),
           any(mark in text for text in texts for mark in ("4over6", "fouroversix.mse", '"adaptive"')),
           row["extras"]["ms_eden"] > 0,
           any(name == "weight" and of["format"] != "none" and is_square(of) for name, of in operands),
           bool(row["partly"]))
    return [i for i, one in enumerate(has) if one]


def losses_of(studies, budget):
    """{arm: {seed: loss}} after the budget, of all studies; (arm: resolved recipe)."""
    losses, recipes = {}, {}
    for study in studies:
        for run in study.results["runs"]:
            for point in run["points"]:
                if point["tokens"] == budget:
                    losses.setdefault(run["arm"], {})[run["seed"]] = point["validation_loss"]
        for name, arm in study.results["study"]["arms"].items():
            recipes.setdefault(name, arm["recipe"])
    return losses, recipes


def size(file, names):
    """All that the page needs of one size."""
    studies = list(map(Study, names))
    document = league_tables.league(studies, file)
    losses, recipes = losses_of(studies, document["budget"])
    titles = league_tables.titles_of_recipes() | TITLES
    rows = []
    for row in document["rows"]:
        name = row["recipe"]
        place, kinds = support(recipes[name])
        ratio = row["log_ratio"]["bf16"]
        rows.append({
            "recipe": name, "title": titles[name], "forward": row["forward"], "plan": row["plan"],
            "four": row["four_bits"], "pool": row["pool"], "chip": place, "kinds": kinds,
            "features": features(recipes[name], row), "shares": [round(row["shares"][k], 6) for k in ("4", "8", "16")],
            "time": round(row["product_time"], 6),
            "ratio": ratio and [round(math.exp(x), 6) for x in (ratio["mean"], *(ratio["interval"] or []))],
            "losses": {str(seed): round(losses[name][seed], 9) for seed in row["seeds"]}})
    noise = document["noise"]
    return {"rows": rows, "budget": document["budget"], "parameters": document["block_parameters"],
            "degrees": {pool: of["degrees_of_freedom"] for pool, of in noise["pools"].items()},
            "half": noise["half_width_of_one_seed"]}


def data():
    sizes = {label: size(*of) for label, of in SIZES.items()}
    document = json.loads((RESULTS / "league/league.json").read_text())
    return {"sizes": sizes, "forwards": document["forwards"], "plans": document["plans"], "chips": CHIPS,
            "features": FEATURES}


def difference(of, a, b, level=0.05):
    """(mean, half-width or None, seeds) of the losses of a less those of b, over the seeds of both; the pooled noise
    of the league's page."""
    seeds = sorted(a["losses"].keys() & b["losses"].keys(), key=int)
    if not seeds or a is b:
        return None
    mean = sum(a["losses"][s] - b["losses"][s] for s in seeds) / len(seeds)
    if not (a["pool"] and b["pool"]):
        return mean, None, len(seeds)
    pools = sorted((a["pool"], b["pool"]))
    half = of["half"].get(", ".join(pools)) or of["half"].get(", ".join(reversed(pools)))
    if half is None:
        return mean, None, len(seeds)
    degrees = min(of["degrees"][pool] for pool in pools)
    scale = 1 if level == 0.05 else student_quantile(1 - level / 2, degrees) / student_quantile(0.975, degrees)
    return mean, half * scale / math.sqrt(len(seeds)), len(seeds)
