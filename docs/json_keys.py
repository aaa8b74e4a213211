"""The reference of the keys of JSON files: the study file, recipes and results.json. The tables are data/*-keys.json;
defaults are those that the program spells out.

A row of a table is [key, what may stand there, what it means]. `at` is the path of its object: "a.b" is the member b
of the member a, "a[]" an entry of a list. "NAME" stands for any name.
"""

import json
import pathlib
import re
import tempfile

TABLES = ("study", "recipe", "results")
KEYS = pathlib.Path(__file__).resolve().parents[1] / "data"

# The least study, and members that bring optional objects into its resolved form without the keys that are shown.
LEAST = {"name": "least", "arms": {"NAME": {"recipe": "bf16"}}, "seeds": [1]}
ASKING = (
    {},
    {"model": {"parts": ["attention", "moe"]}},
    {"model": {"parts": ["mla", "mlp"]}},
    {"model": {"parts": ["gla", "mlp"]}},
    {"model": {"mup": {"base_d_model": 64}}},
    {"model": {"outliers": {"gain": 2}}},
    {"teacher": {"from": "teacher"}},
    {"optimizer": {"name": "muon"}},
    {"optimizer": {"loss_scaling": {"kind": "dynamic"}}},
    {"optimizer": {"rates": {"gains": 0.5}}},
    {"diagnostics": {"every": 100}},
)
STATED = {
    "seeds",
    "budgets",
    "arm_order",
    "diagnostics.every",
    "teacher.from",
    "model.parts",
    "optimizer.name",
    "arms.NAME.recipe",
    "title",
    "name",
    "description",
    "analysis.reference",
    "analysis.primary_tokens",
}


def document(name):
    return json.loads((KEYS / f"{name}-keys.json").read_text())


def merged(base, other):
    both = {**base, **other}
    return {
        k: merged(base[k], v) if isinstance(v, dict) and isinstance(base.get(k), dict) else v for k, v in both.items()
    }


def leaves(value, path=""):
    """{path: value} of all members."""
    found = {}
    if isinstance(value, dict):
        for key, member in value.items():
            at = f"{path}.{key}" if path else key
            found |= {at: member, **leaves(member, at)}
    elif isinstance(value, list):
        for member in value:
            found |= leaves(member, path + "[]")
    return found


def shown(program, study):
    """The study as `study show` resolves it, with one budget of one step."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "study.json"
        path.write_text(json.dumps(study))
        return json.loads(program("study", "show", str(path)))


def defaults(program):
    """{path: default} of the keys of a study that have one."""
    found = {}
    for asking in ASKING:
        stated = leaves(asking).keys() | STATED
        study = merged({**LEAST, "budgets": [2**26]}, asking)
        for path, value in leaves(shown(program, study)).items():
            if path not in stated and not isinstance(value, dict) and not path.startswith("arms.NAME."):
                found.setdefault(path, value)
    return found


def cell(text):
    return str(text).replace("|", "\\|")


def plain(text):
    """The text as a terminal shows it: links as their titles, code without its marks."""
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text).replace("`", "")


def table(rows, default):
    head = ["key", "value", *(["default"] if default else []), "what"]
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def default_text(value):
    if value in ("", []) or value is None:
        return ""
    return f"`{json.dumps(value)}`" if not isinstance(value, str) else f"`{value}`"


def section(of, known):
    text = f"\n## {of['title']}\n\n" + (of["text"] + "\n\n" if of.get("text") else "")
    at = of["at"]
    paths = [f"{at}.{key}" if at else key for key, *_ in of["keys"]]
    has = any(path in known and default_text(known[path]) for path in paths)
    rows = []
    for path, (key, value, what) in zip(paths, of["keys"]):
        row = [f"`{key}`", cell(value)]
        if has:
            row.append(default_text(known.get(path)))
        rows.append([*row, cell(what)])
    return text + table(rows, has)


def page(name, program=None):
    """The page of a table; `program` runs fp4lab with arguments and returns what it prints."""
    of = document(name)
    known = defaults(program) if program else {}
    text = f"# {of['title']}\n\n{of['text']}\n"
    return text + "".join(section(o, known) for o in of["objects"] + of.get("lists", []))
