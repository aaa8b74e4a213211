"""The notebooks that need the package run, cell after cell; they assert what they say."""

import json
import os

import pytest

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("agg")

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../notebooks")


@pytest.mark.parametrize("name", ["anatomy", "debug_kernel"])
def test_notebook(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with open(os.path.join(FOLDER, name + ".ipynb"), encoding="utf-8") as file:
        cells = json.load(file)["cells"]
    scope = {}
    for number, cell in enumerate(cells):
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"{name}, cell {number}", "exec"), scope)
    matplotlib.pyplot.close("all")
