"""fp4lab.torch.Linear: its bits, its gradients, its random bits, and what it refuses."""

import fp4lab
import numpy as np
import pytest
import reference
import torch
from torch import nn

import fp4lab.torch as ft

RECIPES = [
    "te_nvfp4",
    "te_nvfp4_no_rht",
    "te_nvfp4_no_sr",
    "te_nvfp4_no_2d",
    fp4lab.Recipe.named("mxfp4", disable_rht=True),
]


def normal(*shape, dtype=torch.float32, scale=1.0):
    return (torch.randn(*shape) * scale).to(dtype)


def run(recipe, x, w, dy, *, step=0, **options):
    layer = ft.Linear(w.shape[1], w.shape[0], bias=False, recipe=recipe, **options)
    with torch.no_grad():
        layer.weight.copy_(w)
    ft.set_step(layer, step)
    x = x.clone().requires_grad_()
    y = layer(x)
    y.backward(dy)
    return y.detach(), x.grad, layer.weight.grad


@pytest.mark.parametrize("recipe", RECIPES, ids=str)
def test_bits_are_those_of_the_arithmetic_in_numpy(recipe):
    x, w, dy = normal(64, 96), normal(128, 96, scale=0.05), normal(64, 128, scale=1e-3)
    got = run(recipe, x, w, dy, seed=7, index=3, step=11)
    resolved = (
        recipe.resolved
        if isinstance(recipe, fp4lab.Recipe)
        else fp4lab.Recipe.named(recipe).resolved
    )
    want = reference.linear(x.numpy(), w.numpy(), dy.numpy(), resolved, seed=7, step=11, index=3)
    for name, g, r in zip(("y", "dx", "dw"), got, want):
        assert np.array_equal(g.numpy(), r), (name, np.abs(g.numpy() - r).max())


def lists_of_rules():
    return [r for r in fp4lab.recipes() if "rules" in fp4lab.Recipe.named(r).resolved]


def test_a_list_of_rules_is_refused_as_a_linear_has_one_recipe():
    assert "torchtitan_dsv3_nvfp4_ffn_mxfp8_attention" in lists_of_rules()
    for recipe in lists_of_rules():
        with pytest.raises(fp4lab.Error, match="is a list of rules, and a linear has one recipe"):
            fp4lab.torch.Linear(16, 16, recipe=recipe)
        with pytest.raises(ValueError, match="give convert a list with the names of this model"):
            fp4lab.torch.convert(torch.nn.Linear(16, 16), recipe)


@pytest.mark.parametrize("recipe", sorted(set(fp4lab.recipes()) - set(lists_of_rules())))
def test_every_recipe_is_near_the_plain_layer_and_independent_of_threads(recipe):
    x, w, dy = normal(128, 128), normal(128, 128, scale=0.1), normal(128, 128)
    results = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        results.append(run(recipe, x, w, dy, seed=1, total_steps=100))
    for one, two, plain in zip(*results, (x @ w.T, dy @ w, dy.T @ x)):
        assert torch.equal(one, two)
        error = (one - plain).norm() / plain.norm()
        assert error < (1e-5 if recipe == "fp32" else 0.5), error
        assert error > 0 or recipe == "fp32"


def test_recipe_of_binary32_and_bf16_have_small_errors():
    x, w, dy = normal(64, 64), normal(32, 64), normal(64, 32)
    for recipe, bound in (("fp32", 1e-6), ("bf16", 5e-3)):
        for got, want in zip(run(recipe, x, w, dy), (x @ w.T, dy @ w, dy.T @ x)):
            assert (got - want).norm() / want.norm() < bound


def test_types_leading_dimensions_bias_and_autocast():
    layer = ft.Linear(64, 32, recipe="te_nvfp4")
    x = normal(4, 16, 64, dtype=torch.bfloat16)
    y = layer(x)
    assert y.shape == (4, 16, 32) and y.dtype == torch.bfloat16
    flat = ft.Linear.from_linear(layer, recipe="te_nvfp4")(x.reshape(64, 64).float())
    assert torch.equal(y.reshape(64, 32), flat.to(torch.bfloat16))
    with torch.autocast("cpu", torch.bfloat16):
        y = ft.Linear.from_linear(layer, recipe="te_nvfp4")(x.float())
    assert y.dtype == torch.bfloat16 and torch.equal(y.reshape(64, 32), flat.to(torch.bfloat16))
    half = ft.Linear(64, 32, recipe="te_nvfp4", dtype=torch.bfloat16)
    half(x).float().sum().backward()
    assert half.weight.grad.dtype == torch.bfloat16 and half.bias.grad.shape == (32,)


