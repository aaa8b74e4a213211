"""The files that FP4LAB_UNITY joins compile together: no two of them define the same name.

unity_test.py CMAKE SOURCE COMPILER FOLDER: configures a united build of the program in FOLDER and checks
each joined file as the compiler would, without code. Tests themselves compile file by file, so that a file
that leans on another one's includes is seen, too.
"""

import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys


def check(command):
    """The compiler's errors on one joined file, or an empty string."""
    text = re.sub(r" -o \S+", "", command["command"]) + " -fsyntax-only"
    result = subprocess.run(text, shell=True, cwd=command["directory"], capture_output=True, text=True)
    return result.stderr if result.returncode else ""


def main():
    cmake, source, compiler, folder = sys.argv[1:]
    subprocess.run(
        [cmake, "-S", source, "-B", folder, "-G", "Ninja", f"-DCMAKE_CXX_COMPILER={compiler}", "-DFP4LAB_TESTS=OFF",
         "-DFP4LAB_CUDA=AUTO", "-DFP4LAB_PCH=ON", "-DFP4LAB_UNITY=ON"],
        check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    commands = json.loads((pathlib.Path(folder) / "compile_commands.json").read_text())
    # Not by ninja, for which all kernels of CUDA come first.
    for precompiled in (c for c in commands if c["file"].endswith("cmake_pch.hxx.cxx")):
        subprocess.run(precompiled["command"], shell=True, cwd=precompiled["directory"], check=True)
    joined = [c for c in commands if "/Unity/unity_" in c["file"]]
    if not joined:
        sys.exit("no joined file: is FP4LAB_UNITY an option still?")
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        errors = [e for e in pool.map(check, joined) if e]
    for error in errors:
        print(error)
    if errors:
        sys.exit(f"{len(errors)} of {len(joined)} joined files do not compile: two of their files use one name")
    print(f"{len(joined)} joined files compile")


main()
