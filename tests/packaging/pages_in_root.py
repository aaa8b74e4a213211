"""The pages that a stranger reads first, on a machine that has a package of fp4lab and no compiler.

    python3 tests/packaging/pages_in_root.py script           prints a shell script; it needs kernel.npz in its folder
    python3 tests/packaging/pages_in_root.py check < OUTPUT   compares what the script printed with the pages

The script has the commands of README.md about kernel.npz, and all commands of docs/start/kernel.md.
"""

import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "pages"))
from commands_test import commands_of, with_outputs  # noqa: E402
from pages import ROOT, blocks_of  # noqa: E402

README = ROOT / "README.md"
PAGE = ROOT / "docs/start/kernel.md"
END = "-- end of a command, exit code "
PROMISED = ("nvfp4.te: DIFFERENT", "Cause", "nvfp4.cutlass")  # of a kernel that computes CUTLASS's formula


def of_readme():
    """The commands that README.md shows for kernel.npz, without their comments."""
    lines = [line for kind, block in blocks_of(README.read_text()) if kind == "sh" for line in block.split("\n")]
    return [line.split(" #")[0].rstrip() for line in lines if "kernel.npz" in line]


def of_page():
    return [c for kind, block in blocks_of(PAGE.read_text()) if kind == "console" for c in commands_of(block)]


def script():
    return "".join(f'{{ {command}\n}} 2>&1; echo "{END}$?"\n' for command in of_readme() + of_page())


def check(output):
    parts = re.split(re.escape(END) + r"(\d+)\n", output)
    outputs, codes = parts[:-1:2], parts[1::2]
    readme, page = of_readme(), of_page()
    if len(outputs) != len(readme) + len(page) or not readme or not page:
        return f"{len(outputs)} of {len(readme) + len(page)} commands came to an end:\n{output}"
    if codes[: len(readme)] != ["1"] * len(readme):
        return f"exit codes of README.md's commands: {codes[: len(readme)]}\n{output}"
    said = "".join(outputs[: len(readme)])
    absent = [text for text in PROMISED if text not in said]
    if absent:
        return f"README.md's commands do not say: {absent}\n{said}"
    now = with_outputs(PAGE.read_text(), outputs[len(readme) :])
    if now == PAGE.read_text():
        return ""
    shown = zip(PAGE.read_text().split("\n"), now.split("\n"))
    return "docs/start/kernel.md shows, and the package prints:\n" + "\n".join(next(p for p in shown if p[0] != p[1]))


def main():
    if sys.argv[1:] == ["script"]:
        print(script(), end="")
    else:
        sys.exit(check(sys.stdin.read()) or None)


if __name__ == "__main__":
    main()
