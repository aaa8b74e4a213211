"""A dense layer of JAX with NVFP4 in all three products: the noise of its operands, its gradients beside those
of plain JAX, and a small network that trains with it.

Needs JAX and the module of XLA handlers (lib/python/fp4lab/te_jax/README.md, Install): python jax_dense.py
"""

import jax
import jax.numpy as jnp
import numpy as np

import fp4lab.jax


def sqnr(exact, got):
    """Signal to quantization noise, dB."""
    exact, got = np.asarray(exact, np.float64), np.asarray(got, np.float64)
    return 10 * np.log10((exact**2).sum() / ((got - exact) ** 2).sum())


def normal(seed, *shape):
    return jax.random.normal(jax.random.key(seed), shape, jnp.bfloat16)


def operands():
    """The noise of x by rows of 1x16 blocks, and of a kernel by 16x16 blocks: about 20.5 and 19.3 dB."""
    x, kernel = normal(0, 256, 512), normal(1, 512, 384)
    rows, columns = fp4lab.jax.quantize(x, both=True)
    square = fp4lab.jax.quantize(kernel, "nvfp4.te.2d")
    return {
        "x, rows": sqnr(x, rows.dequantize()),
        "x, columns": sqnr(x.T, columns.dequantize()),
        "kernel, 16x16": sqnr(kernel, square.dequantize()),
    }


@jax.jit
def gradients(x, kernel, dy, rng_state):
    """y, dx, dkernel of x kernel in NVFP4; custom_vjp quantizes dy with Transformer Engine's recipe."""
    y, vjp = jax.vjp(lambda x, kernel: fp4lab.jax.dense(x, kernel, rng_state=rng_state), x, kernel)
    return y, *vjp(dy)


def compare(draws=64):
    """SQNR of y, dx and dkernel against plain JAX: of one draw of stochastic rounding, and of the mean of many."""
    x, kernel, dy = normal(0, 256, 512), normal(1, 512, 384), normal(2, 256, 384)
    exact, vjp = jax.vjp(jnp.matmul, *(a.astype(jnp.float32) for a in (x, kernel)))
    exact = exact, *vjp(dy.astype(jnp.float32))
    drawn = [
        [np.asarray(a, np.float32) for a in gradients(x, kernel, dy, jnp.asarray([1, 0, i, 0], jnp.uint32))]
        for i in range(draws)
    ]
    names = "y", "dx", "dkernel"
    return {
        name: (sqnr(e, d[0]), sqnr(e, np.mean(d, 0))) for name, e, d in zip(names, exact, zip(*drawn))
    }


def train(dense, steps=150):
    """Losses of a network of two layers that learns another one; `dense(x, kernel, rng_state)` is its product."""
    teacher = [normal(i, 64, 64) / 8 for i in (10, 11)]
    weights = [normal(i, 64, 64).astype(jnp.float32) / 8 for i in (12, 13)]

    def loss(weights, x, step):
        wanted = jnp.tanh(x @ teacher[0]) @ teacher[1]
        for layer, kernel in enumerate(weights):
            x = jnp.tanh(x) if layer else x
            x = dense(x, kernel.astype(jnp.bfloat16), jnp.stack([step, jnp.uint32(layer), step, step * 0]))
        return jnp.mean((x - wanted).astype(jnp.float32) ** 2)

    @jax.jit
    def update(weights, step):
        x = jax.random.normal(jax.random.fold_in(jax.random.key(3), step), (256, 64), jnp.bfloat16)
        value, slopes = jax.value_and_grad(loss)(weights, x, step)
        return value, [w - 10 * slope for w, slope in zip(weights, slopes)]

    losses = []
    for step in range(steps):
        value, weights = update(weights, jnp.uint32(step))
        losses.append(float(value))
    return losses


if __name__ == "__main__":
    for name, decibels in operands().items():
        print(f"{name:15} {decibels:5.1f} dB")
    for name, (one, mean) in compare().items():
        print(f"{name:15} {one:5.1f} dB, the mean of 64 draws {mean:5.1f} dB")
    for name, dense in {
        "bfloat16": lambda x, kernel, _: x @ kernel,
        "te_nvfp4": lambda x, kernel, state: fp4lab.jax.dense(x, kernel, rng_state=state),
    }.items():
        print(f"{name:15}", " ".join(f"{loss:.4f}" for loss in train(dense)[::30]))
