"""torch.nn.functional.scaled_mm with FP4 operands on the CPU."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from .. import _ieee
from . import _ops

_OP = "aten::_scaled_mm_v2"


def _value(member) -> int:
    return int(getattr(member, "value", member))


class _Operand:
    """One FP4 operand of scaled_mm: lines of packed codes, their scales, and the tensor scale."""

    def __init__(
        self, name: str, codes: Tensor, scales: list[Tensor], recipe: list[int], swizzle: list[int]
    ) -> None:
        kinds, swizzles = F.ScalingType, F.SwizzleType
        dialects = {
            _value(kinds.BlockWise1x16): ("nvfp4.te", torch.float8_e4m3fn),
            _value(kinds.BlockWise1x32): ("mxfp4.rceil", torch.float8_e8m0fnu),
        }
        layouts = {
            _value(swizzles.NO_SWIZZLE): "linear",
            _value(swizzles.SWIZZLE_32_4_4): "swizzled_32_4_4",
        }
        if (
            not recipe
            or recipe[0] not in dialects
            or recipe[1:] not in ([], [_value(kinds.TensorWise)])
        ):
            raise ValueError(
                f"scaled_mm on the CPU: FP4 operands have scale_recipe_{name} BlockWise1x16 or "
                "BlockWise1x32, with or without TensorWise behind it"
            )
        if len(scales) != len(recipe):
            raise ValueError(
                f"scaled_mm: {len(scales)} tensors in scale_{name} for {len(recipe)} recipes"
            )
        self.dialect, dtype = dialects[recipe[0]]
        if swizzle and swizzle[0] not in layouts:
            raise ValueError(
                f"scaled_mm on the CPU: swizzle_{name} is NO_SWIZZLE or SWIZZLE_32_4_4"
            )
        self.layout = layouts[swizzle[0]] if swizzle else "linear"
        if scales[0].dtype != dtype:
            raise ValueError(
                f"scale_{name}[0] has dtype {scales[0].dtype}: these blocks have {dtype}"
            )
        if codes.stride(-1) != 1:
            order = (
                "row-major" if name == "a" else "column-major, the transpose of a row-major matrix"
            )
            raise ValueError(f"scaled_mm: mat_{name} must be {order}")
        self.codes, self.scales = codes, scales[0]
        self.tensor_scale = scales[1].reshape(()).float() if len(scales) == 2 else torch.ones(())


@_ieee.ieee
def _scaled_fp4_mm(
    a: Tensor,
    b: Tensor,
    scale_a,
    recipe_a,
    swizzle_a,
    scale_b,
    recipe_b,
    swizzle_b,
    bias,
    dtype,
    accumulation: str,
) -> Tensor:
    left = _Operand("a", a, scale_a, recipe_a, swizzle_a)
    right = _Operand("b", b.t(), scale_b, recipe_b, swizzle_b)
    if left.codes.shape[1] != right.codes.shape[1]:
        raise ValueError(f"scaled_mm: mat_a {tuple(a.shape)} and mat_b {tuple(b.shape)} do not fit")
    alpha = (left.tensor_scale * right.tensor_scale).item()
    return _ops.scaled_mm(
        left.codes,
        left.scales,
        None,
        right.codes,
        right.scales,
        None,
        2 * left.codes.shape[1],
        left.dialect,
        right.dialect,
        left.layout,
        right.layout,
        alpha,
        "",
        bias,
        accumulation,
        dtype or torch.bfloat16,
    )


@contextlib.contextmanager
def enable_scaled_mm_on_cpu(accumulation: str = "block") -> Iterator[None]:
    """Makes torch.nn.functional.scaled_mm take FP4 operands on the CPU, within the context.

    NVFP4 (BlockWise1x16, E4M3 scales, with or without a TensorWise float32 scale each) and MXFP4
    (BlockWise1x32, E8M0 scales), with scales as they are or in SWIZZLE_32_4_4; alpha is the float32
    product of the tensor scales. Other operands go to torch's own kernel. The kernel stands for the
    whole process, not for one thread.

    Args:
        accumulation: how products add, as fp4lab.torch.scaled_mm takes it.
    """
    if not (hasattr(torch.library, "get_kernel") and hasattr(F, "scaled_mm")):
        raise RuntimeError(
            "enable_scaled_mm_on_cpu needs torch.nn.functional.scaled_mm, which PyTorch "
            f"{torch.__version__} lacks"
        )
    original = torch.library.get_kernel(_OP, "CPU")

    def kernel(
        keys,
        a,
        b,
        scale_a,
        recipe_a,
        swizzle_a,
        scale_b,
        recipe_b,
        swizzle_b,
        bias=None,
        out_dtype=None,
        contraction_dim=(),
        use_fast_accum=False,
    ):
        of_operands = (a, b, scale_a, recipe_a, swizzle_a, scale_b, recipe_b, swizzle_b)
        if (a.dtype, b.dtype) == (torch.float4_e2m1fn_x2,) * 2:
            return _scaled_fp4_mm(*of_operands, bias, out_dtype, accumulation)
        return original.call_boxed(
            keys, *of_operands, bias, out_dtype, contraction_dim, use_fast_accum
        )

    library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of kernels that stand in for its own
        library.impl("_scaled_mm_v2", kernel, "CPU", with_keyset=True)
    try:
        yield
    finally:
        library._destroy()
