"""The pages of the reference, made from the tables of the program: the command line, dialects, recipes, formats,
published shapes. That of the Python package is made by python_api.py from its docstrings, that of the C++ headers by
headers.py from their comments, and those of JSON files by json_keys.py from data/*-keys.json.

    python3 docs/generate.py FOLDER

writes them into FOLDER. The program is FP4LAB_PROGRAM, or build/fp4lab.
"""

import json
import os
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import headers  # noqa: E402
import json_keys  # noqa: E402
import python_api  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[1]
GENERATED = (
    "reference/cli.md",
    "reference/dialects.md",
    "reference/recipes.md",
    "reference/formats.md",
    "reference/presets.md",
    "reference/python.md",
    "reference/study-file.md",
    "reference/recipe-keys.md",
    "reference/results.md",
    "reference/headers.md",
)
STAGES = ("format", "tensor scale", "candidates", "block scale", "scale byte", "factor", "element", "zeros", "NaN")


def program():
    path = pathlib.Path(os.environ.get("FP4LAB_PROGRAM") or ROOT / "build/fp4lab")
    if not path.is_file():
        sys.exit(
            f"error: docs/generate.py: no program at {path}; build it with tools/run, or name it in FP4LAB_PROGRAM"
        )
    return str(path.resolve())


def printed(*arguments):
    return subprocess.run([program(), *arguments], capture_output=True, text=True, check=True).stdout


def listed(command):
    return json.loads(printed(command, "--json"))[command]


def cell(text):
    """Text in a cell of a table, its formulas as they are."""
    return re.sub(r"([|*_<`])", r"\\\1", str(text)).replace("\n", " ")


def code(text):
    return f"`{text}`"


def number(value):
    return f"{value:.9g}"


def table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def subcommands(text):
    """The names under "Subcommands:" of a help text."""
    _, _, rest = text.partition("\nSubcommands:\n")
    return re.findall(r"^  ([a-z][\w-]*) ", rest.split("\n\n")[0], re.MULTILINE)


def help_of(words):
    text = printed(*words, "--help").replace(program(), "fp4lab")
    level = "#" * (len(words) + 1)
    page = f"{level} fp4lab {' '.join(words)}\n\n```text\n{text.strip()}\n```\n\n" if words else ""
    return page + "".join(help_of([*words, name]) for name in subcommands(text))


def cli():
    commands = re.findall(r"^  ([a-z][\w-]*) +(.*)$", printed("--help").partition("\nSubcommands:\n")[2], re.MULTILINE)
    rows = [[f"[{name}](#fp4lab-{name})", cell(text)] for name, text in commands]
    return (
        "# The command line\n\nEvery command with its options, as `fp4lab COMMAND --help` prints them. "
        "The examples in these texts are run by tests.\n\n"
        + table(["command", "what it does"], rows)
        + "\n"
        + help_of([])
    )


def dialect(d):
    rows = [[name, cell(d["stages"][name])] for name in STAGES if name in d["stages"]]
    rows += [[name, cell(d[name])] for name in ("version", "source", "note") if d[name]]
    return f"### {d['name']}\n\n{table(['stage', 'formula'], rows)}\n"


def dialects():
    found = listed("dialects")
    families = list(dict.fromkeys(d["name"].split(".")[0] for d in found))
    unknown = {stage for d in found for stage in d["stages"]} - set(STAGES)
    if unknown:
        sys.exit(f"error: docs/generate.py: stages that it does not know: {', '.join(sorted(unknown))}")
    text = (
        f"# Dialects\n\nA dialect is one published formula at a version of its code base. These are all {len(found)}. "
        "`fp4lab dialects NAME` prints one with its results for NaN, Inf, zero and subnormals.\n\n"
        "fl(.) is one rounding in binary32; b is the largest magnitude of a block, q the largest element. S and D are "
        "the tensor scale, to encode and to decode. t is the block scale before it is rounded, s its stored value. "
        "An element x becomes v = x e, and v becomes its code.\n\n"
    )
    for family in families:
        own = [d for d in found if d["name"].split(".")[0] == family]
        rows = [
            [
                f"[{d['name']}](#{d['name'].replace('.', '').lower()})",
                "x".join(map(str, d["block"])),
                code(d["scale"]),
                cell(d["version"]),
            ]
            for d in own
        ]
        text += f"## {family}\n\n{table(['dialect', 'block', 'scale', 'version'], rows)}\n" + "".join(map(dialect, own))
    return text


