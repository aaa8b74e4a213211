"""Stacked expert weights under convert: the bits of one linear for each expert."""

import copy

import fp4lab
import pytest
import torch
import torch.nn.functional as F
from moe import WAYS, Experts, Model
from torch import nn

import fp4lab.torch as ft

RECIPES = ["te_nvfp4", "te_nvfp4_no_rht", "te_mxfp8", "te_fp8_currentscaling"]
ENDS = torch.tensor([21, 21, 40, 64], dtype=torch.int32)  # the second expert has no token


def gradients(module, x, ends, dy):
    x = x.clone().requires_grad_()
    y = module(x, ends)
    y.backward(dy)
    return [y.detach(), x.grad, *(p.grad for p in module.parameters())]


def expected(experts, x, ends, dy, recipe, seed, index):
    """By fp4lab.torch.Linear, an expert at a time, each with its own index."""
    x = x.clone().requires_grad_()
    out, begin, layers = [], 0, []
    turned = experts.way == "transposed"
    for e, end in enumerate(ends.tolist()):
        pair = []
        for k, w in enumerate((experts.w1[e], experts.w2[e])):
            w = w.detach().T if turned else w.detach()
            layer = ft.Linear(w.shape[1], w.shape[0], bias=False, recipe=recipe, seed=seed,
                              index=index + k * experts.w1.shape[0] + e)  # fmt: skip
            layer.weight = nn.Parameter(w.clone())
            pair.append(layer)
        layers.append(pair)
        if end > begin:
            rest = -(end - begin) % (16 if recipe == "te_nvfp4" else 1)  # rows of zeros, as the transform needs
            part = F.pad(x[begin:end], (0, 0, 0, rest))
            out.append(pair[1](F.silu(pair[0](part)))[: end - begin])
        begin = end
    y = torch.cat(out)
    y.backward(dy)
    stacked = []
    for k in (0, 1):
        grads = [torch.zeros_like(p[k].weight) if p[k].weight.grad is None else p[k].weight.grad for p in layers]
        stacked.append(torch.stack([g.T if turned else g for g in grads]))
    return [y.detach(), x.grad, *stacked]


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("way", [w for w in WAYS if w not in ("bmm", "chunk")])
def test_each_expert_has_the_bits_of_a_linear_of_its_own(recipe, way):
    if way in ("_grouped_mm", "grouped_mm", "transposed") and not hasattr(F, "grouped_mm"):
        pytest.skip("this torch has no grouped_mm")
    experts, x, dy = Experts(way=way), torch.randn(64, 32), torch.randn(64, 32)
    want = expected(experts, x, ENDS, dy, recipe, 3, 0)
    ft.convert(experts, recipe, seed=3)
    for name, got, right in zip(("y", "dx", "dw1", "dw2"), gradients(experts, x, ENDS, dy), want):
        assert torch.equal(got, right), name
    assert experts.fp4lab_step == 1


def test_every_way_to_multiply_is_near_the_plain_product_and_not_it():
    for way in WAYS:
        ends = torch.tensor([16, 32, 48, 64], dtype=torch.int32)
        experts, x, dy = Experts(way=way), torch.randn(64, 32), torch.randn(64, 32)
        plain = gradients(copy.deepcopy(experts), x, ends, dy)
        exact = gradients(ft.convert(copy.deepcopy(experts), "fp32"), x, ends, dy)
        quantized = gradients(ft.convert(copy.deepcopy(experts), "te_nvfp4"), x, ends, dy)
        for a, b, c in zip(plain, exact, quantized):
            assert (a - b).norm() / a.norm() < 1e-5, way
            assert 0.01 < (a - c).norm() / a.norm() < 0.5, way


def test_bfloat16_copies_of_weights_are_found_and_amaxes_are_the_experts_own():
    experts = Experts(way="_grouped_mm")
    with torch.no_grad():
        experts.w1[0] *= 1e4  # under one amax the others would vanish
    x = torch.randn(64, 32).bfloat16()
    plain = experts(x, ENDS).float()
    y = ft.convert(experts, "te_nvfp4")(x, ENDS)
    assert y.dtype == torch.bfloat16
    for part in (slice(21), slice(21, 40), slice(40, 64)):
        assert (y.float()[part] - plain[part]).norm() / plain[part].norm() < 0.3


def test_a_model_of_linears_and_experts_by_rules():
    torch.manual_seed(0)
    model = ft.convert(Model(), [{"linears": "proj", "recipe": "te_mxfp8"},
                                 {"linears": "experts.w1", "recipe": "te_nvfp4"}])  # fmt: skip
    assert model.blocks[0]["proj"]._name() == "te_mxfp8"
    assert type(model.blocks[0]["moe"].router) is nn.Linear is type(model.lm_head)
    for block in model.blocks:
        assert list(block["moe"].experts.fp4lab_stacks) == ["w1"]
    assert "w1=te_nvfp4" in repr(model)
    indices = [s.index for b in model.blocks for s in b["moe"].experts.fp4lab_stacks.values()]
    assert indices == [2, 6]  # behind the linears, an index for each expert
    whole = ft.convert(Model(), "te_nvfp4")
    assert type(whole.blocks[0]["moe"].router) is nn.Linear is type(whole.lm_head)
    assert set(whole.blocks[1]["moe"].experts.fp4lab_stacks) == {"w1", "w2"}


