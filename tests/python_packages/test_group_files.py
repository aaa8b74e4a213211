"""Files in groups that packages write are read to the values that the packages decode, and are clean."""

import importlib.metadata
import json
import os
from pathlib import Path

import group_files
import pytest
from safetensors.torch import load_file, save_file

import fp4lab

APPROVE = os.environ.get("FP4LAB_APPROVE") == "1"
TABLE = Path(__file__).parent / "groups.json"
PAGE = Path(__file__).parent / "groups.md"
HEAD = """# Files in groups against packages

`fp4lab check` on files that a package's own code writes on a CPU. `--values` compares every value with what the
package's own arithmetic decodes, `--original` with the matrix that was quantized. `tests/python_packages/run` makes
this table and fails if a result changes; `FP4LAB_APPROVE=1` writes it anew.

| file | package | formula | values | different | codes to nearest | SQNR |
|---|---|---|---|---|---|---|
"""
MEASURED = {}


def markdown(records):
    lines = [
        f"| {r['file']} | {r['package']} {r['version']} | {r['formula']} | {r['values']} | {r['different']} | "
        f"{r['nearest']} | {r['sqnr_db']} dB |"
        for r in records
    ]
    return HEAD + "\n".join(lines) + "\n"


def measured(name, distribution, made, path):
    """What a report says of the file."""
    stem = path.parent.parent / path.parent.name
    report = fp4lab.check_checkpoint(
        path.parent, original=f"{stem}.original.safetensors", values=f"{stem}.values.safetensors"
    )
    assert report["findings"] == [], report["findings"]
    (matrix,) = report["matrices"]
    original, values = matrix["original"], matrix["values"]
    share = 1.0 if original.get("dialect") else original["share_of_codes"]
    return {
        "file": name, "package": distribution, "version": importlib.metadata.version(distribution),
        "formula": matrix["formula"], "values": made[0].numel(), "different": values["different"],
        "nearest": f"{100 * share:.2f} %", "sqnr_db": f"{original['readings'][0]['sqnr_db']:.1f}",
    }  # fmt: skip


@pytest.mark.parametrize(("name", "distribution", "make", "arguments"), group_files.FILES, ids=lambda v: str(v))
def test_file_of_a_package(name, distribution, make, arguments, tmp_path):
    made = make(**arguments)
    record = measured(name, distribution, made, group_files.write(tmp_path / "m", made))
    MEASURED[name] = record
    assert record["different"] == 0
    if not APPROVE:
        assert record in json.loads(TABLE.read_text())


def test_the_table_is_complete():
    if APPROVE and len(MEASURED) == len(group_files.FILES):
        TABLE.write_text(json.dumps(list(MEASURED.values()), indent=1) + "\n")
        PAGE.write_text(markdown(MEASURED.values()))
    records = json.loads(TABLE.read_text())
    assert [r["file"] for r in records] == [f[0] for f in group_files.FILES]
    assert PAGE.read_text() == markdown(records)


@pytest.mark.parametrize(
    ("index", "tensor", "change"),
    [
        (1, "qzeros", lambda t: t + 0x11111111),  # zeros that are one off
        (5, "qweight", lambda t: t.roll(1, 1)),
        (8, "weight_packed", lambda t: t.roll(1, 0)),
        (12, "scales", lambda t: 2 * t),
        (15, "weight", lambda t: (t >> 4) | (t << 4)),
    ],
)
def test_a_changed_file_is_seen(index, tensor, change, tmp_path):
    """The comparison with a package's values sees one wrong tensor."""
    _, _, make, arguments = group_files.FILES[index]
    path = group_files.write(tmp_path / "m", make(**arguments))
    tensors = load_file(path)
    name = next(n for n in tensors if n.endswith("." + tensor))
    tensors[name] = change(tensors[name]).contiguous()
    save_file(tensors, path)
    report = fp4lab.check_checkpoint(path.parent, values=tmp_path / "m.values.safetensors")
    assert any(f["finding"] == "values" for f in report["findings"])
