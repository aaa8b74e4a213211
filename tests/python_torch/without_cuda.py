"""Makes an installed torch importable on a machine without CUDA libraries.

torch's wheel for Linux on PyPI is linked to CUDA's shared libraries, 2 GB more, which no operation
on CPU tensors calls. This script compiles libraries of their names, whose every function returns an
error code, and lays them beside torch's own libraries; libraries that the machine has are left
alone. For virtual environments of tests: torch.cuda.is_available() is False there.

    python without_cuda.py        # with the interpreter of the environment; needs gcc, ldd, nm and
    objdump
"""

import importlib.util
import re
import subprocess
import sys
import tempfile
from pathlib import Path

DRIVER = "libcuda.so.1"  # torch looks for it when a GPU is asked for, and must not find it
CUDA = re.compile("cuFile|cu[a-z]|nccl|nv")  # beginnings of the symbols that have no version


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def missing_libraries(libraries):
    """The names that the loader does not find, whichever library asks for them."""
    lines = "".join(output("ldd", str(path)) for path in libraries)
    return sorted(set(re.findall(r"(\S+) => not found", lines)) - {DRIVER})


def versions_of(name, libraries):
    """The symbol versions that torch's libraries ask of the library `name`."""
    versions = set()
    for path in libraries:
        sections = output("objdump", "-p", str(path)).split("required from ")[1:]
        for section in sections:
            if section.startswith(name + ":"):
                versions.update(re.findall(r"^ +0x\w+ 0x\w+ \d+ (\S+)$", section, re.MULTILINE))
    return sorted(versions)


def undefined_symbols(libraries):
    """{version, "" for none: symbols that torch's libraries use and do not define}."""
    defined, used = set(), {}
    for path in libraries:
        for line in output("nm", "-D", str(path)).splitlines():
            kind, symbol = line.split()[-2:]
            name, _, version = symbol.partition("@")
            if kind == "U":
                used.setdefault(version.lstrip("@"), set()).add(name)
            else:
                defined.add(name)
    return {version: names - defined for version, names in used.items()}


def compile_stub(name, versions, symbols, folder):
    """A shared library `name` with the symbols of its versions, and CUDA's without a version."""
    nodes = {v: symbols.get(v, set()) for v in versions}
    plain = {s for s in symbols.get("", ()) if CUDA.match(s)}.difference(*nodes.values())
    script = "".join(f"{v} {{ {''.join(f'{s}; ' for s in sorted(nodes[v]))}}};\n" for v in versions)
    with tempfile.TemporaryDirectory() as work:
        source, map_file = Path(work, "stub.c"), Path(work, "map")
        names = sorted(plain.union(*nodes.values()))
        source.write_text("".join(f"int {s}(void) {{ return 100; }}\n" for s in names))
        map_file.write_text(script)
        options = [f"-Wl,--version-script={map_file}"] if versions else []
        command = ["gcc", "-w", "-shared", "-fPIC", "-fno-builtin", f"-Wl,-soname,{name}", *options]
        subprocess.run([*command, "-o", str(folder / name), str(source)], check=True)


def main():
    torch = importlib.util.find_spec("torch")
    if torch is None or torch.origin is None:
        sys.exit("error: torch is not installed in this environment")
    folder = Path(torch.origin).parent / "lib"
    libraries = sorted(folder.glob("*.so*"))
    symbols = undefined_symbols(libraries)
    names = missing_libraries(libraries)
    for name in names:
        compile_stub(name, versions_of(name, libraries), symbols, folder)
    print(
        f"stand-ins for {len(names)} libraries: {' '.join(names)}"
        if names
        else "nothing is missing"
    )


if __name__ == "__main__":
    main()
