"""Checks what docs/history/predictions.md says of the order of criteria and runs against the repository's history."""
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "studies/results"))
import registered  # noqa: E402


def main():
    if not registered.has_history():
        print("SKIPPED: this folder has no history")
        return
    of = registered.of_criteria(registered.rows())
    assert set(of["together"]) == registered.KNOWN, f"criteria that came with their results: {of['together']}"
    page = (ROOT / "docs/history/predictions.md").read_text()
    total = sum(map(len, of.values()))
    for text in (f"proven for {len(of['proven'])} of {total}", f"For {len(of['by times'])} only the times"):
        assert text in page, f"docs/history/predictions.md does not say {text!r}; python3 studies/results/registered.py"
    for name in (*of["by times"], *of["together"]):
        assert f"`{name}`" in page, f"docs/history/predictions.md does not name {name}, whose order is not proven"


if __name__ == "__main__":
    main()
