#!/usr/bin/env python3
"""Whether each study's claims are older than its runs, from the history of the repository.

    python3 studies/results/registered.py

prints a row per published study: its criteria, the first commit whose file has them (without criteria: the same
description, which then states the claims), the commit of the code in the first results.json that was published, and the
verdict:

    proven       that code's commit is the file's or a descendant of it, so the file is older than the results. A
                 changed tree of the file's own commit proves nothing: the commit may have come while runs were on
    by times     the file was committed before the results were, and their code does not say so
    together     both came in one commit, or the file came later
Exit code 1 where a study with criteria is "together" that is not in KNOWN.
"""
import json
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
WORDS = "claim", "source"  # of a criterion: text that no verdict reads
KNOWN = {"surface-0.3m-rates", "surface-0.3m-s128"}  # docs/history/predictions.md names them


def git(*arguments):
    ran = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return ran.stdout.strip() if ran.returncode == 0 else None


def json_at(commit, path):
    try:
        return json.loads(git("show", f"{commit}:{path}") or "")
    except ValueError:
        return None


def study_files():
    """{name of a study: its file}."""
    found = {}
    for path in sorted((ROOT / "studies").glob("*/*.json")):
        if path.parent.name not in ("results", "several"):
            found[json.loads(path.read_text())["name"]] = str(path.relative_to(ROOT))
    return found


def is_within(part, whole):
    """Whether all that a file says stands in the resolved form of results."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(k in whole and is_within(v, whole[k]) for k, v in part.items())
    if isinstance(part, list):
        return isinstance(whole, list) and len(part) == len(whole) and all(map(is_within, part, whole))
    return part == whole


def criteria_of(analysis):
    return [{k: v for k, v in c.items() if k not in WORDS} for c in analysis.get("criteria", [])]


def registered_at(path, results):
    """The first commit whose file has the claims of results; None."""
    criteria = criteria_of(results["analysis"])
    for commit in reversed((git("log", "--format=%h", "--", path) or "").split()):
        document = json_at(commit, path) or {}
        if criteria and is_within(criteria_of(document.get("analysis", {})), criteria):
            return commit
        if not criteria and document.get("description") == results.get("description"):
            return commit
    return None


def is_ancestor(commit, of):
    return git("merge-base", "--is-ancestor", commit, of) is not None


def verdict(file_commit, code, published):
    if file_commit is None:
        return "together"
    commit = code.removesuffix("-changed")
    if commit and is_ancestor(file_commit, commit) and not (code != commit and commit.startswith(file_commit)):
        return "proven"
    return "by times" if file_commit != published and is_ancestor(file_commit, published) else "together"


def rows():
    """[(name, number of criteria, commit of the file, commit of the code, verdict)], of all that are in the history."""
    files, found = study_files(), []
    for folder in sorted(HERE.glob("*/results.json")):
        path = str(folder.relative_to(ROOT))
        published = (git("log", "--diff-filter=A", "--format=%h", "--", path) or "").split("\n")[-1]
        if not published:
            continue
        results = json_at(published, path)
        code = results.get("fp4lab_commit", "")
        own = registered_at(files[results["name"]], results["study"])
        found.append((results["name"], len(results["study"]["analysis"].get("criteria", [])), own, code,
                      verdict(own, code, published)))
    return found


def has_history():
    """Whether this is a clone with all commits: it holds those that results name as their code's."""
    if git("rev-parse", "--is-shallow-repository") != "false":
        return False
    named = [json.loads(path.read_text()).get("fp4lab_commit", "") for path in HERE.glob("*/results.json")]
    commits = {name.removesuffix("-changed") for name in named} - {""}
    return any(git("cat-file", "-e", f"{commit}^{{commit}}") is not None for commit in commits)


def of_criteria(found):
    """{verdict: the studies with criteria}."""
    return {word: [row[0] for row in found if row[-1] == word and row[1]] for word in ("proven", "by times", "together")}


def main():
    if not has_history():
        sys.exit("this folder has no history: clone the repository")
    found = rows()
    print("| study | criteria | its file since | code | older than the runs |\n" + "|---" * 5 + "|")
    for row in found:
        print("| " + " | ".join("" if cell is None else str(cell) for cell in row) + " |")
    for word, names in of_criteria(found).items():
        print(f"{word}: {sum(row[-1] == word for row in found)} studies, {len(names)} of them with criteria")
    sys.exit(bool(set(of_criteria(found)["together"]) - KNOWN))


if __name__ == "__main__":
    main()
