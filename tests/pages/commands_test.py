"""Runs every command that README.md and the pages of docs/ show, each page in one shell as a reader would, in a
temporary folder with the program in PATH; and checks that fp4lab has every name and every piece of code in them.

    python3 tests/pages/commands_test.py PROGRAM

With FP4LAB_APPROVE=1 it writes the present output of the commands into the pages.
"""

import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from pages import COMMENT, ROOT, blocks_of, front_pages, name_of

README = ROOT / "README.md"
NOT_RUN = {  # commands that pages show in blocks of "sh": why this test does not run them
    "tools/run": "builds, and trains for minutes",
    "tools/test": "runs this test",
    "pip install fp4lab-*.whl": "package_wheel_test does it",
    "fp4lab verify --input kernel.npz#x --codes kernel.npz#codes --scales kernel.npz#scales":
        "package_wheel_test and package_deb_test do it, without a compiler",
    "fp4lab explain --input kernel.npz#x --codes kernel.npz#codes --scales kernel.npz#scales": "as verify",
    "pip install .": "tests/python/run builds and installs the wheel",
    "cmake --install build --prefix ~/fp4lab": "find_package_test does it with another prefix",
    "fp4lab train --data synthetic --recipe te_nvfp4": "trains for a minute; docs/start/train.md runs five steps of it",
    "fp4lab study run studies/token-gap/laptop.json": "trains for 25 minutes; check_studies reads the file",
    "tools/run --version": "builds",
    "pip install -r docs/requirements.txt && mkdocs build --strict": "site_test does it",
    "python3 -m http.server -d out/site": "runs until it is stopped",
    "python -m fp4lab.check": "tests/python/test_check.py runs it",
    "fp4lab import SmolLM2-135M --out smol.fp4lab": "needs a download; models_command_test imports a small model",
    "fp4lab evaluate smol.fp4lab --tokens ids.npy --recipe te_nvfp4 --recipe mxfp4": "as import",
    "fp4lab what-if smol.fp4lab --tokens ids.npy --recipe te_nvfp4 --learning-rate 1e-5": "as import",
    "fp4lab train --start smol.fp4lab --tokens ids.npy --recipe te_nvfp4 --set schedule.learning_rate=1e-5": "as import",
    "fp4lab export out/train --out tuned": "as import",
    "tools/packaging/wheel out": "builds; package_wheel_test makes and uses the wheel of this build",
    "tools/packaging/wheel out aarch64": "builds for an hour; tests/aarch64/wheel uses what it made",
    "tools/packaging/deb out": "builds; package_deb_test makes and uses the package of this build",
    "tools/packaging/source out": "package_source_test does it with another folder",
    "podman build -t fp4lab -f tools/packaging/Containerfile .": "needs a container engine and a registry",
    "source <(fp4lab completion bash)": "is bash's; help_bash_test does it",
    "fp4lab man | man -l -": "a pager; help_man_test formats the page",
    "g++ -std=c++20 main.cc $(PKG_CONFIG_PATH=~/fp4lab/lib/pkgconfig pkg-config --cflags --libs fp4lab)":
        "find_package_test does it",
    ".github/actions/fp4lab-verify/verify.sh pack golden.safetensors --codes job.npz#codes --scales job.npz#scales":
        "tests/python/test_ci.py does it",
    "pytest --junit-xml junit.xml --fp4lab-summary kernels.md": "tests/python/test_plugin.py does it",
}
MOST_WORDS = {"README.md": 900, "docs/findings/index.md": 700}
MOST_OF_FINDINGS = 600  # words of a page of docs/findings outside of tables
FIRST_WORDS = 150  # of the decision's page, which answer these
ANSWERED = ("Which format?", "NVFP4", "At what cost?", "times BF16's tokens", "What is not known at 7B?")
RUN_ELSEWHERE = {  # pages with blocks of python, and who runs them
    "docs/guides/pytorch.md": "tests/python_torch",
    "docs/guides/cluster.md": "tests/python_executors",
}
KINDS = {"console", "sh", "cpp", "cmake", "python", "yaml"}
END = "-- end of a command, exit code "
failures = []


def check(holds, text):
    if not holds:
        failures.append(text)


def goes_on(line):
    return line.endswith(("\\", "|"))


def commands_of(block):
    """The commands of a "console" block: a command follows "$ " and goes on after a line that ends in \\ or |."""
    commands, on = [], False
    for line in block.split("\n"):
        if on:
            commands[-1] += "\n" + line
        elif line.startswith("$ "):
            commands.append(line[2:])
        else:
            continue
        on = goes_on(line)
    return commands


