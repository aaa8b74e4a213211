"""A quantizer factory for Transformer Engine's CustomRecipe, whose arithmetic is the library's."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .. import _ieee, _quantize
from . import _ops

_MODULE = "transformer_engine.pytorch.custom_recipes"


def _make_quantizer(accumulation: str) -> type:
    """A subclass of Transformer Engine's NVFP4QuantizerRef."""
    try:
        reference = importlib.import_module(_MODULE + ".reference_nvfp4")
        gemm = importlib.import_module(_MODULE + ".gemm")
    except Exception as error:  # without a GPU's libraries it fails in many ways
        why = (str(error).splitlines() or [repr(error)])[0]
        raise ImportError(
            f"te_quantizer_factory needs Transformer Engine 2.20 for PyTorch: {why}"
        ) from error

    class Quantizer(reference.NVFP4QuantizerRef):
        """NVFP4QuantizerRef with operands and products of libfp4lab, computed on the CPU."""

        def __init__(self, *, stochastic: tuple[int, int] | None, **options: Any) -> None:
            super().__init__(**options)
            self.stochastic, self.uses = stochastic, 0  # (seed, tensor) of random bits

        def _one(self, x: Tensor, columnwise: bool, step: int) -> tuple[Tensor, Tensor, Tensor]:
            options = {}
            if self.stochastic is not None:
                seed, number = self.stochastic
                # Two tensors of random bits a quantizer: its rows and its columns.
                options = dict(
                    rounding="stochastic", seed=seed, step=step, tensor=2 * number + columnwise
                )
            q = _quantize.quantize(
                x.detach().cpu(),
                "nvfp4.te.2d" if self.quant_tile_shape == (16, 16) else "nvfp4.te",
                columnwise=columnwise,
                rht=self.with_rht and columnwise,
                expanded_scales=True,
                threads=torch.get_num_threads(),
                **options,
            )
            data, scales = torch.from_numpy(q.data), torch.from_numpy(q.scale_inv)
            amax = torch.full((1,), float(q.amax))
            scales = scales.view(torch.float8_e4m3fn)
            return data.to(x.device), scales.to(x.device), amax.to(x.device)

        @_ieee.ieee
        def _quantize(self, tensor: Tensor) -> tuple[Any, ...]:
            step, self.uses = self.uses, self.uses + 1
            amax = _ops.amax(tensor.detach().cpu()).reshape(1).to(tensor.device)
            rows = columns = (None, None, amax)
            if self.rowwise_usage:
                rows = self._one(tensor, False, step)
            if self.columnwise_usage:
                columns = self._one(tensor, True, step)
            return *rows[:2], *columns[:2], rows[2], columns[2]

        @_ieee.ieee
        def qgemm(
            self,
            qx: Tensor,
            qw: Tensor,
            m_params: Any,
            out_dtype: torch.dtype,
            sx: Tensor,
            sw: Tensor,
            bias: Tensor | None = None,
            out: Tensor | None = None,
            accumulate: bool = False,
            gemm_type: Any = gemm.GEMMType.FPROP,
            qresult_x: Any = None,
            qresult_w: Any = None,
        ) -> Tensor:
            """qx qw^T as libfp4lab adds, with alpha of both amaxes."""
            if bias is not None:
                raise ValueError("qgemm takes no bias: Transformer Engine adds it afterwards")
            which = "col" if gemm_type == gemm.GEMMType.WGRAD else "row"
            amaxes = (getattr(q, f"global_amax_{which}").cpu() for q in (qresult_x, qresult_w))
            y = _ops.scaled_mm(
                qx.cpu(),
                sx.cpu(),
                next(amaxes),
                qw.cpu(),
                sw.cpu(),
                next(amaxes),
                2 * qx.shape[1],
                accumulation=accumulation,
                dtype=torch.float32,
            )
            if accumulate:
                y = y + out.cpu().float()
            return y.to(out_dtype).to(qx.device)

    return Quantizer


def te_quantizer_factory(
    accumulation: str = "block", *, seed: int | None = 0, rht: bool = True
) -> Callable[[Any], Any]:
    """A `qfactory` for Transformer Engine's CustomRecipe: NVFP4BlockScaling by libfp4lab.

    Each tensor goes to the CPU and back, which is for comparisons and not for speed: which layer
    differs from the GPU's kernels, and what another accumulation would give.

        recipe = CustomRecipe(qfactory=fp4lab.torch.te_quantizer_factory("exact"))

    Tested against Transformer Engine 2.20.2's NVFP4QuantizerRef and custom_gemm on a CPU; its
    modules need a GPU and were not run.

    Args:
        accumulation: how products add, as fp4lab.torch.scaled_mm takes it.
        seed: of the stochastic rounding of gradients, whose bits are a function of (seed, the
            quantizer's number, its use, the element); None: nearest even.
        rht: the random Hadamard transform on the columns of inputs and gradients.

    Raises:
        ImportError: in one line, where Transformer Engine for PyTorch is absent.
    """
    quantizer = _make_quantizer(accumulation)
    formats = importlib.import_module(_MODULE + ".reference_utils").Fp4Formats
    numbers = itertools.count()

    def factory(role: Any) -> Any:
        module, tensor = getattr(role, "module_type", ""), getattr(role, "tensor_type", "")
        is_linear = module in ("linear", "grouped_linear")
        is_weight, is_grad = (is_linear and tensor == t for t in ("weight", "grad_output"))
        number = next(numbers)
        return quantizer(
            dtype=formats.E2M1,
            quant_tile_shape=(16, 16) if is_weight else (1, 16),
            with_rht=rht and not is_weight,
            stochastic=(seed, number) if is_grad and seed is not None else None,
        )

    return factory
