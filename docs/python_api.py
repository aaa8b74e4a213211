"""The reference of the Python package, made from the docstrings of its sources without importing them."""

import ast
import pathlib
import re
import sys
import textwrap

PACKAGE = pathlib.Path(__file__).resolve().parents[1] / "lib/python/fp4lab"
MODULES = ("", "testing", "study", "check", "torch", "jax", "te_jax")  # of fp4lab, in the order of the page
SECTION = re.compile(r"(Args|Attributes|Returns|Raises|Yields|Example|Examples|Note):\s*$")
ITEM = re.compile(r"(\*{0,2}[\w., *]+?)( \([^)]*\))?: (.*)")
WORDS = {"Args": "Arguments", "Example": "Example", "Note": "Note"}


def fail(text):
    sys.exit(f"error: docs/python_api.py: {text}")


def tree_of(path):
    return ast.parse(path.read_text(), str(path))


def source_of(module):
    """The file of a module of the package, "" being the package itself."""
    for path in (PACKAGE / module / "__init__.py", PACKAGE / f"{module}.py"):
        if path.is_file():
            return path
    fail(f"no module {module}")


def imported(tree, folder):
    """{name: (file that defines it, its name there)} of the imports of one's own modules."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level == 1 and node.module:
            path = folder / f"{node.module}.py"
            for alias in node.names:
                found[alias.asname or alias.name] = (path, alias.name)
    return found


def listed(tree):
    """The names of __all__; without it, the functions and classes that are defined here without an underscore."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return [element.value for element in node.value.elts]
    kinds = (ast.FunctionDef, ast.ClassDef)
    return [node.name for node in tree.body if isinstance(node, kinds) and not node.name.startswith("_")]


def definition(tree, name):
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == name:
            return node
    return None


def signature(node, name):
    arguments = ast.unparse(node.args)
    arguments = re.sub(r"^(self|cls)(, |$)", "", arguments)
    gives = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    line = f"{name}({arguments}){gives}"
    return textwrap.fill(line, 100, subsequent_indent=" " * 8, break_long_words=False, break_on_hyphens=False)


def prose(lines):
    """Paragraphs, with examples in fences."""
    text, fenced = [], False
    for line in lines:
        example = line.startswith(">>>")
        if example and not fenced:
            text += ["", "```python"]
            fenced = True
        elif fenced and not line.strip():
            text.append("```")
            fenced = False
        text.append(line if fenced else re.sub(r"([<*])", r"\\\1", line))
    return "\n".join(text + (["```"] if fenced else []))


def items(lines):
    """A section's indented lines, "name: what" each, as a list."""
    found = []
    for line in textwrap.dedent("\n".join(lines)).split("\n"):
        item = None if line.startswith(" ") else ITEM.match(line)
        if item:
            found.append(f"- `{item[1]}`{item[2] or ''}: {item[3]}")
        elif found and line.strip():
            found[-1] += " " + line.strip()
        elif line.strip():
            found.append(f"- {line.strip()}")
    return re.sub(r"(?m)<", r"\\<", "\n".join(found))


def markdown(docstring):
    """A docstring as Markdown: its sections become lists under a word."""
    blocks, section, lines = [], None, []

    def close():
        if section is None:
            blocks.append(prose(lines))
        elif any(lines):
            blocks.append(f"**{WORDS.get(section, section)}**\n\n{items(lines)}")

    for line in docstring.split("\n"):
        start = SECTION.match(line)
        if start or (section and line and not line.startswith(" ")):
            close()
            section, lines = (start[1], []) if start else (None, [line])
        else:
            lines.append(line)
    close()
    return "\n\n".join(block.strip() for block in blocks if block.strip())


def documented(node, name, where):
    text = ast.get_docstring(node)
    if not text:
        fail(f"{where}: {name} has no docstring")
    return markdown(text)


def entry(node, name, where):
    text = f"### {where}.{name}\n\n" if where else f"### {name}\n\n"
    if isinstance(node, ast.FunctionDef):
        return text + f"```python\n{signature(node, name)}\n```\n\n{documented(node, name, where)}\n\n"
    text += documented(node, name, where) + "\n\n"
    for method in node.body:
        if not isinstance(method, ast.FunctionDef) or method.name.startswith("_") or not ast.get_docstring(method):
            continue
        marks = {ast.unparse(mark).split(".")[-1] for mark in method.decorator_list}
        head = method.name if marks & {"property", "cached_property"} else signature(method, method.name)
        text += f"```python\n{name}.{head}\n```\n\n{documented(method, method.name, name)}\n\n"
    return text


def constants(tree, names):
    """Names of the list that are values: "- `NAME`"."""
    return "".join(f"- `{name}`: a constant\n" for name in names)


def section(module):
    path = source_of(module)
    tree = tree_of(path)
    where = f"fp4lab.{module}" if module else "fp4lab"
    head = (ast.get_docstring(tree) or fail(f"{path} has no docstring")).split("\n\n")[0].replace("\n", " ")
    text, values = f"## {where}\n\n{head}\n\n", []
    homes = imported(tree, path.parent)
    for name in sorted(listed(tree), key=str.lower):
        node = definition(tree, name)
        if node is None and name in homes:
            home, own = homes[name]
            node = definition(tree_of(home), own) if home.is_file() else None
        if node is None:
            values.append(name)
        else:
            text += entry(node, name, where)
    return text + constants(tree, values)


def page():
    return (
        "# Python\n\nEvery public name of the package, made from its docstrings. "
        "[The package's page](../start/python.md) shows how they are used.\n\n"
        + "\n".join(section(module) for module in MODULES)
    )


if __name__ == "__main__":
    print(page())