def outputs_of(page, commands, program):
    """The output of each command, standard error included."""
    script = "".join(f'{{ {command}\n}} 2>&1; echo "{END}$?"\n' for command in commands)
    environment = os.environ | {"PATH": f"{program.parent}:{os.environ.get('PATH', '')}"}
    with tempfile.TemporaryDirectory() as folder:
        ran = subprocess.run(
            ["sh", "-c", script], cwd=folder, env=environment, capture_output=True, text=True, timeout=600
        )
    parts = re.split(re.escape(END) + r"(\d+)\n", ran.stdout)
    outputs, codes = parts[:-1:2], parts[1::2]
    for command, code, output in zip(commands, codes, outputs):
        check(code in "01", f"{name_of(page)}: exit code {code} of: {command}\n{output}")  # 1: different
    if len(outputs) != len(commands):
        sys.exit(f"{name_of(page)}: {len(outputs)} of {len(commands)} commands came to an end\n{ran.stderr}")
    return outputs


def with_outputs(text, outputs):
    """The page with `outputs` in place of the outputs that it shows."""
    lines, console, on = [], False, False
    outputs = iter(outputs)
    for line in text.removesuffix("\n").split("\n"):
        fence = line.startswith("```")
        if fence:
            console = line == "```console"
        command = console and not fence and (on or line.startswith("$ "))
        if fence or not console or command:
            lines.append(line + "\n")
        if command:
            on = goes_on(line)
            if not on:
                lines.append(next(outputs))
    return "".join(lines)


def check_commands(page, program):
    text = page.read_text()
    commands = [c for language, block in blocks_of(text) if language == "console" for c in commands_of(block)]
    if not commands:
        return 0
    now = with_outputs(text, outputs_of(page, commands, program))
    if now != text and os.environ.get("FP4LAB_APPROVE"):
        page.write_text(now)
        print(f"{name_of(page)} was written anew")
    elif now != text:
        shown, seen = text.split("\n"), now.split("\n")
        at = next((i for i, pair in enumerate(zip(shown, seen)) if pair[0] != pair[1]), min(len(shown), len(seen)))
        check(
            False,
            f"{name_of(page)}:{at + 1}: shows\n  {''.join(shown[at : at + 1])}\nand the program prints\n"
            f"  {''.join(seen[at : at + 1])}\n(FP4LAB_APPROVE=1 writes the page anew)",
        )
    return len(commands)


def check_blocks(pages):
    """The commands that are not run are listed, and no block is of another kind."""
    shown = set()
    for page in pages:
        for language, block in blocks_of(page.read_text()):
            check(language in KINDS, f"{name_of(page)}: a block of {language!r}, which no test reads")
            check(
                language != "python" or page == README or name_of(page) in RUN_ELSEWHERE,
                f"{name_of(page)}: a block of python, and no test runs it; README.md and RUN_ELSEWHERE have theirs run",
            )
            if language == "sh":
                shown |= {line.split(" #")[0].rstrip() for line in block.split("\n") if line}
            elif language == "console":
                check(commands_of(block), f"{name_of(page)}: a console block without a command")
    check(shown == NOT_RUN.keys(), f"commands that are not run, and NOT_RUN: {shown ^ NOT_RUN.keys()}")


def check_package(pages):
    """The C++ and CMake lines are those of tests/find_package, which find_package_test builds."""
    shown = collections.defaultdict(str)
    for page in pages:
        for language, block in blocks_of(page.read_text()):
            shown[language] += block
    folder = ROOT / "tests/find_package"
    check(shown["cpp"] == (folder / "main.cc").read_text(), "the C++ of the pages is not tests/find_package/main.cc")
    built = (folder / "CMakeLists.txt").read_text().split("\n")
    check(shown["cmake"], "no page shows CMake lines")
    for line in shown["cmake"].splitlines():
        check(built.count(line) == 1, f"not a line of tests/find_package/CMakeLists.txt: {line}")


def check_yaml(pages):
    """The inputs and hooks that pages show are those of the GitHub Action and of pre-commit."""
    action = (ROOT / ".github/actions/fp4lab-verify/action.yml").read_text()
    inputs = re.findall(r"^  ([\w-]+):$", action.partition("inputs:\n")[2].partition("outputs:\n")[0], re.MULTILINE)
    hooks = (ROOT / ".pre-commit-hooks.yaml").read_text()
    blocks = [block for page in pages for language, block in blocks_of(page.read_text()) if language == "yaml"]
    check(blocks, "no page shows the GitHub Action")
    for block in blocks:
        for name, given in re.findall(r"uses: \S+/\.github/actions/([\w-]+)@\S+\n +with:\n((?: {10}.*\n)*)", block):
            check((ROOT / ".github/actions" / name).is_dir(), f"no action {name}")
            for key in re.findall(r"^ {10}([\w-]+):", given, re.MULTILINE):
                check(key in inputs, f"the action has no input {key}, of {inputs}")
        for hook in re.findall(r"- id: (\S+)", block):
            check(f"- id: {hook}\n" in hooks, f"no hook {hook}")


def names_of_ours():
    """Words between backticks in the second column of docs/reference/names.md."""
    rows = [line for line in (ROOT / "docs/reference/names.md").read_text().split("\n") if line.startswith("| ")]
    return [name for row in rows for name in re.findall(r"`([^`]*)`", row[row.rindex(" | ") :])]


