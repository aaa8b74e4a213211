"""F.scaled_mm with FP4 operands on the CPU: the bits of fp4lab.scaled_mm, in every form that torch
has."""

import fp4lab
import numpy as np
import pytest
import torch
import torch.nn.functional as F

import fp4lab.torch as ft

pytestmark = pytest.mark.skipif(not hasattr(F, "scaled_mm"), reason="this torch has no F.scaled_mm")
if hasattr(F, "scaled_mm"):
    B16, B32, TENSOR = (
        F.ScalingType.BlockWise1x16,
        F.ScalingType.BlockWise1x32,
        F.ScalingType.TensorWise,
    )
    SWIZZLES = {"linear": F.SwizzleType.NO_SWIZZLE, "swizzled_32_4_4": F.SwizzleType.SWIZZLE_32_4_4}


def operands(dialect, layout):
    return [ft.quantize(torch.randn(n, 192), dialect, scale_layout=layout) for n in (144, 48)]


@pytest.mark.parametrize("layout", ["linear", "swizzled_32_4_4"])
@pytest.mark.parametrize("accumulation", ["block", "exact"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_nvfp4(layout, accumulation, dtype):
    a, b = operands("nvfp4.te", layout)
    scale_a, scale_b = a.amax / 2688, b.amax / 2688
    bias = torch.randn(48)
    swizzle = SWIZZLES[layout]
    name = str(dtype).removeprefix("torch.")
    with ft.enable_scaled_mm_on_cpu(accumulation):
        two = F.scaled_mm(
            a.codes,
            b.codes.t(),
            [a.scales.flatten(), scale_a],
            [B16, TENSOR],
            [b.scales.flatten(), scale_b],
            [B16, TENSOR],
            [swizzle, SWIZZLES["linear"]],
            [swizzle, SWIZZLES["linear"]],
            bias=bias,
            output_dtype=dtype,
        )
        one = F.scaled_mm(
            a.codes, b.codes.t(), a.scales, B16, b.scales, B16, swizzle, swizzle, output_dtype=dtype
        )
    for got, alpha, added in ((two, (scale_a * scale_b).item(), bias), (one, 1.0, None)):
        want = fp4lab.scaled_mm(
            a.numpy(), b.numpy(), alpha=alpha, bias=added, accumulation=accumulation, out_dtype=name
        )
        assert got.dtype == dtype and np.array_equal(
            got.float().numpy(), np.asarray(want, np.float32)
        )


@pytest.mark.parametrize("layout", ["linear", "swizzled_32_4_4"])
def test_mxfp4(layout):
    a, b = operands("mxfp4.rceil", layout)
    with ft.enable_scaled_mm_on_cpu():
        got = F.scaled_mm(
            a.codes, b.codes.t(), a.scales, B32, b.scales, B32, SWIZZLES[layout], SWIZZLES[layout]
        )
    want = fp4lab.scaled_mm(a.numpy(), b.numpy())
    assert np.array_equal(got.float().numpy(), np.asarray(want, np.float32))


def test_torchs_own_kernel_serves_other_operands_and_comes_back():
    a, b = torch.randn(16, 32).to(torch.float8_e4m3fn), torch.randn(16, 32).to(torch.float8_e4m3fn)
    one = torch.ones(())

    def fp8():
        return F.scaled_mm(a, b.t(), one, TENSOR, one, TENSOR, output_dtype=torch.float32)

    before = fp8()
    with ft.enable_scaled_mm_on_cpu():
        assert torch.equal(fp8(), before)
    assert torch.equal(fp8(), before)
    q = ft.quantize(torch.randn(16, 32))
    with pytest.raises((RuntimeError, ValueError)):  # torch has no kernel of its own
        F.scaled_mm(q.codes, q.codes.t(), q.scales, B16, q.scales, B16)


def test_refusals_are_one_line():
    q, short = ft.quantize(torch.randn(16, 32)), ft.quantize(torch.randn(16, 64))
    for arguments, message in (
        (
            (q.codes, q.codes.t(), q.scales, TENSOR, q.scales, B16),
            "FP4 operands have scale_recipe_a BlockWise1x16",
        ),
        (
            (q.codes, q.codes.t(), q.scales, B32, q.scales, B16),
            "these blocks have torch.float8_e8m0fnu",
        ),
        ((q.codes, short.codes.t(), q.scales, B16, short.scales, B16), "do not fit"),
        (
            (q.codes, q.codes.t(), q.scales, B16, [q.scales, q.scales], B16),
            "2 tensors in scale_b for 1 recipes",
        ),
        ((q.codes, q.codes.t(), short.scales, B16, q.scales, B16), "scales"),
    ):
        with ft.enable_scaled_mm_on_cpu(), pytest.raises(ValueError, match=message) as error:
            F.scaled_mm(*arguments)
        assert "\n" not in str(error.value)
