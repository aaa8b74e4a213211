"""The help that is made from the parser names every command and option that `--help` prints.

    python3 tests/help/help_test.py PROGRAM options|bash|zsh|fish|man
"""

import json
import pathlib
import re
import shutil
import subprocess
import sys

MOST_UNGROUPED = 10  # options of one group, without --help, before a reader loses the overview
failures = []


def check(holds, text):
    if not holds:
        failures.append(text)


def printed(program, *words):
    return subprocess.run([program, *words], capture_output=True, text=True, check=True).stdout


def commands_of(program, path=()):
    """{(): help text, ("study",): ..., ("study", "run"): ...}, as --help shows them."""
    text = printed(program, *path, "--help")
    found = {path: text}
    _, _, rest = text.partition("\nSubcommands:\n")
    for name in re.findall(r"^  ([a-z][\w-]*) ", rest.split("\n\n")[0], re.MULTILINE):
        found |= commands_of(program, (*path, name))
    return found


def groups_of(text):
    """{group: [option, ...]} of a help text: "-h", "--help", "--not-transposed" ..."""
    groups, group = {}, None
    for line in text.split("\n\nExample")[0].split("\n"):
        if re.match(r"[A-Z].*:$", line):
            group = line[:-1]
        option = re.match(r"  (-[-\w,{}]+)", line)
        if option and group:
            names = re.sub(r"\{\w+\}", "", option[1]).split(",")
            groups.setdefault(group, []).extend(n for n in names if n.startswith("-"))
    return groups


def options_of(text):
    return [option for group in groups_of(text).values() for option in group]


def check_options(program, commands):
    """Options of large commands stand in groups."""
    for path, text in commands.items():
        for group, options in groups_of(text).items():
            check(
                len([o for o in options if o not in ("-h", "--help")]) <= MOST_UNGROUPED + 4 * (group != "Options"),
                f"fp4lab {' '.join(path)}: {len(options)} options in the group {group}: {' '.join(options)}",
            )
    check("The layout of the bytes" in groups_of(commands["verify",]), "verify has no group of the layout")


def in_bash(program, words):
    """What bash offers for the last of the words."""
    script = f"""source <('{program}' completion bash)
COMP_WORDS=({" ".join(f"'{w}'" for w in words)}); COMP_CWORD={len(words) - 1}; _fp4lab; printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    ran = subprocess.run(["bash", "--norc", "-c", script], capture_output=True, text=True)
    check(ran.returncode == 0 and not ran.stderr, f"bash: {words}: {ran.stderr}")
    return [line for line in ran.stdout.split("\n") if line]


def check_bash(program, commands):
    for path, text in commands.items():
        offered = in_bash(program, ["fp4lab", *path, "-"])
        check(sorted(offered) == sorted(options_of(text)), f"bash: fp4lab {' '.join(path)} -: {offered}")
    below = [path[0] for path in commands if len(path) == 1]
    check(in_bash(program, ["fp4lab", ""]) == below, "bash: the commands differ")
    check(in_bash(program, ["fp4lab", "ver"]) == ["verify"], "bash: fp4lab ver")
    check(in_bash(program, ["fp4lab", "study", "wat"]) == ["watch"], "bash: fp4lab study wat")
    check(in_bash(program, ["fp4lab", "verify", "--input", "x.npy", "gem"]) == ["gemm"], "bash: behind an option")
    check(sorted(in_bash(program, ["fp4lab", "verify", "--pack", "gemm", "--sto"])) == ["--stochastic", "--stored"],
          "bash: a file named as a command")  # fmt: skip
    dialects = [d["name"] for d in json.loads(printed(program, "dialects", "--json"))["dialects"]]
    for words in (["verify", "--dialect"], ["verify", "--dialect", "="], ["dialects"], ["identify", "--dialects"]):
        check(in_bash(program, ["fp4lab", *words, ""]) == dialects or words[-1] == "=", f"bash: fp4lab {words}")
        check(in_bash(program, ["fp4lab", *words, "nvfp4.cutlass"])[:1] == ["nvfp4.cutlass"], f"bash: {words}")
    check(in_bash(program, ["fp4lab", "verify", "--dialect", "="]) == dialects, "bash: --dialect=")
    recipes = [r["name"] for r in json.loads(printed(program, "recipes", "--json"))["recipes"]]
    check(sorted(in_bash(program, ["fp4lab", "train", "--recipe", ""])) == sorted(recipes), "bash: recipes")
    check(in_bash(program, ["fp4lab", "crosscheck", "--device", ""]) == ["gpu", "cpu"], "bash: choices")
    check(in_bash(program, ["fp4lab", "verify", "--codes", ""]) == [], "bash: a file is left to the shell")


def check_zsh(program, commands):
    zsh = shutil.which("zsh") or skip("zsh")
    script = f"""compdef() {{ :; }}
