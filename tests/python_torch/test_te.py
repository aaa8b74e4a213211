"""te_quantizer_factory against Transformer Engine's reference quantizer and its custom GEMM.

Transformer Engine's PyTorch package is imported past its own __init__, which loads CUDA code; the
extension module is a mock, of which the reference classes call nothing.
"""

import enum
import importlib
import importlib.util
import sys
import types
from collections import namedtuple
from unittest import mock

import pytest
import torch

import fp4lab.torch as ft

FOUND = importlib.util.find_spec("transformer_engine")
if FOUND is None:
    pytest.skip("transformer_engine is not installed", allow_module_level=True)
Role = namedtuple("Role", "module_type tensor_type")
ROLES = {t: Role("linear", t) for t in ("input", "weight", "grad_output")}


@pytest.fixture(scope="module")
def te():
    """Transformer Engine's modules: the reference quantizer and the custom GEMM."""
    before = set(sys.modules)
    extension = mock.MagicMock(name="transformer_engine_torch", __spec__=None)
    names = dict(kByte=0, kInt32=2, kFloat32=4, kFloat16=5, kBFloat16=6, kFloat8E4M3=7,
                 kFloat8E5M2=8, kFloat4E2M1=10)  # fmt: skip
    extension.DType = enum.IntEnum("DType", names)
    root = FOUND.submodule_search_locations[0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NVTE_PROJECT_BUILDING", "1")
        patch.setitem(sys.modules, "transformer_engine_torch", extension)
        for name, folder in (
            ("transformer_engine", root),
            ("transformer_engine.pytorch", root + "/pytorch"),
        ):
            package = types.ModuleType(name)
            package.__path__ = [folder]
            patch.setitem(sys.modules, name, package)
        importlib.import_module("transformer_engine.pytorch.tensor")
        recipes = "transformer_engine.pytorch.custom_recipes."
        yield types.SimpleNamespace(
            reference=importlib.import_module(recipes + "reference_nvfp4"),
            gemm=importlib.import_module(recipes + "gemm").custom_gemm,
        )
    for name in set(sys.modules) - before:
        if name.startswith("transformer_engine"):
            del sys.modules[name]


def quantized(factory, x, w, dy):
    return [factory(ROLES[r]).quantize(t) for r, t in zip(ROLES, (x, w, dy))]


def products(te, x, w, dy):
    """(y, dx, dw) by Transformer Engine's dispatch."""
    return (
        te.gemm(w, x, None, out_dtype=torch.bfloat16)[0],
        te.gemm(w, dy, None, out_dtype=torch.bfloat16, layout="NN", grad=True)[0],
        te.gemm(x, dy, None, out_dtype=torch.float32, layout="NT", grad=True)[0],
    )


def tensors(*shapes):
    return [torch.randn(s).bfloat16() for s in shapes]


@pytest.mark.parametrize("tokens", [(64,), (4, 32)])
def test_bytes_and_products_are_those_of_the_reference(te, tokens):
    given = tensors((*tokens, 128), (96, 128), (*tokens, 96))
    ours = quantized(ft.te_quantizer_factory(seed=None), *given)
    theirs = quantized(te.reference.nvfp4_ref_rht_2d_factory, *given)
    for a, b in zip(ours, theirs):
        assert a.original_shape == b.original_shape
        for name in ("data", "scale", "data_t", "scale_t", "global_amax_row", "global_amax_col"):
            one, two = getattr(a, name), getattr(b, name)
            assert one.dtype == two.dtype and torch.equal(
                one.view(torch.uint8), two.view(torch.uint8)
            ), name
    for one, two in zip(products(te, *ours), products(te, *theirs)):
        assert one.dtype == two.dtype and torch.equal(one, two)


def test_gradients_are_rounded_stochastically_by_seed_and_use(te):
    (dy,) = tensors((64, 96))
    make = lambda seed: ft.te_quantizer_factory(seed=seed)(ROLES["grad_output"])  # noqa: E731
    one, again, other = make(1), make(1), make(2)
    first, second = one.quantize(dy), one.quantize(dy)
    assert torch.equal(first.data, again.quantize(dy).data)
    assert not torch.equal(first.data, second.data) and torch.equal(first.scale, second.scale)
    assert not torch.equal(first.data, other.quantize(dy).data)
    (x,) = tensors((64, 96))
    inputs = ft.te_quantizer_factory(seed=1)(ROLES["input"])
    assert torch.equal(inputs.quantize(x).data, inputs.quantize(x).data)


def test_usages_accumulation_and_accumulate(te):
    given = tensors((64, 128), (96, 128), (64, 96))
    quantizer = ft.te_quantizer_factory("exact", seed=None)(ROLES["input"])
    quantizer.set_usage(rowwise=True, columnwise=False)
    q = quantizer.quantize(given[0])
    assert q.data is not None and q.data_t is None
    x, w, _ = quantized(ft.te_quantizer_factory("exact", seed=None), *given)
    a, b = ft.quantize(given[0]), ft.quantize(given[1], "nvfp4.te.2d")
    want = ft.scaled_mm(a, b, accumulation="exact", dtype=torch.float32)
    got = te.gemm(w, x, None, out_dtype=torch.float32)[0]
    assert torch.equal(got, want)
    sum_ = x._quantizer.qgemm(x.data, w.data, None, torch.float32, x.scale, w.scale, out=want,
                              accumulate=True, qresult_x=x, qresult_w=w)  # fmt: skip
    assert torch.equal(sum_, want + want)


def test_absence_is_one_line():
    with pytest.raises(ImportError, match="needs Transformer Engine 2.20 for PyTorch") as error:
        recipes = "transformer_engine.pytorch.custom_recipes.reference_nvfp4"
        with mock.patch.dict(sys.modules, {recipes: None}):
            ft.te_quantizer_factory()
    assert "\n" not in str(error.value)
