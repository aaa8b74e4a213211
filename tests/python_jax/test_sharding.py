"""fp4lab.jax on arrays that are sharded over two devices: the bytes of one device, for any sharding."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import fp4lab.jax as fj
import fp4lab.te_jax

STATE = jnp.arange(4, dtype=jnp.uint32)


def _mesh(kind=AxisType.Auto, devices=2):
    return jax.make_mesh((devices,), ("d",), axis_types=(kind,), devices=jax.devices()[:devices])


def _normal(seed, *shape):
    """Normal numbers with one large one, so that the amax is in one device's part."""
    x = jax.random.normal(jax.random.PRNGKey(seed), shape, jnp.bfloat16)
    return x.at[(-1,) * len(shape)].set(40.0)


def _bytes(tree):
    return [np.asarray(leaf).view(np.uint8) for leaf in jax.tree.leaves(tree)]


def _assert_same(a, b):
    for one, other in zip(_bytes(a), _bytes(b), strict=True):
        assert one.shape == other.shape
        assert np.array_equal(one, other)


def _collectives(function, *arguments):
    """Which arrays the devices exchange: {operation: [shapes of one call]}."""
    found = {}
    for line in jax.jit(function).lower(*arguments).compile().as_text().splitlines():
        _, _, right = line.partition(" = ")
        for name in ("all-reduce", "all-gather", "all-to-all", "collective-permute"):
            shape, called, _ = right.partition(f" {name}(")
            if called:
                found.setdefault(name, []).append(shape)
    return found


CALLS = {
    "rows": lambda x: fj.quantize(x),
    "both": lambda x: fj.quantize(x, both=True),
    "square": lambda x: fj.quantize(x, "nvfp4.te.2d", both=True),
    "transformed": lambda x: fj.quantize(x, both=True, rht=True),
    "stochastic": lambda x: fj.quantize(x, both=True, rht=True, rng_state=STATE),
    "amax": lambda x: fj.amax(x, rht=True),
    "rht": lambda x: fj.rht(x),
}


@pytest.mark.parametrize("name", CALLS)
def test_bytes_do_not_depend_on_the_sharding(name):
    # 256x256: no padding of scales. 64x160: padding. 48x32: a half is no multiple of 16.
    for shape, spec in (((256, 256), P("d")), ((64, 160), P("d")), ((64, 160), P(None, "d")), ((48, 32), P("d"))):
        x = _normal(0, *shape)
        sharded = jax.device_put(x, NamedSharding(_mesh(), spec))
        _assert_same(jax.jit(CALLS[name])(sharded), jax.jit(CALLS[name])(x))


def test_each_device_quantizes_its_part():
    x = jax.device_put(_normal(1, 256, 256), NamedSharding(_mesh(), P("d")))
    rows, columns = jax.jit(CALLS["transformed"])(x)
    assert rows.data.sharding.spec == P("d") and columns.data.sharding.spec == P(None, "d")
    exchanged = _collectives(CALLS["transformed"], x)
    assert list(exchanged) == ["all-reduce"]  # both amaxes, a number each
    assert exchanged["all-reduce"] == ["(s32[1]{0}, s32[1]{0})"]


def test_a_tiny_amax_is_reduced_by_its_bits():
    x = jnp.full((32, 16), 1e-39, jnp.bfloat16).at[0].set(5e-39)  # subnormal: XLA's own maximum may flush it
    sharded = jax.device_put(x, NamedSharding(_mesh(), P("d")))
    assert np.asarray(fj.amax(x))[0] > 4e-39
    _assert_same(jax.jit(fj.amax)(sharded), fj.amax(x))


def _step(x, kernel, weights, state):
    def loss(x, kernel):
        y = fj.dense(x, kernel, rng_state=state)
        return jnp.sum(y.astype(jnp.float32) * weights), y

    return jax.grad(loss, argnums=(0, 1), has_aux=True)(x, kernel)


@pytest.mark.parametrize(
    "kind, of_kernel, state",
    [
        (AxisType.Auto, P(), None),
        (AxisType.Auto, P("d"), STATE),
        (AxisType.Auto, P(None, "d"), STATE),
        (AxisType.Explicit, P(), STATE),
    ],
    ids=["whole kernel, nearest", "split along in", "split along out", "explicit axes"],
)
def test_dense_and_its_gradients_equal_those_of_one_device(kind, of_kernel, state):
    x, kernel = _normal(2, 4, 64, 128), _normal(3, 128, 256) / 8
    weights = jax.random.normal(jax.random.PRNGKey(4), (4, 64, 256), jnp.float32)
    mesh = _mesh(kind)
    arguments = (
        jax.device_put(x, NamedSharding(mesh, P("d"))),
        jax.device_put(kernel, NamedSharding(mesh, of_kernel)),
        jax.device_put(weights, NamedSharding(mesh, P("d"))),
    )
    step = jax.jit(lambda x, kernel, weights: _step(x, kernel, weights, state))
    got = step(*arguments)
    _assert_same(got, jax.jit(lambda x, kernel, weights: _step(x, kernel, weights, state))(x, kernel, weights))
    assert got[1].sharding.spec == P("d")


