"""The table of the sweep: results.json, and README.md, which shows it."""

import json
from pathlib import Path

HERE = Path(__file__).parent
HEAD = """# Rows against packages

Each row that a package on PyPI implements on a CPU, against that package: codes, block scales and tensor scales, byte
for byte (values where a package has no bytes). `tests/python_packages/run` makes this table and fails if a result
changes; `FP4LAB_APPROVE=1` writes it anew. Tensors: the directed cases of the row, exact ties, subnormals, maxima at the
bounds of scale rules, NaN and Inf, blocks of zeros, random bits, few rows, rows whose last block is a part; as FP32 and
as BF16 where a row holds for both. The run takes 5 CPU minutes after the download.

"Left out" are bytes that a package leaves undefined, or for which it differs on a stated condition; the last column
names the condition, how many bytes stand under it, and how many of them differ.

| row | package | tensors | equal | different | bytes compared | left out |
|---|---|---|---|---|---|---|
"""


def record(adapter, version, tally):
    """What results.json keeps of a row."""
    conditions = {
        what: {"bytes": n, "different": tally.exempt_different[what]}
        for what, n in tally.exempt.items()
        if n
    }
    if tally.undefined:
        conditions["codes that the package does not specify"] = {"bytes": tally.undefined}
    if tally.refused:
        conditions["tensors that the package does not take"] = {"tensors": tally.refused}
    return {
        "row": adapter.dialect, "package": adapter.distribution, "version": version,
        "cases": tally.cases, "equal": tally.equal_cases, "different": tally.cases - tally.equal_cases,
        "compared": tally.compared, "bytes_different": tally.different, "left_out": conditions,
    }  # fmt: skip


def _condition(what, counts):
    if "tensors" in counts:
        return f"{counts['tensors']} {what}"
    if "different" in counts:
        return f"{what}: {counts['bytes']}, {counts['different']} differ"
    return f"{counts['bytes']} {what}"


def markdown(records):
    """README.md's text."""
    lines = []
    for r in records:
        left = "; ".join(_condition(*item) for item in r["left_out"].items()) or "-"
        lines.append(
            f"| {r['row']} | {r['package']} {r['version']} | {r['cases']} | {r['equal']} | "
            f"{r['different']} | {r['compared']} | {left} |"
        )
    return HEAD + "\n".join(lines) + "\n"


def load():
    path = HERE / "results.json"
    return json.loads(path.read_text()) if path.exists() else []


def save(records):
    text = ",\n".join(" " + json.dumps(r) for r in records)
    (HERE / "results.json").write_text(f"[\n{text}\n]\n")
    (HERE / "README.md").write_text(markdown(records))
