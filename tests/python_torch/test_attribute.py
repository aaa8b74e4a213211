"""attribute: exact bookkeeping, the planted culprit, and that the model is left as it was."""

import copy
import functools
import json
import math
from fractions import Fraction

import fp4lab
import pytest
import torch
import torch.nn.functional as F
from gpt import GPT, batch, train
from moe import Model
from torch import nn

import fp4lab.torch as ft
from fp4lab.torch import _games

RECIPE = "te_nvfp4_no_rht"


def gpt_loss(model, ids):
    return F.cross_entropy(model(ids[:, :-1]).flatten(0, 1).float(), ids[:, 1:].flatten())


def batches(count=3):
    return [batch(i, size=4, length=32) for i in range(count)]


@functools.lru_cache(maxsize=None)
def trained(layers):
    torch.manual_seed(0)
    model = GPT(layers=layers)
    train(model, 60)
    return state(model)


def gpt(layers=2, plant=None):
    model = GPT(layers=layers)
    model.load_state_dict(trained(layers))
    if plant is not None:  # outliers in the input of one linear, whose function stays
        block = model.blocks[plant]
        with torch.no_grad():
            block.norm2.weight[::16] *= 64
            block.norm2.bias[::16] *= 64
            block.mlp["up"].weight[:, ::16] /= 64
    return model


def state(model):
    return {n: p.clone() for n, p in model.state_dict().items()}


def same(model, before, modes):
    assert all(torch.equal(before[n], p) for n, p in model.state_dict().items())
    assert [m.training for m in model.modules()] == modes
    assert not any("forward" in vars(m) for m in model.modules())
    assert not any(isinstance(m, ft.Linear) for m in model.modules())


def converted_loss(recipe, ids, include):
    """The loss with some linears under the recipe and the others in BF16, by convert."""
    model = gpt(plant=1)
    if include:
        ft.convert(model, recipe, include=include)
    ft.convert(model, "bf16") if len(include) < 8 else None
    with torch.no_grad():
        return gpt_loss(model.eval(), ids).item()


def test_leave_one_in_and_out_are_differences_of_losses_of_converted_models():
    names = [n for n, m in gpt().named_modules() if type(m) is nn.Linear and n != "lm_head"]
    ids = batches(1)
    found = ft.attribute(gpt(plant=1), ids, gpt_loss, RECIPE)
    without, whole = converted_loss(RECIPE, ids[0], []), converted_loss(RECIPE, ids[0], names)
    assert (found.without, found.with_all, found.difference) == (without, whole, whole - without)
    assert {s.player for s in found.shares} == set(names)
    for name in (names[0], names[-1]):
        others = [n for n in names if n != name]
        assert found[name].leave_one_in == converted_loss(RECIPE, ids[0], [name]) - without
        assert found[name].leave_one_out == whole - converted_loss(RECIPE, ids[0], others)
        assert found[name].leave_one_in_interval is None and found[name].shapley is None
    assert found.forward_passes == 2 * len(names) + 2 and found.backward_passes == 0


def test_the_planted_layer_is_first_by_every_measure_of_blame():
    model = gpt(plant=1)
    for options in (dict(), dict(leave_one=False, shapley=4), dict(measure="gradient_error", recipe="te_nvfp4_no_sr")):
        found = ft.attribute(model, batches(), gpt_loss, **{"recipe": RECIPE, **options})
        assert found.shares[0].player == "blocks.1.mlp.up", options
        first, second = found.shares[:2]
        key = "shapley" if first.shapley is not None else "leave_one_in"
        assert getattr(first, key) > 2 * getattr(second, key)
    by_operand = ft.attribute(model, batches(), gpt_loss, RECIPE, by="operand")
    assert by_operand.shares[0].player.startswith("blocks.1.mlp.up.fprop.")


@pytest.mark.parametrize("shapley", [1, 2, 5, "exact"])
def test_shapley_values_sum_to_the_whole_difference(shapley):
    found = ft.attribute(gpt(layers=1), batches(), gpt_loss, RECIPE, leave_one=False, shapley=shapley)
    total = math.fsum(s.shapley for s in found.shares)
    assert abs(total - found.difference) <= 1e-12 * max(abs(s.shapley) for s in found.shares)
    assert all(s.shapley_interval[0] <= s.shapley <= s.shapley_interval[1] for s in found.shares)


def test_bookkeeping_is_exact_and_sampling_of_all_orders_is_the_exact_value():
    torch.manual_seed(0)
    values = {m: torch.randn(()).item() for m in range(32)}
    for count in (1, 3, 8):
        shares = _games.sampled_shapley(values, _games.orders(5, count, "1"))
        assert sum(shares) == Fraction(values[31]) - Fraction(values[0])
    exact = _games.exact_shapley(values, 5)
    assert sum(exact) == Fraction(values[31]) - Fraction(values[0])
    from itertools import permutations

    assert exact == _games.sampled_shapley(values, list(permutations(range(5))))
    glove = {m: float((m & 1) and (m & 6) != 0) for m in range(8)}  # one left glove, two right ones
    assert _games.exact_shapley(glove, 3) == [Fraction(2, 3), Fraction(1, 6), Fraction(1, 6)]
    orders = _games.orders(5, 4, "1")
    assert orders[1] == orders[0][::-1] and orders[2] != orders[0] and _games.orders(5, 4, "1") == orders