def recipes():
    found = listed("recipes")
    rows = [[f"[{r['name']}](#{r['name']})", cell(r["title"])] for r in found]
    text = (
        "# Recipes\n\nA recipe says which dialect each operand of a linear takes. "
        f"These {len(found)} are published ones; "
        "`fp4lab train --recipe NAME` trains under them, and studies name them.\n\n"
        + table(["recipe", "what it is"], rows)
    )
    for r in found:
        text += f"\n## {r['name']}\n\n```text\n{printed('recipes', r['name']).strip()}\n```\n"
    return text


def formats():
    found = listed("formats")
    rows = [
        [
            f"[{f['name']}](#{f['name']})" if f["bits"] <= 6 else code(f["name"]),
            f["short_name"],
            str(f["bits"]),
            f"{int(f['signed'])}/{f['exponent_bits']}/{f['mantissa_bits']}",
            str(f["bias"]),
            number(f["max"]),
            number(f["min_normal"]) if f["exponent_bits"] else "-",
            number(f["min_subnormal"]) if f["mantissa_bits"] else "-",
            ", ".join(f"0x{c:X}" for c in f["inf_codes"]) or "-",
            ", ".join(f"0x{c:X}" for c in f["nan_codes"][:2]) + (" ..." if len(f["nan_codes"]) > 2 else "") or "-",
        ]
        for f in found
    ]
    head = [
        "format",
        "short",
        "bits",
        "sign/exponent/fraction",
        "bias",
        "largest",
        "smallest normal",
        "smallest subnormal",
        "Inf",
        "NaN",
    ]
    text = (
        "# Number formats\n\nThe formats of elements and of scales. "
        "`fp4lab formats --values NAME` lists every code of one "
        "with its value.\n\n" + table(head, rows)
    )
    for f in found:
        if f["bits"] <= 6:
            text += f"\n## {f['name']}\n\n```text\n{printed('formats', '--values', f['name']).rstrip()}\n```\n"
    return text


def preset(p):
    rows = [
        [code(e["repository"]), code(e["file"]), code(e["commit"][:12]), ", ".join(map(code, e["shows"]))]
        for e in p["evidence"]
    ]
    lines = [f"The publication: {cell(p['source'])}."]
    if p["unproved"]:
        lines.append(f"No public file was found for {', '.join(map(code, p['unproved']))}.")
    if p["not_modelled"]:
        lines.append(f"Not modelled: {cell(p['not_modelled'])}.")
    shape = ", ".join(f"{code(key)} {value}" for key, value in p["published"].items())
    return (
        f"\n## {p['name']}\n\n{cell(p['title'])}: {shape}.\n\n"
        + table(["repository", "file", "commit", "shows"], rows)
        + "\n"
        + "\n\n".join(lines)
        + "\n"
    )


def presets():
    found = listed("presets")
    rows = [[f"[{p['name']}](#{p['name'].replace('.', '').lower()})", cell(p["title"])] for p in found]
    text = (
        f"# Published shapes\n\nThese {len(found)} shapes may be named by `model.preset`. "
        "Each number of a shape is shown by a public file at a commit, or named as one that no public file "
        "was found for.\n\n" + table(["preset", "model"], rows)
    )
    return text + "".join(map(preset, found))


def pages():
    """{page of docs/: its text}, one of each in GENERATED."""
    keys = (json_keys.page("study", printed), json_keys.page("recipe"), json_keys.page("results"))
    texts = (cli(), dialects(), recipes(), formats(), presets(), python_api.page(), *keys, headers.page())
    return dict(zip(GENERATED, texts, strict=True))


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__.strip())
    for name, text in pages().items():
        path = pathlib.Path(sys.argv[1]) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":
    main()
