"""The tables of keys, data/*-keys.json, are those that the program reads and writes.

    python3 tests/pages/keys_test.py PROGRAM

A key that no object has is put into every object of a study: the program's refusal lists the keys that it knows there,
which are compared with the table. Members of results.json are those of a study that this test trains, and of all
committed ones; a member that none of them has must stand in the sources.
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile

from pages import ROOT

sys.path.insert(0, str(ROOT / "docs"))
import headers  # noqa: E402
import json_keys  # noqa: E402

WRONG = "qqqqqqqqqqqqqqqq"  # near no key
REFUSED = {"evaluation": {"every", "diagnostics_every"}}  # of `fp4lab train`; a study says why it has none
failures = []


def check(holds, text):
    if not holds:
        failures.append(text)


STUDY = {
    "name": "keys",
    "model": {"layers": 1, "d_model": 32, "heads": 2, "ffn": 64, "sequence": 32},
    "schedule": {"warmup_steps": 2},
    "data": {"source": "synthetic", "synthetic_bytes": 65536},
    "batch": 4,
    "evaluation": {"tokens": 512, "chunk_tokens": 128},
    "arms": {"NAME": {"recipe": {"base": "te_nvfp4"}}, "other": {"recipe": "bf16"}},
    "seeds": [1, 2],
    "budgets": [2560, 5120],
    "analysis": {"reference": "other"},
}
# Studies that bring each object into the file; the keys of one object are those of all of them together.
KIND = {"arms": ["NAME", "other"]}
MORE = {
    "model.moe": [{"model": {"parts": ["attention", "moe"], "moe": {}}}],
    "model.mla": [{"model": {"parts": ["mla", "mlp"], "mla": {}}}],
    "model.gla": [{"model": {"parts": ["gla", "mlp"], "gla": {}}}],
    "model.mup": [{"model": {"mup": {"base_d_model": 32}}}],
    "model.outliers": [{"model": {"outliers": {"gain": 2}}}],
    "teacher": [{"teacher": {"from": "t.fp4lab"}}],
    "optimizer": [{"optimizer": {}}],
    "optimizer.rates": [{"optimizer": {"rates": {}}}],
    "optimizer.muon": [{"optimizer": {"name": "muon", "muon": {}}}],
    "optimizer.loss_scaling": [{"optimizer": {"loss_scaling": {"kind": "dynamic"}}}],
    "data": [
        {"data": {"source": "synthetic"}},
        {"data": {"source": None, "synthetic_bytes": None, "text": "a.txt"}},
        {"data": {"source": None, "synthetic_bytes": None, "tokens": "a.bin", "validation_tokens": "b.bin"}},
        {"data": {"source": None, "synthetic_bytes": None, "tokens": "a.bin"}},
    ],
    "evaluation.texts.NAME": [
        {"evaluation": {"texts": {"NAME": {kind: "a"}}}} for kind in ("text", "tokens")
    ],
    "diagnostics": [{"diagnostics": {"every": 10}}],
    "sweep": [{"sweep": {"learning_rate": [1e-3, 2e-3]}}],
    "analysis.criteria[]": [
        {"analysis": {"criteria": [{"kind": kind, **KIND}]}}
        for kind in ("mean_order", "seed_order", "gap_ratio", "token_ratio", "token_ratio_grows", "small_gap")
    ],
    "analysis.predictions[]": [{"analysis": {"predictions": [{"file": "f", "sha256": "0" * 64}]}}],
}
HADAMARD = {"size": 16, "signs": "te"}
RULES = {"rules": [{"recipe": "te_nvfp4", "blocks": {"first": 1}, "steps": {"to": 1}}], "rest": "bf16"}
RECIPES = {
    "": [{"base": base} for base in ("te_nvfp4", "mxfp4", "te_fp8_currentscaling")],
    "fprop": [{"base": "bf16", "fprop": {}}],
    "dgrad": [{"base": "bf16", "dgrad": {}}],
    "wgrad": [{"base": "bf16", "wgrad": {}}],
    "wgrad.grad": [{"base": "te_nvfp4", "wgrad": {"grad": {}}}],
    "wgrad.grad.side": [{"base": "te_nvfp4", "wgrad": {"grad": {"side": {"term": "columns", "channels": 2}}}}],
    "wgrad.grad.hadamard": [{"base": "te_nvfp4", "wgrad": {"grad": {"hadamard": HADAMARD}}}],
    "delayed_scaling": [{"base": "te_nvfp4", "delayed_scaling": {}}],
    "accumulation": [{"base": "te_nvfp4", "accumulation": {}}],
    "then": [{"base": "te_nvfp4", "then": {"at": 0.9, "recipe": "bf16"}}],
}
LISTS = {"": [RULES], "rules[]": [RULES], "rules[].blocks": [RULES], "rules[].steps": [RULES]}


def at(document, path):
    """The object at a path as the tables have it; the first entry of a list."""
    for step in filter(None, path.split(".")):
        document = document[step.removesuffix("[]")]
        if step.endswith("[]"):
            document = document[0]
    return document


def without_nothing(value):
    if not isinstance(value, dict):
        return value
    return {key: without_nothing(member) for key, member in value.items() if member is not None}


def refusal(program, study):
    """What `study show` says to the study."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "study.json"
        path.write_text(json.dumps(study))
        ran = subprocess.run([program, "study", "show", str(path)], capture_output=True, text=True)
        return ran.stderr