def test_intervals_are_students():
    numbers = [Fraction(v) for v in (1.0, 2.0, 4.0, 5.0)]
    mean, (low, high) = _games.mean_and_interval(numbers, 0.95)
    half = 3.1824463 * math.sqrt(10 / 3 / 4)  # t of 3 degrees of freedom
    assert mean == 3.0 and (low, high) == pytest.approx((3 - half, 3 + half), rel=1e-7)
    assert _games.mean_and_interval(numbers[:1], 0.95) == (1.0, None)
    found = ft.attribute(gpt(layers=1), batches(4), gpt_loss, RECIPE)
    alone = [ft.attribute(gpt(layers=1), [b], gpt_loss, RECIPE) for b in batches(4)]
    for share in found.shares:
        each = [Fraction(a[share.player].leave_one_in) for a in alone]
        assert (share.leave_one_in, share.leave_one_in_interval) == _games.mean_and_interval(each, 0.95)


def test_operands_kinds_and_groups():
    model, one = gpt(layers=1), batches(1)
    whole = ft.attribute(model, one, gpt_loss, RECIPE)
    operands = ft.attribute(model, one, gpt_loss, RECIPE, by="operand")
    sides = ("fprop.input", "fprop.weight")
    assert {s.player for s in operands.shares} == {f"{s.player}.{o}" for s in whole.shares for o in sides}
    kinds = ft.attribute(model, one, gpt_loss, RECIPE, by="kind", shapley="exact")
    assert {(s.player, s.linears) for s in kinds.shares} == {("fprop.input", 4), ("fprop.weight", 4)}
    gradients = ft.attribute(model, one, gpt_loss, "te_nvfp4_no_sr", by="kind", measure="gradient_error")
    assert {s.player for s in gradients.shares} == {"fprop.input", "fprop.weight", "dgrad.grad", "dgrad.weight",
                                                    "wgrad.grad", "wgrad.input"}  # fmt: skip
    assert gradients.without == 0.0 < gradients.with_all and gradients.backward_passes == 14
    assert all(s.leave_one_in > 0 for s in gradients.shares)
    groups = ft.attribute(model, one, gpt_loss, RECIPE, by={"mlp": "mlp.*", "qkv": ["*.qkv"]})
    assert {(s.player, s.linears, s.operands) for s in groups.shares} == {("mlp", 2, 4), ("qkv", 1, 2), ("other", 1, 2)}
    for found in (operands, kinds, groups):
        assert (found.without, found.with_all) == (whole.without, whole.with_all)


def test_the_loss_after_a_step():
    model, one = gpt(layers=1), batches(1)
    before = state(model)
    found = ft.attribute(model, one, gpt_loss, "te_nvfp4_no_sr", by="kind", measure="loss_after", learning_rate=0.5)
    assert all(torch.equal(before[n], p) for n, p in model.state_dict().items())
    with torch.no_grad():
        start = gpt_loss(model, one[0]).item()
    assert found.without < start and abs(found.difference) < start - found.without
    assert found.forward_passes == 2 * 14 == 2 * found.backward_passes


def test_results_are_a_function_of_the_seed_and_independent_of_threads(monkeypatch):
    runs = []
    for threads, seed in ((1, 5), (2, 5), (1, 6)):
        monkeypatch.setattr("fp4lab.torch._tensors.threads", lambda: threads)
        runs.append(ft.attribute(gpt(layers=1), batches(2), gpt_loss, "te_nvfp4", shapley=2, seed=seed,
                                 measure="gradient_error"))  # fmt: skip
    assert runs[0] == runs[1] != runs[2]
    json.loads(json.dumps(runs[0].document()))


def test_dropout_and_modes_and_the_generator_stay():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 32), nn.Dropout(0.5), nn.Linear(32, 4))
    model[2].eval()
    x, y = torch.randn(16, 32), torch.randint(4, (16,))
    before, modes, generator = state(model), [m.training for m in model.modules()], torch.get_rng_state()
    found = [ft.attribute(model, (x, y), recipe=RECIPE) for _ in range(2)]
    assert found[0] == found[1] and torch.equal(generator, torch.get_rng_state())
    same(model, before, modes)
    with torch.no_grad():
        plain = F.cross_entropy(model.eval()(x), y).item()
    assert abs(found[0].without - plain) < 1e-2 and found[0].batches == 1


