#!/usr/bin/env python3
"""Copies the results.json of a study into this folder, small enough for the repository.

    python3 studies/results/publish.py out/NAME [MORE ...]

writes studies/results/NAME/results.json without training curves, diagnostics of operands and the chunk
losses of the unquantized forward pass, which are nine tenths of the file and no part of a verdict, and with
the hash of what is left; it copies gap.svg and token_ratio.svg. `fp4lab study report` reads the file as any other.
"""
import hashlib
import json
import pathlib
import shutil
import sys

HERE = pathlib.Path(__file__).resolve().parent


class Number(str):
    """A number with a fraction or an exponent, in the digits of the file."""


def text(value):
    """As fp4lab writes a document: keys sorted, no spaces, each number in the digits that it had."""
    if isinstance(value, Number):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{text(k)}:{text(value[k])}" for k in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(text, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def digest(document):
    return hashlib.sha256(text(document).encode()).hexdigest()


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    for folder in sys.argv[1:]:
        path = pathlib.Path(folder) / "results.json"
        try:
            document = json.loads(path.read_text(), parse_float=Number)
        except (OSError, ValueError) as error:
            sys.exit(f"{path}: {error}; name the folder of a finished study")
        if document.pop("sha256", None) != digest(document):
            sys.exit(f"{path}: its numbers are not those of its hash; run the study again")
        for run in document["runs"]:
            run["curve"] = []
            run["tensors"] = []
            for point in run["points"]:
                point["chunk_losses_high"] = []
        views = document["analysis"]  # a list where a study has several models or rates
        for analysis in views if isinstance(views, list) else [views]:
            for key in "gaps", "token_ratios":
                analysis[key] = [r for r in analysis[key] if r["precision"] == "training"]
        document["sha256"] = digest(document)
        out = HERE / document["name"]
        out.mkdir(exist_ok=True)
        (out / "results.json").write_text(text(document) + "\n")
        (out / "figures").mkdir(exist_ok=True)
        for figure in "gap.svg", "token_ratio.svg":
            if (pathlib.Path(folder) / "figures" / figure).exists():
                shutil.copy(pathlib.Path(folder) / "figures" / figure, out / "figures" / figure)
        print(f"{out}/results.json: {(out / 'results.json').stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
