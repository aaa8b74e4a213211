"""Recipes of one's own in convert and Linear: dicts, files, lists of rules."""

import json

import fp4lab
import pytest
import torch
from gpt import GPT, batch
from torch import nn

import fp4lab.torch as ft

OWN = {"base": "te_nvfp4", "disable_rht": True, "disable_stochastic_rounding": True}


def names(model):
    return {n: m._name() for n, m in model.named_modules() if isinstance(m, ft.Linear)}


def outputs(model, ids):
    y = model(ids)
    y.square().mean().backward()
    return [y.detach(), *(p.grad for p in model.parameters())]


def converted(recipe, layers=2, **options):
    torch.manual_seed(0)
    return ft.convert(GPT(layers=layers), recipe, seed=5, **options)


def test_a_dict_a_file_and_a_recipe_are_the_same(tmp_path):
    path = tmp_path / "own.json"
    path.write_text(json.dumps(OWN))
    ids = batch(0)[:, :-1]
    expected = outputs(converted(fp4lab.Recipe.from_json(OWN)), ids)
    for form in (OWN, path, str(path)):
        assert all(torch.equal(a, b) for a, b in zip(expected, outputs(converted(form), ids)))
    assert not torch.equal(expected[1], outputs(converted("te_nvfp4"), ids)[1])


def test_operands_that_a_dict_spells_out():
    own = {"base": "bf16", "fprop": {"weight": {"format": {"base": "nvfp4.te", "scale_encoding": "up"}}}}
    try:
        recipe = fp4lab.Recipe.from_json(own)
    except fp4lab.Error:  # recipes name the row that a formula modifies "like"
        own["fprop"]["weight"]["format"] = {"like": "nvfp4.te", "scale_encoding": "up"}
        recipe = fp4lab.Recipe.from_json(own)
    layer = ft.Linear(32, 16, bias=False, recipe=own)
    x = torch.randn(8, 32)
    w = fp4lab.quantize(layer.weight.detach().bfloat16().float().numpy(),
                        {"base": "nvfp4.te", "scale_encoding": "up"}).dequantize()  # fmt: skip
    y = layer(x).detach()
    expected = x.bfloat16().double() @ torch.from_numpy(w).double().T
    assert (y - expected).norm() / expected.norm() < 1e-6
    assert recipe.resolved["fprop"]["input"]["format"] == "none"


def test_a_list_quantizes_exactly_the_linears_that_its_rules_match():
    rules = [
        {"linears": "blocks.0.mlp.*", "recipe": "te_mxfp8"},
        {"pattern": ["mlp.up", "attention.out"], "recipe": OWN},
    ]
    assert names(converted(rules)) == {
        "blocks.0.mlp.up": "te_mxfp8",
        "blocks.0.mlp.down": "te_mxfp8",
        "blocks.1.mlp.up": "te_nvfp4",
        "blocks.0.attention.out": "te_nvfp4",
        "blocks.1.attention.out": "te_nvfp4",
    }
    rules[1]["linears"] = rules[1].pop("pattern")
    with_rest = names(converted({"rules": rules, "rest": "bf16"}))
    assert len(with_rest) == 9 and with_rest["lm_head"] == "bf16" == with_rest["blocks.1.mlp.down"]
    assert "lm_head" not in names(converted({"rules": rules, "rest": "bf16"}, exclude=("lm_head",)))


def test_a_linear_of_a_list_has_the_bits_of_its_recipe():
    rules = [{"linears": "mlp.*", "recipe": OWN}, {"linears": "attention.*", "recipe": "te_mxfp8"}]
    ids = batch(0)[:, :-1]
    got = outputs(converted(rules), ids)
    torch.manual_seed(0)
    model = GPT()
    ft.convert(model, "te_mxfp8", include=("attention.*",))
    ft.convert(model, OWN, include=("mlp.*",))
    assert all(torch.equal(a, b) for a, b in zip(got, outputs(model, ids)))  # no random bits in either


