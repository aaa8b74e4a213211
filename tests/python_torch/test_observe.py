"""observe: its numbers against fp4lab.measure on the same operands, and where they go."""

import csv
import json

import fp4lab
import pytest
import reference
import torch
from gpt import GPT, batch
from moe import Experts, Model
from torch import nn

import fp4lab.torch as ft

KEYS = [d.key for d in fp4lab.diagnostics()]
NO_TRANSFORM = {"base": "te_nvfp4", "disable_rht": True}


def operands(x, w, dy, recipe, seed, step, index):
    """{operand: numbers} by fp4lab.measure on operands that are made here."""
    x, w, dy = (torch.as_tensor(t).bfloat16().float().numpy() for t in (x, w, dy))
    tensors = {"fprop.input": (x, False), "fprop.weight": (w, False), "dgrad.grad": (dy, False),
               "dgrad.weight": (w, True), "wgrad.grad": (dy, True), "wgrad.input": (x, True)}  # fmt: skip
    found = {}
    for i, (name, (tensor, columnwise)) in enumerate(tensors.items()):
        product, side = name.split(".")
        operand = fp4lab.Recipe.named(recipe).resolved[product][side]
        if columnwise:
            tensor = tensor.T.copy()
        if operand["hadamard"]:
            tensor = reference.transform(tensor, 16)
        options = {}
        if operand["rounding"] == "stochastic":
            options = dict(rounding="stochastic", seed=seed, step=step, tensor=6 * index + i)
        # The bits of a columnwise operand are drawn in its own order.
        found[name] = fp4lab.measure(tensor.T if columnwise else tensor, operand["format"], columnwise=columnwise,
                                     **options)  # fmt: skip
    return found


@pytest.mark.parametrize("recipe", ["te_nvfp4", "te_nvfp4_no_rht", "te_mxfp8", "te_fp8_currentscaling"])
@pytest.mark.parametrize("converts", [False, True])
def test_numbers_are_those_of_measure_on_the_same_operands(recipe, converts):
    layer, x, dy = nn.Linear(96, 64, bias=False), torch.randn(128, 96), torch.randn(128, 64) * 1e-3
    x[:, 5] *= 40
    if converts:
        ft.convert(layer, recipe, seed=7)
        ft.set_step(layer, 11)
    with ft.observe(layer, None if converts else recipe, seed=7) as seen:
        layer(x).backward(dy)
    want = operands(x, layer.weight.detach(), dy, recipe, 7, 11 if converts else 0, 0)
    rows = {r["name"]: r for r in seen.rows}
    shared = set() if recipe == "te_mxfp8" else {"dgrad.weight"}  # fprop's weight, transposed
    if recipe == "te_fp8_currentscaling":
        shared.add("wgrad.grad")  # dgrad's
    assert set(rows) == set(want) - shared
    for name, row in rows.items():
        assert {k: row[k] for k in (*KEYS, "elements")} == want[name], name
        assert row["not_finite"] == 0 and row["rows"] * row["columns"] == row["elements"]
    assert rows["fprop.input"]["kurtosis"] > 20 and rows["fprop.weight"]["kurtosis"] < 3


def test_the_model_computes_what_it_computed():
    ids = batch(0)[:, :-1]
    results = []
    for recipe in (None, "te_nvfp4"):
        torch.manual_seed(0)
        model = GPT()
        if recipe:
            with ft.observe(model, recipe) as seen:
                model(ids).square().mean().backward()
            model.zero_grad()
        y = model(ids)
        y.square().mean().backward()
        results.append([y, *(p.grad for p in model.parameters())])
    assert all(torch.equal(a, b) for a, b in zip(*results))
    assert len(seen.rows) == 5 * 8
    assert not model._forward_hooks and not model.blocks[0].mlp["up"]._forward_hooks


def test_observing_a_converted_model_changes_no_bit_and_no_step():
    def run(watch):
        torch.manual_seed(0)
        model = ft.convert(Model(), "te_nvfp4", seed=2)
        x = torch.randn(64, 32)
        seen = ft.observe(model) if watch else None
        for _ in range(2):
            model(x).square().mean().backward()
        if seen:
            seen.close()
        assert model.blocks[0]["moe"].experts.fp4lab_step == 2
        return [p.grad for p in model.parameters()], seen

    plain, _ = run(False)
    watched, seen = run(True)
    assert all(torch.equal(a, b) for a, b in zip(plain, watched) if a is not None)
    assert {r["step"] for r in seen.rows} == {0, 1}


def test_experts_are_seen_one_by_one():
    experts, x = Experts(), torch.randn(64, 32)
    x[21:40] *= 30  # the tokens of the third expert; the second has none
    with ft.observe(experts, NO_TRANSFORM) as seen:
        experts(x, torch.tensor([21, 21, 40, 64], dtype=torch.int32)).square().mean().backward()
    rows = {r["name"]: r for r in seen.rows}
    assert {n.split(".")[0] for n in rows} == {f"w{k}[{e}]" for k in (1, 2) for e in (0, 2, 3)}
    for e, part in ((0, x[:21]), (2, x[21:40]), (3, x[40:])):
        own = fp4lab.measure(part.bfloat16().float().numpy(), "nvfp4.te")
        assert {k: rows[f"w1[{e}].fprop.input"][k] for k in own} == own
        assert rows[f"w2[{e}].wgrad.input"]["columns"] == len(part)
    assert rows["w1[2].fprop.input"]["amax"] > 10 * rows["w1[0].fprop.input"]["amax"]


