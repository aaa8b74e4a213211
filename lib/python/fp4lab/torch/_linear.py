"""Linear: torch's linear layer with the three products of a training recipe."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from .. import _core
from .._arguments import integer
from . import _eager, _linear_ops, _recipes
from ._recipes import RecipeLike


class Linear(nn.Linear):
    """y = x w^T + b, its three products with operands in the formats of a training recipe.

    y, dx and dw have the bits of libfp4lab's own linear: operands are rounded, transformed and
    quantized as the recipe says, and each product adds in the order of its blocks in float32. The
    bias is added in float32; y has x's type, or autocast's. Gradients have the types of their
    tensors.

    Stochastic rounding takes bits that are a function of (seed, step, index, operand, element): no
    generator moves on, and no byte depends on the number of threads. `step` counts the calls in
    training mode, those that activation checkpointing repeats included; set_step sets it, as after
    loading a checkpoint.

    Args:
        in_features, out_features, bias, device, dtype: as nn.Linear has them; the CPU, or "meta".
        recipe: a name of fp4lab.recipes(), a recipe of one's own as a dict or the path of a .json
            file, or an fp4lab.Recipe. Its choice of layers is convert's business.
        seed, index: of the random bits; the linears of a model need an index each, which convert
            gives them.
        total_steps: the steps of the run, for recipes that change during it.

    Raises:
        fp4lab.Error: for an unknown recipe, or one that changes where total_steps is missing.
    """

    step: Tensor
    amax_history: Tensor | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        recipe: RecipeLike = "te_nvfp4",
        seed: int = 0,
        index: int = 0,
        total_steps: int | None = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(in_features, out_features, bias, device=device, dtype=dtype)
        self.set_recipe(recipe, seed=seed, index=index, total_steps=total_steps)

    @classmethod
    def from_linear(cls, linear: nn.Linear, **options: Any) -> Linear:
        """A Linear with the parameters of an nn.Linear: the same tensors, not copies.

        **options: recipe, seed, index and total_steps.
        """
        new = cls(
            linear.in_features,
            linear.out_features,
            linear.bias is not None,
            device="meta",
            **options,
        )
        new.weight, new.bias = linear.weight, linear.bias
        return new.train(linear.training)

    @classmethod
    def adopt(cls, linear: nn.Linear, **options: Any) -> None:
        """Makes an nn.Linear itself a Linear; its parameters, hooks and places in models stay.

        **options: recipe, seed, index and total_steps.
        """
        cls(1, 1, device="meta", **options)  # raises what there is to raise
        linear.__class__ = cls
        linear.set_recipe(**options)

    def set_recipe(
        self,
        recipe: RecipeLike = "te_nvfp4",
        *,
        seed: int = 0,
        index: int = 0,
        total_steps: int | None = None,
    ) -> None:
        """Changes the recipe; the arguments are the constructor's. The step starts at 0 again."""
        self.recipe = _recipes.as_recipe(recipe)
        self.seed = integer(seed, "seed", 0, 2**63 - 1)
        self.index = integer(index, "index", 0, 2**32 // _linear_ops.OPERANDS - 1)
        self.total_steps = integer(0 if total_steps is None else total_steps, "total_steps", 0, 2**63 - 1)
        changes, floats = _core.linear_recipe(self.recipe.json)
        if changes and self.total_steps <= 0:
            raise _core.Error(
                f"recipe {self._name()} changes during the run: give total_steps, the steps of "
                "the whole run"
            )
        self._groups = _recipes.groups(self.recipe.resolved)
        self.register_buffer("step", torch.zeros((), dtype=torch.int64), persistent=False)
        self.register_buffer(
            "amax_history", torch.zeros(_linear_ops.OPERANDS, floats) if floats else None
        )

    def _apply(self, *arguments: Any, **options: Any) -> Linear:
        """nn.Module's, for parameters alone: the step and amaxes stay the numbers that they are."""
        step, history = self.step, self.amax_history
        super()._apply(*arguments, **options)
        self.step, self.amax_history = step, history
        return self

    def _name(self) -> str:
        return _recipes.name_of(self.recipe.resolved)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, recipe={self._name()}"

    def _check(self, x: Tensor) -> None:
        _linear_ops.check_shapes(x, self.weight)
        check_groups(self._groups, self._name(), x, self.weight)

    @_eager.ieee
    def forward(self, x: Tensor) -> Tensor:
        self._check(x)
        x, dtype = _linear_ops.cast(x)
        arguments = (self.recipe.json, self.seed, self.index, self.total_steps)
        if self.amax_history is None:
            y = _linear_ops.linear(x, self.weight, self.step.clone(), *arguments)
        else:
            records = self.training and torch.is_grad_enabled()
            if records and bool(self.amax_history[:, 1].any()):  # the last call's amaxes
                _linear_ops.advance_histories(self.amax_history, self.step, *arguments)
            y = _linear_ops.delayed_linear(
                x, self.weight, self.step.clone(), self.amax_history, records, *arguments
            )
        if self.training:
            self.step.add_(1)
        return _linear_ops.biased(y, self.bias, dtype)


def check_groups(groups: dict[str, int], name: str, x: Tensor, weight: Tensor) -> None:
    """Raises ValueError where a recipe's transforms do not fit the axes of a linear's products."""
    differentiates = torch.is_grad_enabled()
    tokens = 1
    for n in x.shape[:-1]:
        tokens = tokens * n
    for product, size, length in (
        ("fprop", "in_features", weight.shape[1]),
        ("dgrad", "out_features", weight.shape[0]),
        ("wgrad", "the product of x's leading dimensions", tokens),
    ):
        group = groups[product]
        if length % group and (product == "fprop" or differentiates):
            raise ValueError(
                f"recipe {name} transforms groups of {group} in {product}: {size} must "
                f"be a multiple of {group}, not {length}; or take a recipe without the "
                "transform (disable_rht=True)"
            )


def set_step(model: nn.Module, step: int) -> None:
    """Sets the step of every Linear and of all stacked weights, as after loading a checkpoint."""
    if step < 0:
        raise ValueError(f"step {step}: 0 at least")
    for module in model.modules():
        if isinstance(module, Linear):
            module.step.fill_(step)
        elif "fp4lab_step" in vars(module):
            module.fp4lab_step = step