def known_keys(program, study, path):
    """The keys that the program knows of the object at the path."""
    study = json.loads(json.dumps(study))
    at(study, path)[WRONG] = 1
    said = refusal(program, study)
    found = re.search(rf"/{WRONG}: unknown key; .*the keys here are: (.*)", said)
    check(found, f"{path}: no list of keys in: {said}")
    return set(found[1].strip().split(", ")) - {WRONG} if found else set()


def check_objects(program, name, objects, studies, inside=""):
    """Each object's keys in the table and in the program; `inside` is the place of the whole in a study."""
    for of in objects:
        path = ".".join(filter(None, (inside, of["at"])))
        known = set().union(*(known_keys(program, study, path) for study in studies(of["at"])))
        listed = {key for key, *_ in of["keys"]}
        known -= REFUSED.get(path, set())
        check(listed == known, f"{name}-keys.json, {of['title']}: not in both of table and program: {listed ^ known}")


def studies_of(path):
    for more in MORE.get(path, [{}]):
        yield without_nothing(json_keys.merged(STUDY, more))


def studies_with(recipe):
    return json_keys.merged(STUDY, {"arms": {"NAME": {"recipe": None}}}) | {
        "arms": {"NAME": {"recipe": recipe}, "other": STUDY["arms"]["other"]}
    }


def check_input(program):
    check_objects(program, "study", json_keys.document("study")["objects"], studies_of)
    recipe = json_keys.document("recipe")
    for part, examples in (("objects", RECIPES), ("lists", LISTS)):
        check(
            {of["at"] for of in recipe[part]} == examples.keys(),
            f"recipe-keys.json: objects without an example: {part}",
        )
        check_objects(
            program,
            "recipe",
            recipe[part],
            lambda path, examples=examples: map(studies_with, examples[path]),
            "arms.NAME.recipe",
        )


def objects_in(document, path):
    """All objects at a path of the tables; an object stands for a list of one, as `analysis` may be either."""
    found = [document]
    for step in filter(None, path.split(".")):
        name = step.removesuffix("[]")
        found = [of[name] for of in found if isinstance(of, dict) and of.get(name) is not None]
        found = [entry for of in found for entry in (of if isinstance(of, list) else [of])]
    return [of for of in found if isinstance(of, dict)]


def trained(program, folder):
    study = json_keys.merged(
        STUDY, {"diagnostics": {"every": 10, "tokens": 64}, "analysis": {"contrast": KIND["arms"]}}
    )
    (folder / "study.json").write_text(json.dumps(study))
    command = [program, "study", "run", str(folder / "study.json"), "--out-dir", str(folder / "out")]
    ran = subprocess.run(command, capture_output=True, text=True)
    if ran.returncode:
        sys.exit(f"the study did not train: {ran.stderr}")
    return json.loads((folder / "out/results.json").read_text())