def test_gradients_of_strided_and_broadcast_tensors():
    w, big = normal(32, 64), normal(64, 64)
    dy = torch.ones(64, 32)
    expected = run("te_nvfp4", big, w, dy)
    layer = ft.Linear(64, 32, bias=False, recipe="te_nvfp4")
    layer.weight = nn.Parameter(w.T.contiguous().T)  # column-major
    x = big.T.contiguous().T.requires_grad_()
    y = layer(x)
    y.sum().backward()  # a gradient with strides of zero
    for got, want in zip((y, x.grad, layer.weight.grad), expected):
        assert torch.equal(got, want)


def test_random_bits_depend_on_seed_step_and_index_alone():
    x, w, dy = normal(64, 64), normal(64, 64), normal(64, 64)
    base = run("te_nvfp4", x, w, dy, seed=1)
    assert all(torch.equal(a, b) for a, b in zip(base, run("te_nvfp4", x, w, dy, seed=1)))
    for other in (dict(seed=2), dict(seed=1, index=1), dict(seed=1, step=1)):
        y, dx, dw = run("te_nvfp4", x, w, dy, **other)
        assert (
            torch.equal(y, base[0])
            and not torch.equal(dx, base[1])
            and not torch.equal(dw, base[2])
        )


def test_step_counts_training_calls_and_is_no_part_of_the_state():
    layer = ft.Linear(16, 16)
    layer(normal(16, 16)), layer(normal(16, 16))
    layer.eval()
    layer(normal(16, 16))
    assert int(layer.step) == 2
    assert set(layer.state_dict()) == {"weight", "bias"}
    nn.Linear(16, 16).load_state_dict(layer.state_dict())
    ft.set_step(layer, 40)
    assert int(layer.step) == 40


def test_gradients_of_two_calls_add():
    layer, x = ft.Linear(32, 32, bias=False), normal(32, 32)
    layer(x).sum().backward()
    first = layer.weight.grad.clone()
    ft.set_step(layer, 0)
    layer(x).sum().backward()
    assert torch.equal(layer.weight.grad, 2 * first)


def test_delayed_scaling_takes_the_amax_of_the_calls_before():
    layer = ft.Linear(32, 32, bias=False, recipe="te_fp8_delayedscaling")
    with torch.no_grad():
        layer.weight.copy_(torch.eye(32))
    for scale in (1.0, 2.0, 4.0):
        layer(torch.full((16, 32), scale)).sum().backward()
    # fprop.input: quantized with the largest amax of the calls before; the present one is noted.
    assert layer.amax_history[0, :4].tolist() == [2.0, 4.0, 2.0, 1.0]
    other = ft.Linear(32, 32, bias=False, recipe="te_fp8_delayedscaling")
    other.load_state_dict(layer.state_dict())
    other.train()(torch.full((16, 32), 8.0)).sum().backward()
    assert other.amax_history[0, :5].tolist() == [4.0, 8.0, 4.0, 2.0, 1.0]
    history = layer.amax_history.clone()
    layer.eval()(torch.full((16, 32), 100.0))
    assert torch.equal(history, layer.amax_history)


def test_a_recipe_that_changes_needs_the_length_of_the_run():
    name = "nvidia_nvfp4_12b_switch_bf16"
    with pytest.raises(fp4lab.Error, match="changes during the run: give total_steps"):
        ft.Linear(16, 16, recipe=name)
    x, w, dy = normal(32, 32), normal(32, 32), normal(32, 32)
    early = run(name, x, w, dy, total_steps=100)
    late = run(name, x, w, dy, total_steps=100, step=99)
    assert torch.equal(late[0], run("bf16", x, w, dy)[0]) and not torch.equal(early[0], late[0])