def test_blocks_of_rules():
    rules = [{"linears": "*.mlp.*", "blocks": {"first": 1, "last": "25%"}, "recipe": "bf16"},
             {"linears": "*.mlp.*", "recipe": OWN}]  # fmt: skip
    found = names(converted(rules, layers=4))
    assert {n.split(".")[1] for n, r in found.items() if r == "bf16"} == {"0", "3"}
    assert {n.split(".")[1] for n, r in found.items() if r == "te_nvfp4"} == {"1", "2"}
    with pytest.raises(ValueError, match="a list of rules says its blocks itself"):
        converted(rules, first_blocks_bf16=1)
    with pytest.raises(ValueError, match="no nn.ModuleList holds linears"):
        ft.convert(nn.Sequential(nn.Linear(16, 16)), [{"blocks": {"first": 1}, "recipe": "bf16"}])


def test_a_rules_recipe_keeps_its_own_choice_of_linears():
    found = names(converted([{"linears": "blocks.*", "recipe": {"base": "te_mxfp8", "layers": "mlp"}}]))
    mlp = {f"blocks.{b}.mlp.{part}" for b in (0, 1) for part in ("up", "down")}
    assert {n for n, r in found.items() if r == "te_mxfp8"} == mlp
    assert {r for n, r in found.items() if "attention" in n} == {"bf16"}


def test_steps_of_rules():
    rules = [{"linears": "*", "steps": {"to": 0.25}, "recipe": "te_mxfp8"},
             {"linears": "*", "steps": {"from": 0.5}, "recipe": OWN}]  # fmt: skip
    x = torch.randn(32, 32)
    layer = nn.Linear(32, 32)
    ft.convert(layer, rules, total_steps=8)
    expected = ["te_mxfp8"] * 2 + ["bf16"] * 2 + [OWN] * 4
    for step, recipe in enumerate(expected):
        ft.set_step(layer, step)
        assert torch.equal(layer(x), ft.Linear.from_linear(layer, recipe=recipe)(x)), step
    with pytest.raises(fp4lab.Error, match="give total_steps"):
        ft.convert(nn.Linear(32, 32), rules)


@pytest.mark.parametrize(
    "recipe, message",
    [
        ({"base": "te_nvpf4"}, "te_nvfp4"),
        ({"base": "te_nvfp4", "disable_rth": True}, "disable_rth"),
        ([], "the list has no rule"),
        ([{"linears": "*"}], r"recipe\[0\]: has no recipe"),
        ([{"linaers": "*", "recipe": "bf16"}], r'recipe\[0\]: "linaers" is no key of a rule.*linears'),
        ([{"linears": "*", "pattern": "*", "recipe": "bf16"}], "one thing"),
        (["bf16"], r"recipe\[0\] is str: a rule is a dict"),
        ([{"linears": "*", "steps": {"from": 2}, "recipe": "bf16"}], "rules/0/steps"),
        ([{"linears": "nothing.*", "recipe": "bf16"}], "no linear is selected"),
        ("torchtitan_dsv3_nvfp4_ffn_mxfp8_attention", "is a list of rules by libfp4lab's names"),
        ("absent.json", "absent.json: No such file"),
        (3, "recipe is int"),
    ],
)
def test_refusals_are_one_line_and_change_nothing(recipe, message):
    model = GPT(layers=1)
    with pytest.raises((TypeError, ValueError), match=message) as error:
        ft.convert(model, recipe)
    assert "\n" not in str(error.value) and not names(model)


def test_a_broken_file_is_named(tmp_path):
    path = tmp_path / "broken.json"
    path.write_text("{")
    with pytest.raises(fp4lab.Error, match="broken.json: is no JSON"):
        ft.convert(GPT(layers=1), path)
    path.write_text('{"base": "te_nvfp4", "disable_rth": true}')
    with pytest.raises(fp4lab.Error, match="broken.json: .*disable_rth"):
        ft.convert(GPT(layers=1), path)
