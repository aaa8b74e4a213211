"""One of Transformer Engine's dense layers, forward and backward, with the buffers of its calls."""

import jax
import jax.numpy as jnp
import transformer_engine.jax as tej
from transformer_engine.jax.flax import DenseGeneral

import fp4lab.te_jax as te


def run(recipe, *, batch=2, tokens=64, features=128, out=256, seed=0, record=True):
    """y, (dkernel, dx) and the recorded calls, under a loss whose gradient is no constant."""
    keys = jax.random.split(jax.random.PRNGKey(seed), 5)
    x = jax.random.normal(keys[0], (batch, tokens, features), jnp.bfloat16)
    weights = jax.random.normal(keys[1], (batch, tokens, out), jnp.float32)
    with tej.autocast(enabled=recipe is not None, recipe=recipe, mesh_resource=tej.MeshResource()):
        layer = DenseGeneral(features=out, dtype=jnp.bfloat16)
        # Compiled and awaited: no call of the initialization may end within the recording.
        variables = jax.block_until_ready(jax.jit(layer.init)({"params": keys[2], "sr_rng": keys[3]}, x))

        def loss(kernel, x):
            parameters = jax.tree.unflatten(tree, [*leaves[:-1], kernel])
            y = layer.apply({**variables, "params": parameters}, x, rngs={"sr_rng": keys[4]})
            return jnp.sum(y.astype(jnp.float32) * weights), y

        leaves, tree = jax.tree.flatten(variables["params"])
        step = jax.jit(jax.grad(loss, argnums=(0, 1), has_aux=True))
        if not record:
            return step, leaves[-1], x
        with te.recording() as recorded:
            gradients, y = jax.block_until_ready(step(leaves[-1], x))
    return y, gradients, recorded.calls
