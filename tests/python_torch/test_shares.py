"""studies/trained/shares.py on a model of random weights: what it answers and what its tables print."""

import importlib.util
import pathlib
import sys
from types import SimpleNamespace

import pytest
import torch

transformers = pytest.importorskip("transformers")
STUDIES = pathlib.Path(__file__).resolve().parents[2] / "studies"


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # dataclasses ask for it
    spec.loader.exec_module(module)
    return module


sys.path.insert(0, str(STUDIES / "results"))  # for what trained_tables imports
shares = load(STUDIES / "trained/shares.py")
tables = load(STUDIES / "results/trained_tables.py")


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    config = transformers.LlamaConfig(vocab_size=128, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
                                      num_attention_heads=4, num_key_value_heads=2, head_dim=16)  # fmt: skip
    return transformers.LlamaForCausalLM(config).float().eval()


def windows(count):
    ids = torch.arange(32 * count).reshape(count, 1, 32) * 37 % 128
    return [{"input_ids": i, "labels": i} for i in ids]


def test_answers_cover_the_model_and_fill_every_table(model, tmp_path, monkeypatch):
    asked = shares.questions(blocks=2)
    answers = shares.answers_of(model, windows(8), asked, tmp_path)
    assert {name: list(of) for name, of in answers.items()} == {q.name: list(q.recipes) for q in asked}
    for recipe in shares.RECIPES:
        of = answers["linears"][recipe]
        assert {s["player"] for s in of["shares"]} == set(shares.LINEARS)
        assert sum(s["linears"] for s in of["shares"]) == 14
    for recipe in shares.FOUR_BITS:
        assert {s["player"] for s in answers["blocks"][recipe]["shares"]} == {"0", "1"}
    of = answers["operands"]["mxfp4"]
    assert sum(s["shapley"] for s in of["shares"]) == pytest.approx(of["difference"], abs=1e-12)

    document = {"questions": answers, "observed": shares.observed(model, windows(1)[0])}
    monkeypatch.setattr(tables, "document", lambda: document)
    for kind, make in tables.KINDS.items():
        kept = {"trainedblocks": 2}.get(kind)
        rows = make([], kept) if kept else make([])
        assert len({row.count("|") for row in rows}) == 1 and len(rows) >= 4, kind


def test_a_stopped_call_goes_on(model, tmp_path):
    asked = shares.questions(blocks=2)[:1]
    first = shares.answers_of(model, windows(8), asked, tmp_path)
    kept = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    again = shares.answers_of(model, windows(8), asked, tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == kept
    for recipe, answer in first["operands"].items():
        assert again["operands"][recipe]["shares"] == answer["shares"]


def test_windows_start_at_lines_of_the_end_of_the_text(tmp_path):
    text = tmp_path / "text"
    text.write_bytes(b"x" * 1000 + b"".join(b"%08d\n" % i for i in range(250_000)))
    tokenizer = lambda piece, return_tensors: SimpleNamespace(input_ids=torch.tensor([list(piece.encode())]))  # noqa: E731
    batches = shares.batches_of(text, tokenizer, windows=3, tokens=32)
    starts = [bytes(batch["input_ids"][0].tolist()) for batch in batches]
    assert all(len(s) == 32 and s[8:9] == b"\n" for s in starts)
    lines = [int(s[:8]) for s in starts]
    assert lines[1] - lines[0] == pytest.approx(shares.VALIDATION / 9 / 3, abs=2)
    with pytest.raises(SystemExit, match="fewer than 4096 tokens"):
        shares.batches_of(text, lambda piece, return_tensors: tokenizer(piece[:9], return_tensors), 1, 4096)
