"""python -m fp4lab.check against torch and torchao."""

import pytest

from fp4lab import check


def test_casts_of_torch():
    report = check.check_dialects(packages=["torch"])
    assert report and all(c.compared == 65536 for c in report.comparisons)


def test_dialects_of_torchao():
    torchao = pytest.importorskip("torchao", reason="torchao is not installed")
    report = check.check_dialects(packages=["torchao"])
    assert report, str(report)
    made = {c.subject: c for c in report.comparisons if c.agrees}
    if torchao.__version__.startswith("0.18"):
        assert {
            "mxfp4.torchao.floor.0.18",
            "nvfp4.torchao.inference",
            "nvfp4.torchao.single-level",
        } <= set(made)
        two_levels = made["nvfp4.torchao.inference"]
        assert two_levels.unit == "bytes" and two_levels.compared > 100_000
        assert "codes left out" in two_levels.note
