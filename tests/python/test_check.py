"""Comparisons with installed packages: agreements counted, differences named."""

import numpy as np
import pytest

import fp4lab
from fp4lab import check
from fp4lab.check import adapters, compare, dialects, sources


def test_every_installed_package_agrees():
    report = check.check_dialects()
    print(report)
    assert not [c for c in report.comparisons if c.different], str(report)
    for c in report.comparisons:
        assert c.agrees or c.note
    if not any(c.agrees for c in report.comparisons):
        pytest.skip("no package to compare with is installed")


def test_every_row_is_compared_or_has_a_reason():
    rows = {d.name for d in fp4lab.dialects()}
    table = [s.row for s in sources.sources()]
    assert len(table) == len(set(table)) and set(table) == rows, set(table) ^ rows
    compared = {a.dialect for a in adapters.ADAPTERS}
    assert compared <= rows
    for s in sources.sources():
        assert bool(s.not_compared) != (s.row in compared), s.row
        assert bool(s.unwatched) != bool(s.file and s.functions and s.version), s.row
    for a in adapters.ADAPTERS:
        assert sources.source_of(a.dialect).distribution == a.distribution, a.dialect


def test_a_difference_is_found_and_named(monkeypatch, capsys):
    pytest.importorskip("ml_dtypes", reason="ml_dtypes is absent")

    def wrong(module, name, x):
        values = x.astype(getattr(module, name)).astype(np.float32)
        values[x == 2.5] = 3.0
        return values

    monkeypatch.setattr(dialects, "CASTS", (("ml_dtypes", wrong, ("float4_e2m1fn",)),))
    assert check.main(["--package", "ml_dtypes"]) == 1
    out = capsys.readouterr().out
    assert "DIFFERENT     cast float4_e2m1fn: ml_dtypes" in out and "1 of 65280 values" in out
    assert "0 comparisons agree, 1 differ, 0 not made" in out


def own(row, change=lambda codes: codes, last="9", **more):
    """An adapter whose package is numpy and whose answer is this library's, changed."""

    def answer(x, bf16):
        q = fp4lab.quantize(x, row)
        return compare.Answer(change(compare.element_codes(q, 4)), q.scale_inv, number=q.amax)

    return compare.Adapter(row, "numpy", "numpy", "1.0", last, answer, **more)


def report_of(monkeypatch, adapter):
    monkeypatch.setattr(adapters, "ADAPTERS", (adapter,))
    return check.check_dialects([adapter.dialect]).comparisons[0]


def test_bytes_are_compared_and_the_first_difference_has_both(monkeypatch):
    same = report_of(monkeypatch, own("nvfp4.te"))
    assert same.agrees and same.unit == "bytes" and same.compared > 100_000

    def five_to_four(codes):
        return np.where(codes == 5, 4, codes).astype(np.uint8)

    other = report_of(monkeypatch, own("nvfp4.te", five_to_four))
    assert other.different and "0x05 here, 0x04 there" in other.note


def first_block(x, d):
    mask = np.zeros(x.shape, bool)
    mask[0, :16] = True
    return mask


def test_exemptions_are_counted_and_hide_nothing_else(monkeypatch):
    def flip(codes):
        out = codes.copy()
        out[0, :16] ^= 8
        return out

    exemption = compare.Exemption("the first block", first_block)
    covered = report_of(monkeypatch, own("nvfp4.te", flip, exemptions=(exemption,)))
    assert covered.agrees and "left out: the first block" in covered.note
    assert report_of(monkeypatch, own("nvfp4.te", flip)).different


def test_releases_out_of_the_range(monkeypatch):
    newer = report_of(monkeypatch, own("nvfp4.te", last="1.1"))
    assert newer.agrees
    assert "newer than the row's range (1.0 to 1.1); compared all the same" in newer.note
    ended = report_of(monkeypatch, own("nvfp4.te", last="1.1", ended=True))
    assert ended.skipped and "ended with 1.1" in ended.note
    older = dialects.range_note(own("nvfp4.te"), "0.9")
    assert older == (False, "older than the row's range (1.0 to 9)")
    assert dialects.range_note(own("nvfp4.te", last="1.18"), "1.18.0.post1") == (True, "")


def test_absent_packages_and_names(capsys):
    report = check.check_dialects(["mxfp4.torchao.floor.0.18"])
    assert len(report.comparisons) == 1
    assert check.main(["nvfp4.nobody"]) == 2
    assert "nvfp4.nobody" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        check.main(["--large"])
    assert "add --watch" in capsys.readouterr().err
