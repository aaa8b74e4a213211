"""The reference of the public C++ headers: those that the layers' CMakeLists.txt list, each with the first sentence of
its comment."""

import pathlib
import re

LIBRARY = pathlib.Path(__file__).resolve().parents[1] / "lib/fp4lab"
LISTED = re.compile(r"(?:PUBLIC_HEADERS|set\(headers)((?:\s+[\w/.-]+\.h)+)")
LONG = 25  # words of a sentence
LAYER = re.compile(r"^\| \*\*(\w+)\*\* \|", re.MULTILINE)


def public():
    """{layer: [headers]}, as the CMakeLists.txt list them, in the order of the architecture's table."""
    order = LAYER.findall((LIBRARY / "README.md").read_text())
    found = {}
    for path in LIBRARY.glob("*/CMakeLists.txt"):
        listed = LISTED.search(path.read_text())
        if listed:
            found[path.parent.name] = listed[1].split()
    return {layer: found[layer] for layer in sorted(found, key=order.index)}


def comment(text):
    """The comment that a header begins with, its first paragraph."""
    lines = []
    for line in text.split("\n"):
        if not line.startswith("//") or line.strip() == "//":
            break
        lines.append(line[2:].strip())
    return " ".join(lines)


def sentence(text):
    """The first sentence; a dot within a name does not end it. Of a long one, the part before the colon."""
    first = re.split(r"(?<=\.)\s+(?=[A-Z\"(])", text.strip())[0]
    return first if len(first.split()) <= LONG else first.partition(": ")[0].removesuffix(".") + "."


def cell(text):
    return re.sub(r"([|*_<`])", r"\\\1", text)


def page():
    listed = public()
    text = (
        "# C++ headers\n\n"
        f"A program includes these {sum(map(len, listed.values()))} headers as `fp4lab/LAYER/...`. "
        "[From C++](../start/cpp.md) shows how to link. The comments in each header give shapes, units, ranges, "
        "errors and sources. Other headers that are installed may change. "
        "[The architecture](../develop/architecture.md) says what a layer is.\n"
    )
    for layer, headers in listed.items():
        text += f"\n## {layer}\n\n| header | what it declares |\n| --- | --- |\n"
        for header in headers:
            path = LIBRARY / layer / header
            text += f"| `fp4lab/{layer}/{header}` | {cell(sentence(comment(path.read_text())))} |\n"
    return text


if __name__ == "__main__":
    print(page())
