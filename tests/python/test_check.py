"""Comparisons with installed packages: agreements counted, differences named."""

import numpy as np
import pytest
from fp4lab import check


def test_every_installed_package_agrees():
    report = check.check_dialects()
    print(report)
    assert not [c for c in report.comparisons if c.different], str(report)
    for c in report.comparisons:
        assert c.agrees or c.note
    if not any(c.agrees for c in report.comparisons):
        pytest.skip("no package to compare with is installed")


def test_a_difference_is_found_and_named(monkeypatch, capsys):
    pytest.importorskip("ml_dtypes", reason="ml_dtypes is absent")

    def wrong(module, name, x):
        values = x.astype(getattr(module, name)).astype(np.float32)
        values[x == 2.5] = 3.0
        return values

    monkeypatch.setattr(check, "_CASTS", (("ml_dtypes", wrong, ("float4_e2m1fn",)),))
    assert check.main(["--package", "ml_dtypes"]) == 1
    out = capsys.readouterr().out
    assert "DIFFERENT     cast float4_e2m1fn: ml_dtypes" in out and "1 of 65280 values" in out
    assert "0 comparisons agree, 1 differ, 0 not made" in out


def test_absent_packages_and_names(capsys):
    report = check.check_dialects(["mxfp4.torchao.floor.0.18"])
    assert len(report.comparisons) == 1
    assert check.main(["nvfp4.nobody"]) == 2
    assert "nvfp4.nobody" in capsys.readouterr().err
