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


def width(recipe, gemm):
    """The bits of the wider operand of a GEMM."""
    return max(bits(operand["format"]) for operand in recipe[gemm].values())


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
        out[width(recipe, gemm)] += quantized / 3
    then = recipe.get("then")
    if then:
        after = shares(then["recipe"], layers)
        out = {wide: then["at"] * share + (1 - then["at"]) * after[wide] for wide, share in out.items()}
    return out


def product_time(recipe, layers):
    """The time of these products relative to all of them in BF16, on tensor cores that multiply 8 bits twice and 4 bits
    four times as fast (dense rates of NVIDIA's B200: 2.25, 4.5 and 9 PFLOP/s)."""
    of_width = shares(recipe, layers)
    return of_width[16] + of_width[8] / 2 + of_width[4] / 4


def all_in_4_bits(recipe, layers):
    return shares(recipe, layers)[4] > 1 - 1e-9


SCALES = ("E4M3 scales, blocks of 16", "other scales or elements", "E8M0 scales (MXFP4)")  # of 4-bit operands


def scale_class(recipe):
    """The index in SCALES of fprop's input, an operand of 4 bits."""
    form = recipe["fprop"]["input"]["format"]
    name = form if isinstance(form, str) else form["like"]
    if name.startswith("mxfp4"):
        return 2
    plain = isinstance(form, str) or not ({"scale", "element", "block"} & set(form))
    return 0 if plain and name.startswith("nvfp4") else 1


FORWARD = SCALES + ("8 bits", "BF16")


def forward_of(recipe):
    """The index in FORWARD of fprop."""
    wide = width(recipe, "fprop")
    return scale_class(recipe) if wide == 4 else FORWARD.index("8 bits" if wide == 8 else "BF16")


def partly(recipe, layers):
    """Whether the recipe leaves linears, blocks or the end of training to wider products."""
    return bool(recipe.get("then")) or selected(recipe) < 1 or bf16_blocks(recipe, layers) > 0


PLANS = ("8 bits or BF16 in all GEMMs", "BF16 forward, 4 bits backward", "8 bits forward, 4 bits backward",
         "NVFP4 forward, 8 bits or BF16 backward", "NVFP4", "another 4-bit format forward",
         "MXFP4 forward, 8 bits or BF16 backward", "MXFP4", "NVFP4 or alike, 1 or 2 of 6 blocks in BF16",
         "NVFP4 in MLPs only", "MXFP4, 1 or 4 of 6 blocks in BF16", "NVFP4, BF16 in some GEMMs at the end")


def plan_of(recipe, layers):
    """The index in PLANS: which GEMMs of which blocks multiply elements of how many bits."""
    fprop, backward = width(recipe, "fprop"), max(width(recipe, "dgrad"), width(recipe, "wgrad"))
    if fprop > 4:
        return 0 if backward > 4 else 1 if fprop == 16 else 2
    scales = scale_class(recipe)
    if recipe.get("then"):
        return 11
    if selected(recipe) < 1:
        return 9
    if bf16_blocks(recipe, layers):
        return 10 if scales == 2 else 8
    return (3 if backward > 4 else 4, 5, 6 if backward > 4 else 7)[scales]


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