def words_of_studies(program):
    """Keys and values, words alone, of the resolved studies of studies/model, which use what a model may have."""
    words = set()

    def gather(value):
        if isinstance(value, dict):
            for key, member in value.items():
                words.add(key)
                gather(member)
        elif isinstance(value, list):
            for member in value:
                gather(member)
        elif isinstance(value, str):
            words.add(value)

    for study in sorted((ROOT / "studies/model").glob("*.json")):
        shown = subprocess.run([program, "study", "show", study], capture_output=True, text=True, check=True)
        gather(json.loads(shown.stdout))
    return words


def check_names(program):
    """The fp4lab names beside other programs' names exist."""

    def printed(*arguments):
        return subprocess.run([program, *arguments], capture_output=True, text=True, check=True).stdout

    options = printed("quantize", "--help") + printed("verify", "--help")
    recipes = {r["name"] for r in json.loads(printed("recipes", "--json"))["recipes"]}
    dialects = {d["name"] for d in json.loads(printed("dialects", "--json"))["dialects"]}
    presets = {p["name"] for p in json.loads(printed("presets", "--json"))["presets"]}
    commands = set(re.findall(r"^  ([a-z][\w-]*) ", printed("--help"), re.MULTILINE))
    names = names_of_ours()
    words = words_of_studies(program)
    check(len(names) > 20, f"only {len(names)} names in docs/reference/names.md")
    for name in names:
        first, *rest = name.split()
        if first.startswith("te_"):
            known = first in recipes
        elif first in dialects | presets | commands:
            known = True
        elif first == "model.preset":
            known = takes_preset(program, min(presets))
        elif "bf16" in first or first.startswith("disable_"):
            known = takes_key(program, first)
        elif first == "--set":
            known = rest == ["recipe.disable_rht=true"]  # docs/start/train.md runs it
        elif first == "fp4lab":
            known = rest[0] in commands
            if len(rest) > 1:
                known = known and rest[1] in printed(rest[0], "--help") and rest[2] in recipes
        elif first.startswith("--"):
            known = first in options and f" {rest[0]}" in options
        else:
            known = first in dialects or f" {first}" in options  # or a value of the option before it
            known = known or set(re.findall(r"\w+", name)) <= words
        check(known, f"docs/reference/names.md: fp4lab has no {name}")
    count = f"of {len(dialects)} published ones"
    check(count in README.read_text(), f"README.md does not say: {count}")


def takes_key(program, key):
    """Whether a recipe of a study may have the key."""
    arm = {"recipe": {"base": "te_nvfp4", key: 0 if "bf16" in key else True}}
    return takes(program, {"arms": {"nvfp4": arm}})


def takes_preset(program, name):
    """Whether the model of a study may be a preset."""
    return takes(program, {"model": {"preset": name}})


def takes(program, members):
    """Whether a study with these members in place of its own is shown."""
    study = json.loads((ROOT / "studies/token-gap/quick.json").read_text())
    study["data"] = {"source": "synthetic"}
    study["arms"] |= members.pop("arms", {})
    study |= members
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "study.json"
        path.write_text(json.dumps(study))
        return subprocess.run([program, "study", "show", path], capture_output=True).returncode == 0


def check_studies(program):
    """The program reads the study files of commands that are not run."""
    files = [command.split()[-1] for command in NOT_RUN if command.startswith("fp4lab study run ")]
    for file in files:
        shown = subprocess.run([program, "study", "show", file], cwd=ROOT, capture_output=True, text=True)
        check(shown.returncode == 0, f"fp4lab study show {file}: {shown.stderr}")


def words_of(text):
    text = re.sub(r"\[([^\[\]]*)\]\([^()]*\)", r"\1", COMMENT.sub("", text))  # a link counts as its title
    return [word for word in text.split() if any(c.isalnum() for c in word)]


def check_lengths():
    for name, most in MOST_WORDS.items():
        count = len(words_of((ROOT / name).read_text()))
        check(count <= most, f"{name} has {count} words, of {most} at most")
    for page in sorted((ROOT / "docs/findings").glob("*.md")):
        count = len(words_of(re.sub(r"^\|.*$", "", page.read_text(), flags=re.MULTILINE)))
        check(count <= MOST_OF_FINDINGS, f"{name_of(page)} has {count} words, of {MOST_OF_FINDINGS} at most")
    first = " ".join(words_of((ROOT / "docs/findings/index.md").read_text())[:FIRST_WORDS])
    for text in ANSWERED:
        check(text in first.replace("*", ""), f"the first {FIRST_WORDS} words of docs/findings/index.md have no {text!r}")
    unknown = first.partition(ANSWERED[-1])[2]
    check("take no ratio" in unknown, f"docs/findings/index.md says only after {FIRST_WORDS} words what is not known")


def main():
    program = pathlib.Path(sys.argv[1]).resolve()
    pages = front_pages()
    run = sum(check_commands(page, program) for page in pages)
    check(run >= 8, f"only {run} commands were run")
    check_blocks(pages)
    check_package(pages)
    check_yaml(pages)
    check_names(program)
    check_studies(program)
    check_lengths()
    print("\n".join(failures) or f"{run} commands of {len(pages)} pages ran")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
