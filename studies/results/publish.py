#!/usr/bin/env python3
"""Copies the results.json of a study into this folder, small enough for the repository.

    python3 studies/results/publish.py out/NAME [MORE ...]

writes studies/results/NAME/results.json without the training curves and the diagnostics of operands, which
are nine tenths of the file and no part of the analysis, and with the hash of what is left. `fp4lab study
report` reads the file as any other.
"""
import hashlib
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent


def text(document):
    """As fp4lab writes a document: keys sorted, no spaces."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def digest(document):
    return hashlib.sha256(text(document).encode()).hexdigest()


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    for folder in sys.argv[1:]:
        path = pathlib.Path(folder) / "results.json"
        try:
            document = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            sys.exit(f"{path}: {error}; name the folder of a finished study")
        if document.pop("sha256", None) != digest(document):
            sys.exit(f"{path}: its numbers are not those of its hash; run the study again")
        for run in document["runs"]:
            run["curve"] = []
            run["tensors"] = []
        document["sha256"] = digest(document)
        out = HERE / document["name"]
        out.mkdir(exist_ok=True)
        (out / "results.json").write_text(text(document) + "\n")
        print(f"{out}/results.json: {(out / 'results.json').stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