def test_a_model_of_experts_trains_is_copied_and_saved(tmp_path):
    torch.manual_seed(0)
    model = ft.convert(Model(), "te_nvfp4", seed=1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    x, target = torch.randn(64, 32), torch.randint(16, (64,))
    losses = []
    for _ in range(30):
        loss = F.cross_entropy(model(x), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]
    assert model.blocks[0]["moe"].experts.fp4lab_step == 30
    model.eval()
    torch.save(model, tmp_path / "model.pt")
    for other in (copy.deepcopy(model), torch.load(tmp_path / "model.pt", weights_only=False)):
        assert torch.equal(other(x), model(x))
        assert isinstance(other.blocks[0]["moe"].experts, Experts)
    ft.set_step(model, 7)
    assert model.blocks[1]["moe"].experts.fp4lab_step == 7 == int(model.blocks[0]["proj"].step)
    Model().load_state_dict(model.state_dict())


def test_random_bits_follow_step_and_seed():
    def gradient(seed, step):
        torch.manual_seed(0)
        experts = ft.convert(Experts(), "te_nvfp4", seed=seed)
        ft.set_step(experts, step)
        return gradients(experts, torch.randn(64, 32), ENDS, torch.randn(64, 32))[2]

    base = gradient(1, 0)
    assert torch.equal(base, gradient(1, 0))
    assert not torch.equal(base, gradient(2, 0)) and not torch.equal(base, gradient(1, 1))


class Odd(nn.Module):
    def __init__(self, product):
        super().__init__()
        self.experts_weight, self.product = nn.Parameter(torch.randn(4, 32, 32)), product

    def forward(self, x):
        return self.product(x, self.experts_weight)


@pytest.mark.parametrize(
    "product, message",
    [
        (lambda x, w: torch.einsum("td,ehd->teh", x, w), "experts_weight is multiplied by torch.einsum"),
        (lambda x, w: w @ x.T, "experts_weight is the first factor"),
        (lambda x, w: x @ w[torch.tensor([0, 1])], "whose expert's rows these are is not known"),
        (lambda x, w: x.repeat(3, 1, 1) @ w[:3], "whose expert's rows these are is not known"),
    ],
)
def test_a_product_that_is_not_known_is_refused_and_never_left_plain(product, message):
    model = ft.convert(Odd(product), "te_nvfp4")
    with pytest.raises(ValueError, match=message) as error:
        model(torch.randn(16, 32))
    assert "\n" not in str(error.value)


def test_every_token_for_every_expert():
    model, x = Odd(lambda x, w: x @ w.mT), torch.randn(16, 32)
    want = torch.stack([ft.Linear.from_linear(_linear(w), recipe="te_nvfp4")(x) for w in model.experts_weight])
    assert torch.equal(ft.convert(model, "te_nvfp4")(x), want)


def _linear(weight):
    layer = nn.Linear(32, 32, bias=False)
    layer.weight = nn.Parameter(weight.detach().clone())
    return layer


def test_weights_that_no_product_takes_are_told():
    with pytest.warns(UserWarning, match="no product with experts_weight of Odd was seen"):
        ft.convert(Odd(lambda x, w: x * w.sum()), "te_nvfp4")(torch.randn(16, 32))
    with pytest.warns(UserWarning, match="no product with experts_weight of Odd was seen"):
        ft.observe(model := Odd(lambda x, w: x * w.sum()), "te_nvfp4")
        model(torch.randn(16, 32))


def test_other_parameters_of_three_dimensions_are_no_experts():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.places = nn.Parameter(torch.zeros(1, 16, 32))
            self.conv, self.proj = nn.Conv1d(4, 4, 3), nn.Linear(32, 32)
            self.banks = nn.Parameter(torch.randn(4, 32, 32))

        def forward(self, x):
            return torch.bmm(x, self.banks)

    model = ft.convert(Model(), "te_nvfp4")
    assert type(model) is Model and isinstance(model.proj, ft.Linear)
    assert list(ft.convert(Model(), "te_nvfp4", experts=("banks",)).fp4lab_stacks) == ["banks"]


def test_refusals():
    with pytest.raises(fp4lab.Error, match="w1: has delayed scaling, which stacked experts do not take"):
        ft.convert(Experts(), "te_fp8_delayedscaling")
    with pytest.raises(fp4lab.Error, match="give total_steps"):
        ft.convert(Experts(), "nvidia_nvfp4_12b_switch_bf16", first_blocks_bf16=0, last_blocks_bf16=0)
