"""The notebooks as pages, with the outputs that they hold, if any: {page of the site: text}, and {file of the site: bytes} of
their figures. tests/python/test_notebooks.py writes the outputs."""

import base64
import json
import pathlib

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "notebooks"
PLACE = "notebooks/"


def fenced(text, kind):
    return f"```{kind}\n{text.rstrip()}\n```\n"


def page(path):
    """(the text, {file: bytes}) of a notebook."""
    parts, figures = [], {}
    for cell in json.loads(path.read_text())["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(fenced(source, "python"))
        for output in cell["outputs"]:
            if output["output_type"] == "stream":
                parts.append(fenced("".join(output["text"]), "text"))
                continue
            name = f"{path.stem}-{len(figures) + 1}.png"
            figures[PLACE + name] = base64.b64decode(output["data"]["image/png"])
            parts.append(f"![A figure of the cell above]({name})")
    head, _, rest = "\n\n".join(parts).partition("\n")
    outputs = " with its outputs" if "```text" in rest else ""
    note = f"This page is [notebooks/{path.name}](../files/notebooks/{path.name}){outputs}."
    return f"{head}\n\n{note}\n{rest}\n", figures


def pages():
    texts, files = {}, {}
    for path in sorted(FOLDER.glob("*.ipynb")):
        text, figures = page(path)
        texts[f"{PLACE}{path.stem}.md"] = text
        files |= figures | {f"files/notebooks/{path.name}": path.read_bytes()}
    return texts, files