_describe() {{ local -a of=("${{(@P)argv[-1]}}"); print -rl -- "${{of[@]%%:*}}" }}
_files() {{ print -r files }}
compadd() {{ shift; print -rl -- "$@" }}
source <('{program}' completion zsh)
"""

    def offered(*words):
        typed = " ".join(f"'{w}'" for w in words)
        ran = subprocess.run(
            [zsh, "-f", "-c", f"{script}words=({typed}); CURRENT={len(words)}; _fp4lab"], capture_output=True, text=True
        )
        check(not ran.stderr, f"zsh: {words}: {ran.stderr}")
        return ran.stdout.split("\n")[:-1]

    for path, text in commands.items():
        found = offered("fp4lab", *path, "")
        below = [p[-1] for p in commands if p[:-1] == path and p]
        missing = {*options_of(text), *below} - set(found)
        check(not missing, f"zsh: fp4lab {' '.join(path)} lacks {missing}")
    check(offered("fp4lab", "crosscheck", "--device", "") == ["gpu", "cpu"], "zsh: choices")
    check(offered("fp4lab", "verify", "--codes", "") == ["files"], "zsh: files")
    check("nvfp4.te" in offered("fp4lab", "dialects", ""), "zsh: dialects")


def check_fish(program, commands):
    fish = shutil.which("fish") or skip("fish")

    def offered(line):
        script = f"'{program}' completion fish | source; complete -C '{line}'"
        ran = subprocess.run([fish, "--no-config", "-c", script], capture_output=True, text=True, cwd="/")
        check(not ran.stderr, f"fish: {line}: {ran.stderr}")
        return [found.split("\t")[0] for found in ran.stdout.split("\n") if found]

    for path, text in commands.items():
        line = " ".join(["fp4lab", *path])
        missing = set(options_of(text)) - set(offered(f"{line} -") + offered(f"{line} --"))
        check(not missing, f"fish: {line} lacks {missing}")
        below = {p[-1] for p in commands if p[:-1] == path and p}
        check(below <= set(offered(f"{line} ")), f"fish: {line} lacks {below}")
    check(offered("fp4lab crosscheck --device ") == ["cpu", "gpu"], "fish: choices")
    check(offered("fp4lab verify --dialect nvfp4.cutlass.e") == ["nvfp4.cutlass.epilogue"], "fish: dialects")


def check_man(program, commands):
    page = printed(program, "man")
    parts = re.split(r"^\.SS \\fB(.*?)\\fR.*$", page, flags=re.MULTILINE)[1:]
    sections = {head.replace("\\-", "-"): text for head, text in zip(parts[::2], parts[1::2])}
    for path, text in commands.items():
        head = " ".join(["fp4lab", *path])
        check(head in sections, f"man: no section {head}")
        shown = sections.get(head, "").replace("\\-", "-")
        for option in options_of(text):
            check(f"\\fB{option}\\fR" in shown, f"man: {head} lacks {option}")
    for part in ("NAME", "SYNOPSIS", "EXIT STATUS", "ENVIRONMENT"):
        check(f"\n.SH {part}\n" in page, f"man: no {part}")
    groff = shutil.which("groff") or skip("groff")
    ran = subprocess.run([groff, "-man", "-ww", "-Tutf8"], input=page, capture_output=True, text=True)
    check(ran.returncode == 0 and not ran.stderr, f"groff: {ran.stderr[:500]}")
    shown = re.sub(r"\x1b\[[0-9;]*m|.\x08", "", ran.stdout)
    check("$ fp4lab data list | grep -o 'synthetic  *any  built in'" in shown, "man: an example is not as it is typed")


def skip(name):
    print(f"SKIPPED: no {name} here")
    sys.exit(0)


def main():
    program, part = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2]
    commands = commands_of(program)
    check(len(commands) > 40, f"only {len(commands)} commands")
    {"options": check_options, "bash": check_bash, "zsh": check_zsh, "fish": check_fish, "man": check_man}[part](
        program, commands
    )
    print("\n".join(failures) or f"{part}: {len(commands)} commands")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