def check_results(program):
    with tempfile.TemporaryDirectory() as folder:
        documents = [trained(program, pathlib.Path(folder))]
    documents += [json.loads(path.read_text()) for path in sorted(ROOT.glob("studies/results/*/results.json"))]
    check(len(documents) > 30, f"only {len(documents)} results")
    sources = "".join(path.read_text() for path in ROOT.glob("lib/fp4lab/[st]*/**/*.cc"))
    for of in json_keys.document("results")["objects"]:
        listed = {key for key, *_ in of["keys"]}
        written = {key for document in documents for found in objects_in(document, of["at"]) for key in found}
        if not of.get("any"):
            check(written <= listed, f"results.json, {of['title']}: not in the table: {written - listed}")
        for key in listed - written:
            check(
                re.search(r'[{ ]"%s", ' % key, sources) or f'json["{key}"]' in sources,
                f"results.json, {of['title']}: nothing writes {key}",
            )
    top = {key for key, *_ in json_keys.document("results")["objects"][0]["keys"]}
    check(documents[0].keys() | {"registered"} == top, f"top of results.json: {documents[0].keys() ^ top}")


def check_defaults(program):
    def printed(*arguments):
        return subprocess.run([program, *arguments], capture_output=True, text=True, check=True).stdout

    known = json_keys.defaults(printed)
    check(known.get("schedule.learning_rate", 0) > 0 and "model.moe.experts" in known, "no defaults")
    page = json_keys.page("study", printed)
    check(f"`{json.dumps(known['model.layers'])}`" in page, "the page has no default of model.layers")


def check_command(program):
    """`fp4lab keys` prints every row of every table."""
    for name in json_keys.TABLES:
        of = json_keys.document(name)
        ran = subprocess.run([program, "keys", name], capture_output=True, text=True, check=True)
        for o in of["objects"] + of.get("lists", []):
            check(f"\n{o['title']}\n" in ran.stdout, f"fp4lab keys {name}: no {o['title']}")
            for key, _, what in o["keys"]:
                check(
                    re.search(rf"^  {re.escape(key)} .*{re.escape(json_keys.plain(what))}$", ran.stdout, re.MULTILINE),
                    f"fp4lab keys {name}: no row {key} with {what}",
                )
        ran = subprocess.run([program, "keys", name, "--json"], capture_output=True, text=True, check=True)
        check(json.loads(ran.stdout) == of, f"fp4lab keys {name} --json is not the table")


def check_headers():
    """Every layer that states public headers is on the page, and every header says what it is."""
    listed = headers.public()
    for layer, names in listed.items():
        for name in names:
            said = headers.sentence(headers.comment((headers.LIBRARY / layer / name).read_text()))
            check(said.endswith(".") and len(said.split()) > 4, f"fp4lab/{layer}/{name} says: {said!r}")
            check(len(said.split()) <= 25, f"fp4lab/{layer}/{name}: {len(said.split())} words: {said}")
    stating = [p.parent.name for p in headers.LIBRARY.glob("*/CMakeLists.txt") if "PUBLIC_HEADERS" in p.read_text()]
    check(sorted(stating) == sorted(listed), f"layers with public headers: {set(stating) ^ set(listed)}")


def check_texts():
    """A sentence of a table has at most 25 words, and no row is empty."""
    for name in json_keys.TABLES:
        of = json_keys.document(name)
        objects = of["objects"] + of.get("lists", [])
        texts = [of["text"], *(o.get("text", "") for o in objects), *(k[2] for o in objects for k in o["keys"])]
        for text in texts:
            for sentence in re.split(r"(?<=[.:])\s+", text):
                check(len(sentence.split()) <= 25, f"{name}-keys.json: {len(sentence.split())} words: {sentence}")
        for o in objects:
            for row in o["keys"]:
                check(len(row) == 3 and all(row), f"{name}-keys.json, {o['title']}: a row that is not whole: {row}")
                check(row[2].endswith("."), f"{name}-keys.json, {o['title']}, {row[0]}: no full stop")


def main():
    program = str(pathlib.Path(sys.argv[1]).resolve())
    check_texts()
    check_headers()
    check_input(program)
    check_defaults(program)
    check_command(program)
    check_results(program)
    print("\n".join(failures) or "the tables of keys are those of the program")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
