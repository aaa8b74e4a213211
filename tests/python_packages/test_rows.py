"""Every row that a package implements on a CPU equals that package, but under the stated conditions."""

import os

import pytest
import table
from inputs import typed

import fp4lab
from fp4lab.check import adapters, compare, dialects

APPROVE = os.environ.get("FP4LAB_APPROVE") == "1"
CURRENT = [a for a in adapters.ADAPTERS if not a.ended]
RECORDED = {r["row"]: r for r in table.load()}
MEASURED = {}


def refuses(adapter, x, bf16):
    """Whether the package, or its reshape to rows of one block, takes no such tensor."""
    try:
        return adapter.answer(x, bf16) is None
    except (AssertionError, IndexError, RuntimeError, ValueError):
        return True


def tally_of(adapter):
    tally = compare.Tally()
    for family, x, bf16 in typed(adapter, fp4lab.dialect(adapter.dialect)):
        if family == "ragged" and not adapter.ragged:
            assert refuses(adapter, x, bf16), f"{adapter.distribution} takes {x.shape}: say so"
            tally.refused += 1
        else:
            compare.add(tally, adapter, x, bf16)
    return tally


def told(record):
    """What a record says; its counts move with the directed cases of the library."""
    return [record[k] for k in ("row", "package", "version", "different")] + sorted(record["left_out"])


@pytest.mark.parametrize("adapter", CURRENT, ids=lambda a: a.dialect)
def test_row_equals_its_package(adapter):
    version, module, why = dialects.installed(adapter.distribution, adapter.module)
    assert module is not None, f"{adapter.distribution} {version} {why}"
    tally = tally_of(adapter)
    MEASURED[adapter.dialect] = table.record(adapter, version, tally)
    assert tally.different == 0, f"{adapter.dialect}: {tally.first}"
    assert tally.cases >= 160
    if not APPROVE:
        assert told(MEASURED[adapter.dialect]) == told(RECORDED[adapter.dialect])


def test_the_table_is_complete():
    """Last: all rows are recorded, and README.md shows results.json."""
    if APPROVE:
        kept = {**RECORDED, **MEASURED}
        table.save([kept[a.dialect] for a in CURRENT if a.dialect in kept])
    records = table.load()
    assert [r["row"] for r in records] == [a.dialect for a in CURRENT]
    assert (table.HERE / "README.md").read_text() == table.markdown(records)


def test_a_changed_row_is_seen():
    """The sweep sees one code that differs."""
    adapter = next(a for a in CURRENT if a.dialect == "nvfp4.torchao.inference")

    def wrong(x, bf16):
        answer = adapter.answer(x, bf16)
        answer.codes[(answer.codes == 5)] = 4
        return answer

    changed = compare.Adapter(**{**vars(adapter), "answer": wrong})
    tally = compare.Tally()
    for _, x, bf16 in list(typed(adapter, fp4lab.dialect(adapter.dialect)))[:60]:
        compare.add(tally, changed, x, bf16)
    assert tally.different > 0 and "code" in tally.first and "0x05 here, 0x04 there" in tally.first
