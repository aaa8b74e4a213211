"""QwixProvider: a flax model whose linears are fp4lab.jax.dense."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import qwix
from flax import linen, nnx

import fp4lab.jax as fj
import fp4lab.te_jax


class Net(nnx.Module):
    """Three linears without biases, and a head; `dot_generals`: the products of the three."""

    def __init__(self, width, rngs, dot_generals=(jax.lax.dot_general,) * 3):
        options = dict(use_bias=False, dtype=jnp.bfloat16, rngs=rngs)
        self.up = nnx.Linear(width, 2 * width, dot_general=dot_generals[0], **options)
        self.down = nnx.Linear(2 * width, width, dot_general=dot_generals[1], **options)
        self.mix = nnx.Linear(width, width, dot_general=dot_generals[2], **options)
        self.head = nnx.Linear(width, 4, rngs=rngs)

    def __call__(self, x):
        return self.head(self.mix(x + self.down(jax.nn.silu(self.up(x)))).astype(jnp.float32))


BODY = [qwix.QuantizationRule(module_path="(?!head).*")]


def _data():
    x = jax.random.normal(jax.random.PRNGKey(0), (4, 32, 64), jnp.bfloat16)
    return x, jnp.argmax(x[..., :4].astype(jnp.float32) + x[..., 4:8].astype(jnp.float32) ** 2, -1)


def _loss(model, x, labels):
    return optax.softmax_cross_entropy_with_integer_labels(model(x), labels).mean()


def _dense(words, rht):
    """fp4lab.jax.dense as the product of a linear of flax."""
    return lambda x, kernel, *_, **__: fj.dense(x, kernel, rng_state=words, rht=rht)


@pytest.mark.parametrize("recipe, stochastic", [("te_nvfp4", False), ("te_nvfp4", True), ("te_nvfp4_no_rht", True)])
def test_gradients_equal_those_of_dense(recipe, stochastic):
    x, labels = _data()
    model = Net(64, nnx.Rngs(1))
    provider = fj.QwixProvider(BODY, recipe=recipe, stochastic=stochastic)
    streams = {"rngs": nnx.Rngs(stochastic_rounding=5)} if stochastic else {}
    quantized = qwix.quantize_model(model, provider, x, **streams)
    assert not provider.get_unused_rules()
    words = [None] * 3
    if stochastic:  # a stream of its own for the call that is compared
        quantized.set_attributes(qwix_rngs=nnx.Rngs(stochastic_rounding=7))
        stream = nnx.Rngs(stochastic_rounding=7)["stochastic_rounding"]
        words = [jax.random.bits(stream(), (4,), jnp.uint32) for _ in range(3)]
    by_hand = Net(64, nnx.Rngs(1), [_dense(w, rht=recipe == "te_nvfp4") for w in words])
    step = nnx.jit(nnx.value_and_grad(_loss))
    loss, gradients = step(quantized, x, labels)
    expected_loss, expected = step(by_hand, x, labels)
    _, plain = step(model, x, labels)
    assert loss == expected_loss
    for got, dense, unquantized in zip(*map(jax.tree.leaves, (gradients, expected, plain)), strict=True):
        assert np.array_equal(np.asarray(got), np.asarray(dense))
        assert not np.array_equal(np.asarray(got), np.asarray(unquantized))


def test_a_model_trains():
    x, labels = _data()
    model = qwix.quantize_model(
        Net(64, nnx.Rngs(1)), fj.QwixProvider(BODY), x, rngs=nnx.Rngs(stochastic_rounding=5)
    )
    model.set_attributes(qwix_rngs=nnx.Rngs(stochastic_rounding=6))
    optimizer = nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.Param)

    @nnx.jit
    def step(model, optimizer):
        loss, gradients = nnx.value_and_grad(_loss)(model, x, labels)
        optimizer.update(model, gradients)
        return loss

    fp4lab.te_jax.clear_calls()
    losses = [float(step(model, optimizer)) for _ in range(30)]
    assert losses[-1] < 0.3 * losses[0], losses
    products = sum(n for call, n in fp4lab.te_jax.calls().items() if call.startswith("te_gemm_v2_ffi scaling=nvfp4"))
    assert products == 30 * (3 * 3 - 1)  # three linears of three products; x itself has no gradient


def test_linen_models_and_kernels_on_the_left():
    """einsum may hand its operands over in either order; linen has no modules to set attributes of."""

    class Turned(linen.Module):
        @linen.compact
        def __call__(self, x):
            kernel = self.param("kernel", linen.initializers.lecun_normal(), (64, 32), jnp.float32)
            return jnp.einsum("cd,btc->dbt", kernel, x)

    x, _ = _data()
    model = Turned()
    variables = model.init(jax.random.PRNGKey(0), x)
    quantized = qwix.quantize_model(model, fj.QwixProvider(stochastic=False))
    y = quantized.apply(variables, x.astype(jnp.float32))
    expected = fj.dense(x, variables["params"]["kernel"])
    assert y.dtype == jnp.float32
    assert np.array_equal(np.asarray(y), np.asarray(expected, np.float32).transpose(2, 0, 1))


def test_bad_arguments_are_errors_of_one_line(monkeypatch):
    x, _ = _data()
    with pytest.raises(ValueError, match="recipe 'mxfp4' is none of"):
        fj.QwixProvider(recipe="mxfp4")
    with pytest.raises(ValueError, match="leave them out of the rule for 'up'"):
        fj.QwixProvider([qwix.QuantizationRule(module_path="up", weight_qtype="nvfp4")])
    with pytest.raises(ValueError, match=r"module 'head' multiplies \(128, 64\) and \(64, 4\): all sizes must be"):
        qwix.quantize_model(Net(64, nnx.Rngs(1)), fj.QwixProvider(stochastic=False), x)
    monkeypatch.delitem(sys.modules, "fp4lab.jax._qwix")
    monkeypatch.setitem(sys.modules, "qwix", None)
    with pytest.raises(ImportError, match="QwixProvider needs qwix and flax: pip install qwix"):
        fj.QwixProvider  # noqa: B018
