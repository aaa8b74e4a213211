"""Checks the explorer of the league: the committed page is that of its data, and its numbers are those of the league's
page. Where Chromium is installed, what its script computes is what Python computes, and it fits a window of 400 pixels.
"""
import html
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
EXPLORER = ROOT / "studies/results/explorer"
sys.path[:0] = [str(EXPLORER), str(ROOT / "tests/pages")]
import make  # noqa: E402
import rows  # noqa: E402
from site_test import WIDTH, widths  # noqa: E402

TEXT = make.PAGE.read_text()
DATA = json.loads(re.search(r'id="data">(.*?)</script>', TEXT, re.DOTALL)[1])
LEAGUE = (ROOT / "studies/results/league/README.md").read_text()
ROW = re.compile(r"<tr(?: class=\"[^\"]*\")?>(<th scope=\"row\">.*?)</tr>", re.DOTALL)


def by_name(size):
    return {row["recipe"]: row for row in DATA["sizes"][size]["rows"]}


def plain(cell):
    """The text of a cell of the league's page, without its marks."""
    return cell.replace("&nbsp;", " ").replace("*", "").replace(" x", "").strip()


def table(kind):
    part = re.search(rf"<!-- table {kind} .*?-->\n(.*?)<!-- end of table -->", LEAGUE, re.DOTALL)[1]
    head, _, *lines = [re.split(r" ?(?<!\\)\| ?", line)[1:-1] for line in part.strip().split("\n")]
    return head, lines


def check_league():
    """Every row of the league's page is on this one, with the same differences and token ratios."""
    names = by_name("1.2M")
    count = 0
    for kind in ("league", "leaguerest"):
        _, lines = table(kind)
        for _, name, above, minus, ratio, *_ in lines:
            row, count = names[name], count + 1
            for base, text in (("bf16", above), ("te_nvfp4", minus)):
                d = rows.difference(DATA["sizes"]["1.2M"], row, names[base])
                assert make.difference_text(d) == plain(text), (name, base, make.difference_text(d), text)
            assert make.ratio_text(row) == plain(ratio), (name, make.ratio_text(row), ratio)
    assert count > 100, f"only {count} rows"
    _, lines = table("leaguesizes")
    for name, small, large, minus_small, minus_large, *_ in lines:
        for size, base, text in (("1.2M", "bf16", small), ("4.7M", "bf16", large), ("1.2M", "te_nvfp4", minus_small),
                                 ("4.7M", "te_nvfp4", minus_large)):
            names = by_name(size)
            shown = make.difference_text(rows.difference(DATA["sizes"][size], names[name], names[base]))
            assert shown == plain(text), (name, size, base, shown, text)


def check_kinds():
    """What multiplies agrees with the shares that the league counts, and each chip is on the page."""
    width = {"BF16": "16", "FP8": "8", "MXFP8": "8"}
    for row in DATA["sizes"]["1.2M"]["rows"]:
        bits = {width.get(max(kinds, key=lambda k: width.get(k, "4").zfill(2)), "4") for kinds in row["kinds"]}
        shared = {bits for bits, share in zip(("4", "8", "16"), row["shares"]) if share}
        assert bits <= shared, (row["recipe"], row["kinds"], row["shares"])
    assert {row["chip"] for row in DATA["sizes"]["1.2M"]["rows"]} == {0, 1, 2}
    names = by_name("1.2M")
    assert names["te_nvfp4"]["chip"] == 1 and names["torchao_fp8_rowwise"]["chip"] == 0
    assert names["hifloat4"]["chip"] == 2 and "INT4 under FP32 scales of 64" in names["hifloat4"]["kinds"][0]
    features = {name: [DATA["features"][i] for i in row["features"]] for name, row in names.items()}
    assert "four over six" in features["te_nvfp4_4over6_all"] and "four over six" not in features["te_nvfp4"]
    assert "square blocks of weights" in features["te_nvfp4"]
    assert "square blocks of weights" not in features["te_nvfp4_no_2d"]
    assert "stochastic rounding" not in features["te_nvfp4_no_sr"]
    assert "BF16 in part" in features["nvidia_nvfp4_12b"]


def cells(dom):
    """{recipe: (difference, verdict)} of the rows of a page, in their order."""
    found = {}
    for row in ROW.findall(dom):
        texts = [html.unescape(re.sub(r"<small>.*?</small>|<[^>]+>", "", cell)).strip()
                 for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL)]
        found[texts[0]] = (" ".join(texts[1].split()), texts[3])
    return found


def drawn(chromium, fragment):
    ran = subprocess.run([chromium, "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=10000",
                          "--dump-dom", f"{make.PAGE.as_uri()}{fragment}"], capture_output=True, text=True, timeout=120)
    return ran.stdout


def expected(size, baseline, wanted, together=False):
    of, names = DATA["sizes"][size], by_name(size)
    own = [row for row in of["rows"] if wanted(row)]
    level = 0.05 / sum(row["recipe"] != baseline for row in own) if together else 0.05
    found = {}
    for row in own:
        d = rows.difference(of, row, names[baseline], level)
        found[row["recipe"]] = (make.difference_text(d), make.verdict(d))
    return found


def check_script(chromium):
    states = (
        ("", "1.2M", "te_nvfp4", lambda row: row["four"], False),
        ("#baseline=quartet2&products=", "1.2M", "quartet2", lambda row: True, False),
        ("#baseline=mxfp4&products=&together=1", "1.2M", "mxfp4", lambda row: True, True),
        ("#products=&chip=0", "1.2M", "te_nvfp4", lambda row: row["chip"] == 0, False),
        ("#products=&features=0.4&forward=0", "1.2M", "te_nvfp4",
         lambda row: {0, 4} <= set(row["features"]) and row["forward"] == 0, False),
        ("#size=4.7M&baseline=tetrajet_v2&products=", "4.7M", "tetrajet_v2", lambda row: True, False),
    )
    for fragment, size, baseline, wanted, together in states:
        shown = cells(drawn(chromium, fragment))
        right = expected(size, baseline, wanted, together)
        wrong = {name: (shown.get(name), right.get(name)) for name in shown.keys() | right.keys()
                 if shown.get(name) != right.get(name)}
        assert right and not wrong, f"{fragment}: script and Python differ: {wrong}"
    assert list(cells(drawn(chromium, ""))) == list(cells(TEXT)), "another order than without a script"
    by_time = list(cells(drawn(chromium, "#products=&sort=-time")))
    times = [by_name("1.2M")[name]["time"] for name in by_time]
    assert times == sorted(times, reverse=True), "not sorted by time"
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(make.PAGE, folder)
        width, length, widest = widths(pathlib.Path(folder), [make.PAGE.name], chromium)[make.PAGE.name]
    assert width <= WIDTH and length > 2000, f"{width} pixels wide in a window of {WIDTH}: {widest}"


def main():
    assert make.page() == TEXT, "explorer.html differs from its data; run python3 studies/results/explorer/make.py"
    assert not re.search(r"(src|href)=\"(https?:)?//|@import|url\(", TEXT), "the page reads something else"
    assert len(TEXT) < 300_000, "too large"
    shown = cells(TEXT)
    assert shown == expected("1.2M", "te_nvfp4", lambda row: row["four"]), "the rows of the page differ from its data"
    assert {verdict for _, verdict in shown.values()} >= {"lower loss", "higher loss", "not told apart", "baseline"}
    check_league()
    check_kinds()
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium:
        check_script(chromium)
    else:
        print("not checked: what the script computes, as no Chromium is installed")
    print(f"the explorer's {len(shown)} rows are those of the league")


if __name__ == "__main__":
    main()