def test_mapped_calls_equal_single_ones_on_one_device_and_two():
    x, kernel = _normal(5, 2, 32, 64), _normal(6, 2, 64, 32)
    maps = {
        "quantize": (jax.vmap(lambda x: fj.quantize(x, both=True, rht=True)), (x,)),
        "stochastic": (jax.vmap(lambda x: fj.quantize(x, rng_state=STATE)), (x,)),
        "rht": (jax.vmap(fj.rht), (x,)),
        "amax": (jax.vmap(fj.amax), (x,)),
        "dense": (jax.vmap(fj.dense), (x, kernel)),
        "twice": (jax.vmap(jax.vmap(fj.dense, (0, None)), (None, 0)), (x, kernel)),
    }
    single = {
        "quantize": lambda x: fj.quantize(x, both=True, rht=True),
        "stochastic": lambda x: fj.quantize(x, rng_state=STATE),
        "rht": fj.rht, "amax": fj.amax, "dense": fj.dense,
    }  # fmt: skip
    for name, (mapped, operands) in maps.items():
        if name == "twice":
            expected = jnp.stack([jnp.stack([fj.dense(x[i], kernel[j]) for i in range(2)]) for j in range(2)])
        else:
            parts = [single[name](*(o[i] for o in operands)) for i in range(2)]
            expected = jax.tree.map(lambda *leaves: jnp.stack(leaves), *parts)
        _assert_same(jax.jit(mapped)(*operands), expected)
        sharding = NamedSharding(_mesh(), P(None, "d"))
        _assert_same(jax.jit(mapped)(*(jax.device_put(o, sharding) for o in operands)), expected)


def test_shard_map_gives_each_device_its_part_alone():
    x = _normal(9, 64, 64)
    call = jax.shard_map(lambda x: fj.quantize(x), mesh=_mesh(), in_specs=P("d"), out_specs=P("d"))
    halves = [fj.quantize(half) for half in (x[:32], x[32:])]
    q = jax.jit(call)(x)
    assert q.amax[0] < q.amax[1] == 40
    _assert_same(q, jax.tree.map(lambda a, b: jnp.concatenate([a, b]), *halves))


def test_transformer_engine_quantizes_each_devices_tokens_by_their_own_amax():
    """FSDP: both devices take the amax of the whole kernel, and each that of its own part of x (its AmaxScope).
    So two devices compute what one device computes from each half of the tokens."""
    import transformer_engine.jax as tej
    from transformer_engine.common.recipe import NVFP4BlockScaling
    from transformer_engine.jax.flax import DenseGeneral

    def run(devices, x, kernel):
        mesh = _mesh(devices=devices)
        with jax.set_mesh(mesh), tej.autocast(True, recipe=NVFP4BlockScaling(), mesh_resource=tej.MeshResource(fsdp_resource="d")):
            layer = DenseGeneral(features=256, use_bias=False, dtype=jnp.bfloat16)
            variables = {"params": {"kernel": jax.device_put(kernel, NamedSharding(mesh, P("d")))}}
            split = jax.device_put(x, NamedSharding(mesh, P("d")))
            with fp4lab.te_jax.recording() as recorded:
                y = jax.jit(lambda v, x: layer.apply(v, x, rngs={"sr_rng": jax.random.PRNGKey(0)}))(variables, split)
                y = jax.block_until_ready(y)
        amaxes = {4: set(), 5: set()}  # by scaling mode: x, kernel
        for call in recorded.calls:
            if call.op == "te_dbias_quantize_ffi":
                amaxes[call.attributes["scaling_mode"]].add(float(call.arrays["amax"][0]))
        return y, amaxes

    x, kernel = _normal(7, 4, 64, 128), _normal(8, 128, 256)
    y, amaxes = run(2, x, kernel)
    assert amaxes == {4: {float(jnp.abs(x[:2]).max()), 40.0}, 5: {40.0}}
    halves = [run(1, half, kernel)[0] for half in (x[:2], x[2:])]
    _assert_same(y, jnp.concatenate(halves))