def test_compiled_and_eager_layers_agree():
    x = normal(64, 64)
    results = []
    for backend in (None, "eager", "aot_eager"):
        torch.manual_seed(1)
        model = nn.Sequential(
            ft.Linear(64, 32, seed=5), nn.GELU(), ft.Linear(32, 16, seed=5, index=1)
        )
        f = torch.compile(model, backend=backend, fullgraph=True) if backend else model
        for _ in range(2):
            f(x).square().sum().backward()
        results.append([p.grad for p in model.parameters()] + [model[0].step])
    for result in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], result))


def test_compiled_by_inductor():
    x = normal(64, 64)
    layer = ft.Linear(64, 32, seed=5)
    expected = ft.Linear.from_linear(layer, seed=5)(x)
    try:
        y = torch.compile(layer, fullgraph=True)(x)
    except torch._dynamo.exc.BackendCompilerFailed as error:  # no compiler of C++ here
        pytest.skip(str(error).splitlines()[0])
    assert torch.equal(y, expected)


def test_opcheck():
    x, w, dy = normal(32, 16).requires_grad_(), normal(48, 16).requires_grad_(), normal(32, 48)
    step = torch.zeros((), dtype=torch.int64)
    torch.library.opcheck(torch.ops.fp4lab.linear, (x, w, step, '"te_nvfp4"', 3, 1))
    torch.library.opcheck(
        torch.ops.fp4lab.linear_backward, (x.detach(), w.detach(), dy, step, '"te_nvfp4"', 3, 1)
    )


def test_checkpointing_the_forward_with_its_step_repeats_its_bits():
    layer, x = ft.Linear(64, 64, bias=False), normal(64, 64)
    layer(x).sum().backward()
    expected, layer.weight.grad = layer.weight.grad, None
    ft.set_step(layer, 0)
    layer.eval()  # the call that is repeated counts no step
    torch.utils.checkpoint.checkpoint(
        layer, x.requires_grad_(), use_reentrant=False
    ).sum().backward()
    assert torch.equal(layer.weight.grad, expected)


def test_empty_batches():
    layer = ft.Linear(32, 16, bias=False)
    x = torch.zeros(0, 32, requires_grad=True)
    y = layer(x)
    y.sum().backward()
    assert y.shape == (0, 16) and x.grad.shape == (0, 32) and not layer.weight.grad.any()


def test_nan_is_the_largest_code_as_the_dialect_states():
    w, dy = normal(16, 32), normal(16, 16)
    x = normal(16, 32)
    x[3, 5], x[3, 6] = float("nan"), 5.0  # the amax, and so the scale, is another element's
    at_most = x.clone()
    at_most[3, 5] = 5.0
    assert torch.equal(run("te_nvfp4", x, w, dy)[0], run("te_nvfp4", at_most, w, dy)[0])


@pytest.mark.parametrize(
    "bad, message",
    [
        (
            lambda: ft.Linear(16, 16)(torch.zeros(16, 16, dtype=torch.float64)),
            "x has dtype torch.float64.*round it by x.float",
        ),
        (lambda: ft.Linear(16, 16)(torch.zeros(16, 17)), r"x \(16, 17\), weight \(16, 16\): needs"),
        (
            lambda: ft.Linear(16, 16)(torch.zeros(8, 16)),
            "groups of 16 in wgrad: the product of x's leading",
        ),
        (lambda: ft.Linear(16, 16, recipe="te_nvpf4"), "te_nvfp4"),
        (lambda: ft.Linear(16, 16, recipe=3), "recipe is int"),
        (lambda: ft.Linear(16, 16, seed=-1), "seed: -1 is not in 0"),
        (lambda: ft.Linear(16, 16, index=2**31), "index: 2147483648 is not in 0"),
        (lambda: ft.set_step(ft.Linear(16, 16), -1), "step -1"),
        (
            lambda: torch.ops.fp4lab.linear(
                torch.zeros(16, 16), torch.zeros(16), torch.zeros(()), '"bf16"'
            ),
            "needs .*in",
        ),
    ],
)
def test_refusals_are_one_line(bad, message):
    with pytest.raises((TypeError, ValueError), match=message) as error:
        bad()
    assert "\n" not in str(error.value)