def test_experts_and_a_converted_model():
    torch.manual_seed(0)
    model = Model(layers=1)
    data = [(torch.randn(64, 32), torch.randint(16, (64,))) for _ in range(2)]
    with torch.no_grad():  # outliers in the tokens of experts: w1 of the block
        model.blocks[0]["proj"].weight[3] *= 60
    plain = ft.attribute(model, data, recipe=RECIPE, shapley=2)
    assert {s.player for s in plain.shares} == {"blocks.0.proj", "blocks.0.moe.experts.w1", "blocks.0.moe.experts.w2"}
    own = ft.attribute(ft.convert(copy.deepcopy(model), RECIPE), data, shapley=2)
    assert own.recipe == "own recipes" and own.shares == plain.shares
    with torch.no_grad():
        whole = [F.cross_entropy(ft.convert(copy.deepcopy(model), RECIPE).eval()(x), y).item() for x, y in data]
    assert plain.with_all == sum(whole) / 2


def test_interrupted_and_resumed(tmp_path):
    class Stop(KeyboardInterrupt):
        pass

    def stop_at(done, total):
        seen.append((done, total))
        if done == 7:
            raise Stop

    seen, path, model = [], tmp_path / "values.jsonl", gpt(layers=1)
    before, modes = state(model), [m.training for m in model.modules()]
    with pytest.raises(Stop):
        ft.attribute(model, batches(2), gpt_loss, RECIPE, save=path, progress=stop_at)
    same(model, before, modes)
    assert seen[0] == (0, 20) and seen[-1] == (7, 20)
    with path.open("a") as file:
        file.write('{"batch": 0, "pla')  # killed while it wrote
    resumed = ft.attribute(model, batches(2), gpt_loss, RECIPE, save=path)
    fresh = ft.attribute(model, batches(2), gpt_loss, RECIPE)
    assert resumed.shares == fresh.shares and fresh.forward_passes == 20
    assert resumed.forward_passes == 20 - 7 + 1  # nobody's value is computed again, for the check
    assert len(path.read_text().splitlines()) == 21
    with pytest.raises(fp4lab.Error, match="has values of another question"):
        ft.attribute(model, batches(2), gpt_loss, RECIPE, save=path, seed=1)
    with torch.no_grad():
        model.norm.weight *= 2
    with pytest.raises(fp4lab.Error, match="the model or the batch is another"):
        ft.attribute(model, batches(2), gpt_loss, RECIPE, save=path)


def test_progress_is_told_on_stderr(capsys):
    ft.attribute(gpt(layers=1), batches(1), gpt_loss, RECIPE, progress=True)
    assert capsys.readouterr().err.splitlines() == ["attribute: 0 of 10 values", "attribute: 10 of 10 values"]


def test_the_table_is_read():
    text = str(ft.attribute(gpt(plant=1), batches(2), gpt_loss, RECIPE, shapley=1))
    lines = text.splitlines()
    assert lines[0].startswith("loss of 2 batches: ") and "forward passes" in lines[0]
    assert lines[1].split() == ["player", "leave-one-in", "leave-one-out", "shapley"]
    assert lines[2].startswith("blocks.1.mlp.up") and lines[-1].startswith("whole difference")


@pytest.mark.parametrize(
    "options, message",
    [
        (dict(recipe=None), "give a recipe, or convert the model first"),
        (dict(recipe="bf16"), "quantizes no operand that the measure depends on"),
        (dict(recipe="te_fp8_delayedscaling"), "has delayed scaling, whose amaxes are of other steps"),
        (dict(by="layers"), 'by: "layers" is not known; .*layer'),
        (dict(measure="losses"), 'measure: "losses" is not known'),
        (dict(measure="loss_after"), "learning_rate: it is the step of"),
        (dict(learning_rate=0.1), "learning_rate: it is the step of"),
        (dict(shapley=-1), "shapley: -1"),
        (dict(leave_one=False), "ask for shapley"),
        (dict(max_passes=5), "attribute: 18 forward passes are needed, and max_passes is 5"),
        (dict(confidence=1.0), "confidence"),
        (dict(batches=[]), "batches: there is none"),
        (dict(loss_fn=lambda model, ids: 3.0), "loss_fn must return a tensor of one number"),
        (dict(loss_fn=lambda model, ids: torch.tensor(float("nan"))), "batch 0: the value is nan"),
        (dict(loss_fn=None), "give loss_fn"),
    ],
)
def test_refusals_are_one_line_and_change_nothing(options, message):
    model = gpt()
    before, modes = state(model), [m.training for m in model.modules()]
    arguments = {"batches": batches(1), "loss_fn": gpt_loss, "recipe": RECIPE, **options}
    with pytest.raises((TypeError, ValueError), match=message) as error:
        ft.attribute(model, **arguments)
    assert "\n" not in str(error.value)
    same(model, before, modes)


def test_exact_values_of_many_players_are_refused():
    with pytest.raises(fp4lab.Error, match='"exact" takes 16 players at most, and there are 24'):
        ft.attribute(gpt(layers=3), batches(1), gpt_loss, RECIPE, by="operand", shapley="exact")
