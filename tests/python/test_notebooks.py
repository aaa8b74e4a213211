"""The notebooks run, and those that hold outputs print them again: pages of the site show these.

With FP4LAB_APPROVE=1 the outputs are written into the notebooks, figures included. Figures are not compared, as
other versions of matplotlib draw other pixels; their number is.
"""

import base64
import contextlib
import io
import json
import os
import pathlib

import pytest

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "notebooks"


def text_of(output):
    return "".join(output["text"]) if output["output_type"] == "stream" else None


def run(cells, plt):
    """The outputs of each code cell, run in one namespace, in the notebooks' folder."""
    space = {"__name__": "__main__"}
    for cell in cells:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile("".join(cell["source"]), "cell", "exec"), space)
        lines = printed.getvalue().splitlines(keepends=True)
        outputs = [{"output_type": "stream", "name": "stdout", "text": lines}] if lines else []
        for number in plt.get_fignums():
            drawn = io.BytesIO()
            plt.figure(number).savefig(drawn, format="png", dpi=80, bbox_inches="tight", metadata={"Software": None})
            image = base64.b64encode(drawn.getvalue()).decode()
            outputs.append({"output_type": "display_data", "metadata": {}, "data": {"image/png": image}})
        plt.close("all")
        yield outputs


@pytest.mark.parametrize("name", ["anatomy", "debug_kernel", "token_gap"])
def test_outputs(name, monkeypatch):
    matplotlib = pytest.importorskip("matplotlib", reason="matplotlib is absent")
    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    monkeypatch.chdir(FOLDER)
    monkeypatch.delenv("FP4LAB_RESULTS", raising=False)
    path = FOLDER / f"{name}.ipynb"
    notebook = json.loads(path.read_text())
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    with plt.rc_context():
        now = list(run(cells, plt))
    assert any(now)
    if os.environ.get("FP4LAB_APPROVE"):
        for number, (cell, outputs) in enumerate(zip(cells, now), 1):
            cell["outputs"], cell["execution_count"] = outputs, number
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")
    if not any(cell["outputs"] for cell in cells):
        return  # its outputs were never approved: the site shows its cells alone
    for cell, outputs in zip(cells, now):
        stored = cell["outputs"]
        assert [text_of(o) for o in outputs] == [text_of(o) for o in stored], "".join(cell["source"])[:200]
