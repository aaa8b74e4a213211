"""convert: which linears it takes, and that a small GPT trains under it."""

import copy

import fp4lab
import pytest
import torch
from gpt import GPT, batch, train
from torch import nn

import fp4lab.torch as ft


def recipes_of(model):
    return {n: m._name() for n, m in model.named_modules() if isinstance(m, ft.Linear)}


@pytest.mark.parametrize("recipe", ["te_nvfp4", "mxfp4", "te_fp8_delayedscaling"])
def test_a_small_gpt_trains_the_same_for_any_number_of_threads(recipe, monkeypatch):
    torch.set_num_threads(1)  # torch's own sums, of norms and biases, depend on its threads
    runs = []
    for threads in (1, 2):
        monkeypatch.setattr("fp4lab.torch._tensors.threads", lambda: threads)
        torch.manual_seed(0)
        runs.append(train(ft.convert(GPT(), recipe, seed=3), 40))
    assert runs[0] == runs[1]
    assert runs[0][0] > 3.4 and sum(runs[0][-5:]) / 5 < 0.4 * runs[0][0]


def test_names_and_blocks():
    model = ft.convert(
        GPT(layers=8),
        first_blocks_bf16=1,
        last_blocks_bf16="15%",
        exclude=("lm_head", "blocks.3.mlp.*"),
    )
    names = recipes_of(model)
    assert len(names) == 8 * 4 - 2 and "lm_head" not in names and "blocks.3.mlp.up" not in names
    assert {n for n, r in names.items() if r == "bf16"} == {
        f"blocks.{b}.{part}"
        for b in (0, 6, 7)
        for part in ("attention.qkv", "attention.out", "mlp.up", "mlp.down")
    }
    indices = [m.index for m in model.modules() if isinstance(m, ft.Linear)]
    assert len(set(indices)) == len(indices)


def test_a_recipes_own_choice_of_layers():
    assert set(n.split(".")[2] for n in recipes_of(ft.convert(GPT(), "maxtext_te_nvfp4_mlp"))) == {
        "mlp"
    }
    names = recipes_of(ft.convert(GPT(layers=6), "megatron_nvfp4_first_last_bf16"))
    assert (
        names["blocks.0.mlp.up"] == "bf16" == names["blocks.5.mlp.up"]
        and names["blocks.2.mlp.up"] != "bf16"
    )
    with pytest.raises(
        ValueError, match="selects layers by libfp4lab's names .not blocks.*say by include"
    ):
        ft.convert(GPT(), "nemotron3_super")
    assert recipes_of(ft.convert(GPT(), "nemotron3_super", include=("mlp.*",)))


def test_parameters_stay_the_same_tensors_and_states_fit():
    model = GPT()
    before = dict(model.named_parameters())
    state = copy.deepcopy(model.state_dict())
    ft.convert(model)
    assert all(before[n] is p for n, p in model.named_parameters())
    assert model.lm_head.weight is model.tokens.weight and type(model.lm_head) is nn.Linear
    model.load_state_dict(state)
    GPT().load_state_dict(model.state_dict())


def test_hooks_shared_modules_and_a_linear_alone():
    shared, seen = nn.Linear(16, 16), []
    shared.register_forward_hook(lambda *arguments: seen.append(1))
    model = ft.convert(nn.Sequential(shared, shared))
    assert model[0] is model[1] is shared and isinstance(shared, ft.Linear)
    model(torch.randn(16, 16))
    assert len(seen) == 2 == int(shared.step)
    assert isinstance(ft.convert(nn.Linear(16, 16)), ft.Linear)


def test_models_are_copied_saved_and_moved(tmp_path):
    model, ids = ft.convert(GPT(layers=1), "te_fp8_delayedscaling"), batch(0)[:, :-1]
    model(ids).sum().backward()
    expected = model.eval()(ids)
    torch.save(model, tmp_path / "model.pt")
    for other in (copy.deepcopy(model), torch.load(tmp_path / "model.pt", weights_only=False)):
        assert torch.equal(other(ids), expected)
    assert model.bfloat16()(ids).dtype == torch.bfloat16
    layer = ft.Linear(16, 16, device="meta").to_empty(device="cpu")
    assert int(layer.step) == 0


def test_a_run_goes_on_from_a_checkpoint():
    def fresh():
        torch.manual_seed(0)
        return ft.convert(GPT(layers=1), seed=1)

    def gradients(model):
        model(batch(9)[:, :-1]).square().mean().backward()
        return [p.grad for p in model.parameters()]

    model, resumed = fresh(), fresh()
    for _ in range(3):
        model(batch(9)[:, :-1])
    ft.set_step(resumed, 3)
    assert all(torch.equal(a, b) for a, b in zip(gradients(model), gradients(resumed)))
    assert not all(torch.equal(a, b) for a, b in zip(gradients(fresh()), gradients(resumed)))


def test_the_whole_model_compiles():
    torch.manual_seed(0)
    model, ids = ft.convert(GPT(layers=1)), batch(0)[:, :-1]
    expected = model(ids)
    assert torch.equal(torch.compile(model, backend="aot_eager", fullgraph=True)(ids), expected)


def test_transformer_layers_of_torch_do_not_bypass_their_linears():
    layer = nn.TransformerEncoderLayer(32, 2, 64, batch_first=True).eval()
    x = torch.randn(2, 16, 32)
    with torch.no_grad():
        plain = layer(x)
        ft.convert(layer, exclude=())
        assert isinstance(layer.linear1, ft.Linear) and not isinstance(
            layer.self_attn.out_proj, ft.Linear
        )
        assert 1e-3 < (layer(x) - plain).norm() / plain.norm() < 0.3


@pytest.mark.parametrize(
    "bad, message",
    [
        (
            lambda: ft.convert(nn.Sequential(nn.GELU())),
            "no linear is selected; the model's nn.Linear modules: none",
        ),
        (
            lambda: ft.convert(GPT(layers=1), include=("mpl.*",)),
            "no linear is selected; .*blocks.0.attention.qkv",
        ),
        (
            lambda: ft.convert(nn.Sequential(nn.Linear(16, 16)), first_blocks_bf16=1),
            "no nn.ModuleList holds linears",
        ),
        (lambda: ft.convert(GPT(layers=1), "nvfp4"), "nvfp4"),
        (lambda: ft.convert(GPT(layers=1), "fp4_all_the_way_qaf"), "give total_steps"),
    ],
)
def test_refusals_are_one_line(bad, message):
    with pytest.raises(ValueError, match=message) as error:
        bad()
    assert "\n" not in str(error.value) and not isinstance(error.value, AssertionError)


def test_a_failed_conversion_changes_nothing():
    model = GPT(layers=1)
    with pytest.raises(fp4lab.Error):
        ft.convert(model, "fp4_all_the_way_qaf")
    assert not recipes_of(model)
