"""How much of a recipe's GEMMs multiplies elements of how many bits, from its resolved form in results.json."""
import math

GEMMS = ("fprop", "dgrad", "wgrad")
LINEARS = (("attention", 4), ("mlp", 8))  # multiplications a token in units of d_model^2: qkv and out, up and down


def bits(form):
    """The width of an operand's elements: 4, 8 or 16 bits."""
    if isinstance(form, dict):
        element = form.get("element")
        if element:
            return {"e4m3": 8, "e5m2": 8, "e2m1": 4, "e0m3": 4}[element]
        return bits(form["like"])
    if form == "none":
        return 16
    return 8 if form.startswith(("fp8", "mxfp8")) else 4


def bf16_blocks(recipe, layers):
    """How many blocks a recipe leaves in BF16; "15%" of them is rounded up."""
    def count(blocks):
        if isinstance(blocks, str):
            return math.ceil(layers * float(blocks.rstrip("%")) / 100)
        return blocks
    return min(layers, sum(count(recipe.get(key, 0))
                           for key in ("first_blocks_bf16", "last_blocks_bf16")))


def selected(recipe):
    """The share of a block's multiplications that the recipe quantizes."""
    taken = [n for name, n in LINEARS if recipe["layers"] in ("all", name)
             and f"blocks.*.{name}.*" not in recipe["exclude"]]
    return sum(taken) / sum(n for _, n in LINEARS)


def shares(recipe, layers):
    """{4, 8, 16: share of the multiplications of all blocks' linears, fprop, dgrad and wgrad}. A product is as
    wide as its wider operand."""
    quantized = selected(recipe) * (1 - bf16_blocks(recipe, layers) / layers)
    out = {4: 0.0, 8: 0.0, 16: 1 - quantized}
    for gemm in GEMMS:
        out[max(bits(operand["format"]) for operand in recipe[gemm].values())] += quantized / 3
    then = recipe.get("then")
    if then:
        after = shares(then["recipe"], layers)
        out = {width: then["at"] * share + (1 - then["at"]) * after[width] for width, share in out.items()}
    return out


def all_in_4_bits(recipe, layers):
    return shares(recipe, layers)[4] > 1 - 1e-9


def extras(recipe):
    """How many of the six operands of the GEMMs are transformed by a Hadamard transform, are rounded stochastically,
    choose between two scales a block (four over six), and have scales corrected by MS-EDEN. Recipes that follow in
    "then" do not count."""
    operands = [operand for gemm in GEMMS for operand in recipe[gemm].values()]

    def has(form, key, names):
        if isinstance(form, str):
            return any(name in form for name in names)
        return form.get(key, "none") != "none" if key in form else has(form.get("like", ""), key, names)

    return {"hadamard": sum(bool(o["hadamard"]) for o in operands),
            "stochastic": sum(o["rounding"] == "stochastic" for o in operands),
            "two_scales": sum(has(o["format"], "adaptive", ("4over6", "fouroversix.")) for o in operands),
            "ms_eden": sum(has(o["format"], "unbias", ()) for o in operands)}