def test_steps_every_and_inference():
    model, ids = GPT(layers=1), batch(0, size=1)[:, :-1]
    with ft.observe(model, "te_nvfp4", include=("mlp.up",), every=3) as seen:
        for _ in range(5):
            model(ids)
        seen.step = 30
        model(ids)
        model.eval()(ids)
        assert seen.step == 31
    assert [r["step"] for r in seen.rows] == [0, 0, 3, 3, 30, 30]
    count = len(seen.rows)
    model.train()(ids).sum().backward()
    assert len(seen.rows) == count  # closed


class Board:
    def __init__(self):
        self.scalars = []

    def add_scalar(self, tag, value, step):
        self.scalars.append((tag, value, step))


class Run:
    def __init__(self):
        self.logged = []

    def log(self, numbers, step):
        self.logged.append((step, numbers))


def test_rows_go_to_files_tensorboard_and_wandb(tmp_path):
    lines, table, board, run, own = tmp_path / "d.jsonl", tmp_path / "d.csv", Board(), Run(), []
    model = GPT(layers=1)
    with ft.observe(model, "te_nvfp4", to=[lines, str(table), board, run, own.extend], keep=True) as seen:
        for step in range(2):
            model(batch(step)[:, :-1]).sum().backward()
    assert own == seen.rows and len(own) > 10
    logs = {d.key: d.log_key for d in fp4lab.diagnostics()}
    for row, line in zip(own, lines.read_text().splitlines(), strict=True):
        assert json.loads(line) == {logs.get(k, k): v for k, v in row.items()}
    for row, read in zip(own, csv.DictReader(table.open()), strict=True):
        assert {k: str(v) for k, v in row.items()} == read
    assert len(board.scalars) == len(own) * len(KEYS)
    assert board.scalars[0] == (f"{KEYS[0]}/{own[0]['name']}", own[0][KEYS[0]], 0)
    assert [step for step, _ in run.logged] == [0, 1]
    assert run.logged[1][1][f"sqnr_db/{own[-1]['name']}"] == own[-1]["sqnr_db"]
    assert "SQNR dB" in seen.table("sqnr_db") and len(seen.table().splitlines()) == len(own) + 1


def test_a_real_summary_writer_where_there_is_one(tmp_path):
    board = pytest.importorskip("torch.utils.tensorboard").SummaryWriter(tmp_path)
    model = GPT(layers=1)
    with ft.observe(model, "te_nvfp4", to=board) as seen:
        model(batch(0)[:, :-1])
    assert not seen.rows and list(tmp_path.iterdir())


def test_planted_outliers_are_seen():
    torch.manual_seed(0)
    model = GPT()
    with torch.no_grad():  # a channel of the residual stream
        model.tokens.weight[:, 3] *= 100
        for block in model.blocks:
            block.norm2.weight[3] = 30
    with ft.observe(model, "te_nvfp4") as seen:
        model(batch(0)[:, :-1])
    worst = max((r for r in seen.rows if r["name"].endswith("fprop.input")), key=lambda r: r["kurtosis"])
    assert worst["name"].endswith("mlp.up.fprop.input") and worst["kurtosis"] > 20


@pytest.mark.parametrize(
    "bad, message",
    [
        (lambda: ft.observe(GPT(layers=1)), "give a recipe, or convert the model first"),
        (lambda: ft.observe(GPT(layers=1), "te_nvfp4", every=0), "every: 0"),
        (lambda: ft.observe(GPT(layers=1), "te_nvfp4", to="rows.txt"), "ends in none of: .jsonl, .csv"),
        (lambda: ft.observe(GPT(layers=1), "te_nvfp4", to=3), "to: int is neither a path"),
        (lambda: ft.observe(GPT(layers=1), "te_fp8_delayedscaling"), "needs the amaxes of the steps before"),
        (lambda: ft.observe(GPT(layers=1), "te_nvfp4", include=("x",)), "no linear is selected"),
    ],
)
def test_refusals_are_one_line(bad, message):
    with pytest.raises((TypeError, ValueError), match=message) as error:
        bad()
    assert "\n" not in str(error.value)


def test_tokens_that_a_transform_does_not_fit_are_told_in_the_forward_pass():
    layer, x = nn.Linear(32, 32), torch.randn(10, 32)
    with ft.observe(layer, "te_nvfp4") as seen:
        with pytest.raises(ValueError, match="te_nvfp4 transforms groups of 16 in wgrad"):
            layer(x)
        with torch.no_grad():
            layer(x)
    assert len(seen.rows) == 2


def test_delayed_scaling_is_observed_under_the_amaxes_of_the_steps_before():
    layer = ft.Linear(32, 32, bias=False, recipe="te_fp8_delayedscaling")
    with ft.observe(layer) as seen:
        for scale in (1.0, 4.0):
            layer(torch.full((16, 32), scale)).sum().backward()
    clipped = {r["step"]: r["clip_percent"] for r in seen.rows if r["name"] == "fprop.input"}
    assert clipped[0] == 0.0 and clipped[1] == 100.0  # 4 under the scale of 1
