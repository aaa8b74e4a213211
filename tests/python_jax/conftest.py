"""Transformer Engine's JAX modules, served by libfp4lab, for all tests of this folder."""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=2"

import fp4lab.te_jax  # noqa: E402

fp4lab.te_jax.enable()


def pytest_configure(config):
    config.addinivalue_line("markers", "long: takes minutes (MaxText)")
