"""The linear operators: a forward and a backward pass of libfp4lab's own linear."""

from __future__ import annotations

import torch
from torch import Tensor

from .. import _core, _ieee
from . import _eager, _tensors

OPERANDS = 6  # random tensors of one linear: the operands of fprop, dgrad and wgrad


def _numbers(step: Tensor, seed: int, index: int, total_steps: int) -> tuple[int, int, int, int]:
    return seed, int(step) & 0xFFFFFFFF, OPERANDS * index, total_steps


def _forward(
    x, weight, step, recipe, seed, index, total_steps, history=None, records=False
) -> Tensor:
    check_shapes(x, weight)
    if x.numel() == 0 or weight.numel() == 0:  # sums without terms
        return torch.zeros(*x.shape[:-1], weight.shape[0])
    y = _core.linear_forward(
        recipe,
        _tensors.matrix(x),
        _tensors.matrix(weight, "weight"),
        _numbers(step, seed, index, total_steps),
        history,
        records,
        _tensors.threads(),
    )
    return _tensors.tensor(y).reshape(*x.shape[:-1], weight.shape[0])


def _backward(x, weight, dy, step, recipe, seed, index, total_steps, history=None, records=False):
    if x.numel() == 0 or weight.numel() == 0:
        return torch.zeros(x.shape), torch.zeros(weight.shape)
    dx, dw = _core.linear_backward(
        recipe,
        _tensors.matrix(x),
        _tensors.matrix(weight, "weight"),
        _tensors.matrix(dy, "dy"),
        _numbers(step, seed, index, total_steps),
        history,
        records,
        _tensors.threads(),
    )
    return _tensors.tensor(dx).reshape(x.shape), _tensors.tensor(dw)


@torch.library.custom_op("fp4lab::linear", mutates_args=())
@_ieee.ieee
def linear(
    x: Tensor,
    weight: Tensor,
    step: Tensor,
    recipe: str,
    seed: int = 0,
    index: int = 0,
    total_steps: int = 0,
) -> Tensor:
    """x weight^T under a recipe, float32; differentiable in x and weight by linear_backward.

    x (..., in), weight (out, in): float32, bfloat16 or float16. step: int64 without dimensions.
    recipe: JSON, as study files have it. The random bits of an element are a function of (seed,
    step, index, operand, element).
    """
    return _forward(x, weight, step, recipe, seed, index, total_steps)


@linear.register_fake
def _(x, weight, step, recipe, seed=0, index=0, total_steps=0):
    check_shapes(x, weight)
    return x.new_empty((*x.shape[:-1], weight.shape[0]), dtype=torch.float32)


@torch.library.custom_op("fp4lab::linear_backward", mutates_args=())
@_ieee.ieee
def linear_backward(
    x: Tensor,
    weight: Tensor,
    dy: Tensor,
    step: Tensor,
    recipe: str,
    seed: int = 0,
    index: int = 0,
    total_steps: int = 0,
) -> tuple[Tensor, Tensor]:
    """(dx, dw) = (dy weight, dy^T x) under a recipe, float32."""
    return _backward(x, weight, dy, step, recipe, seed, index, total_steps)


@linear_backward.register_fake
def _(x, weight, dy, step, recipe, seed=0, index=0, total_steps=0):
    check_shapes(x, weight)
    return x.new_empty(x.shape, dtype=torch.float32), weight.new_empty(
        weight.shape, dtype=torch.float32
    )


def cast(x: Tensor) -> tuple[Tensor, torch.dtype]:
    """x as a linear takes it and the type of its result: x's own, or autocast's."""
    if not torch.is_autocast_enabled("cpu"):
        return x, x.dtype
    dtype = torch.get_autocast_dtype("cpu")
    return x.to(dtype), dtype


def biased(y: Tensor, bias: Tensor | None, dtype: torch.dtype) -> Tensor:
    """y + bias in float32, then rounded to the type."""
    return (y if bias is None else y + bias.float()).to(dtype)


def check_shapes(x: Tensor, weight: Tensor) -> None:
    _tensors.check_numbers(x, "x")
    _tensors.check_numbers(weight, "weight")
    if x.dim() == 0 or weight.dim() != 2 or x.shape[-1] != weight.shape[1]:
        raise ValueError(
            f"x {tuple(x.shape)}, weight {tuple(weight.shape)}: needs (..., in) and (out, in)"
        )


def _keep(ctx, inputs, output) -> None:
    x, weight, step, *ctx.rest = inputs
    ctx.save_for_backward(x, weight, step)


@_eager.ieee
def _gradients(ctx, dy):
    x, weight, step = ctx.saved_tensors
    dx, dw = linear_backward(x, weight, dy, step, *ctx.rest)
    return dx.to(x.dtype), dw.to(weight.dtype), None, None, None, None, None


linear.register_autograd(_gradients, setup_context=_keep)


class _DelayedLinear(torch.autograd.Function):
    """linear with delayed scaling, whose forward and backward note amaxes in `history`."""

    @staticmethod
    @_ieee.ieee
    def forward(ctx, x, weight, step, history, records, *rest):
        ctx.save_for_backward(x, weight, step)
        ctx.history, ctx.records, ctx.rest = history, records, rest
        return _forward(x, weight, step, *rest, history=history.numpy(), records=records)

    @staticmethod
    @_ieee.ieee
    def backward(ctx, dy):
        x, weight, step = ctx.saved_tensors
        history = ctx.history.numpy()
        dx, dw = _backward(x, weight, dy, step, *ctx.rest, history=history, records=ctx.records)
        return dx.to(x.dtype), dw.to(weight.dtype), *(None,) * 7


@torch.compiler.disable
def delayed_linear(*arguments):
    return _DelayedLinear.apply(*arguments)


@torch.compiler.disable
@_ieee.ieee
def advance_histories(
    history: Tensor, step: Tensor, recipe: str, seed: int, index: int, total_steps: int
) -> None:
    """Ends the step before `step` of a layer with delayed scaling."""
    numbers = _numbers(step - 1, seed, index, total_steps)
    _core.advance_histories(recipe, numbers, history.numpy())
