"""A model under parts of a recipe: the value of a coalition of operands on a batch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from .. import _core, _ieee
from . import _eager, _experts, _linear_ops, _plan, _recipes
from ._linear import check_groups

LossFunction = Callable[[nn.Module, Any], Tensor]


@dataclass(frozen=True)
class Measure:
    """What a coalition is worth on a batch.

    Attributes:
        name, what: for arguments and tables.
        operands: the bits of the operands that it depends on.
        forwards, backwards: passes for a value.
    """

    name: str
    what: str
    operands: int
    forwards: int
    backwards: int


MEASURES = (
    Measure("loss", "the loss", 0b000011, 1, 0),
    Measure("gradient_error", "|g - h| / |h|, h the gradient without quantization", 0b111111, 1, 1),
    Measure("loss_after", "the loss without quantization after a step of gradient descent", 0b111111, 2, 1),
)


def default_loss(model: nn.Module, batch: Any) -> Tensor:
    """The loss of a batch: model(**batch).loss for a dict, as models of transformers have it; for (inputs, targets)
    the cross entropy of integer targets, or else the mean squared error."""
    if isinstance(batch, dict):
        return model(**batch).loss
    if not isinstance(batch, tuple) or len(batch) != 2:
        raise TypeError(
            f"a batch is {type(batch).__name__}, not (inputs, targets) or a dict: give loss_fn(model, batch)"
        )
    inputs, targets = batch
    outputs = model(inputs)
    if targets.is_floating_point():
        return nn.functional.mse_loss(outputs.float(), targets.float())
    return nn.functional.cross_entropy(outputs.flatten(0, -2).float(), targets.flatten())


class Evaluator:
    """Computes values while `patched` lasts: the model's linears take the operands that are chosen.

    Linears of which no operand is chosen round theirs to BF16, as the recipe does where it does not
    quantize. The model is in evaluation mode, and torch's generator starts at the seed in each pass.
    """

    def __init__(
        self,
        model: nn.Module,
        places: Sequence[_plan.Place],
        loss_fn: LossFunction,
        measure: Measure,
        seed: int,
        own: bool,
        learning_rate: float,
    ) -> None:
        self._model, self._places, self._loss_fn, self._measure = model, places, loss_fn, measure
        self._seed, self._own, self._rate = seed, own, learning_rate
        self._chosen = [0] * len(places)
        self._json: dict[tuple[int, int], str] = {}
        self._trained = [p for p in model.parameters() if p.requires_grad]
        self._plain: tuple[int, list[Tensor]] | None = None  # (batch, gradients without quantization)
        for place in places:
            changes, floats = _core.linear_recipe(place.recipe.json)
            if changes or floats:
                what = "changes during the run" if changes else "has delayed scaling, whose amaxes are of other steps"
                raise _core.Error(f"{place.name}: its recipe {what}; attribute takes the recipe of one step")

    def operands(self, index: int) -> list[tuple[int, str]]:
        """(bit, name) of the operands of a place that are quantized and that the measure depends on."""
        rows = _core.linear_operands(self._places[index].recipe.json, (0, 0, 0, 1))
        return [
            (1 << i, name)
            for i, (name, quantized) in enumerate(rows)
            if quantized and self._measure.operands >> i & 1
        ]

    def _recipe(self, index: int) -> str:
        """The JSON of the recipe with the operands that are chosen now."""
        key = index, self._chosen[index]
        if key not in self._json:
            self._json[key] = _core.with_quantized(self._places[index].recipe.json, self._chosen[index])
        return self._json[key]

    def _linear(self, index: int) -> Callable[[Tensor], Tensor]:
        place = self._places[index]
        module = place.module
        resolved = place.recipe.resolved
        groups, name = _recipes.groups(resolved), _recipes.name_of(resolved)
        seed = module.seed if self._own else self._seed
        step = module.step.clone() if self._own else torch.zeros((), dtype=torch.int64)

        @_eager.ieee
        def forward(x: Tensor) -> Tensor:
            check_groups(groups, name, x, module.weight)
            x, dtype = _linear_ops.cast(x)
            y = _linear_ops.linear(x, module.weight, step, self._recipe(index), seed, place.index, 0)
            return _linear_ops.biased(y, module.bias, dtype)

        return forward

    def _stacks(self, module: nn.Module, indices: dict[str, int]) -> Callable[[_experts.Use], Tensor]:
        made = {}
        for parameter, index in indices.items():
            place = self._places[index]
            if self._own:
                made[parameter] = module.fp4lab_stacks[parameter]
            else:
                shape = getattr(module, parameter).shape
                made[parameter] = _experts.Stack.of(place.recipe, shape, index=place.index, seed=self._seed,
                                                    total_steps=None, name=place.name)  # fmt: skip
        step = module.fp4lab_step if self._own else 0
        return lambda use: made[use.stack].multiply(use, step, self._recipe(indices[use.stack]))

    @contextmanager
    def patched(self) -> Iterator[None]:
        """Changes the model; it is as before when this ends, however it ends."""
        training = {m: m.training for m in self._model.modules()}
        stacks: dict[nn.Module, dict[str, int]] = {}
        with ExitStack() as stack:
            for index, place in enumerate(self._places):
                if place.parameter is not None:
                    stacks.setdefault(place.module, {})[place.parameter] = index
                    continue
                own = vars(place.module)
                before = own.get("forward")
                own["forward"] = self._linear(index)
                stack.callback(_restore, own, before)
            for module, indices in stacks.items():
                multiply = self._stacks(module, indices)
                stack.enter_context(_experts.intercepted(module, list(indices), multiply))
            try:
                self._model.eval()
                yield
            finally:
                for module, flag in training.items():
                    module.training = flag

    def choose(self, operands: dict[int, int]) -> None:
        """{place: bits of its operands}; those of other places are not quantized."""
        self._chosen = [operands.get(i, 0) for i in range(len(self._places))]

    def _loss(self, batch: Any) -> Tensor:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self._seed)
            loss = _ieee.as_caller(self._loss_fn, self._model, batch)
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            raise TypeError("loss_fn must return a tensor of one number, the loss of the batch")
        return loss

    def _gradients(self, batch: Any) -> list[Tensor]:
        with torch.enable_grad():
            found = torch.autograd.grad(self._loss(batch), self._trained, allow_unused=True)
        return [torch.zeros_like(p) if g is None else g for g, p in zip(found, self._trained)]

    def _without(self, number: int, batch: Any) -> list[Tensor]:
        if self._plain is None or self._plain[0] != number:
            chosen, self._chosen = self._chosen, [0] * len(self._places)
            self._plain = number, self._gradients(batch)
            self._chosen = chosen
        return self._plain[1]

    def value(self, number: int, batch: Any) -> float:
        """The measure of the operands that are chosen, on batch `number`."""
        if self._measure.name == "loss":
            with torch.no_grad():
                return _finite(self._loss(batch).double().item(), number)
        if self._measure.name == "gradient_error":
            plain = self._without(number, batch)
            noise = signal = 0.0
            for g, h in zip(self._gradients(batch), plain):
                noise += (g.double() - h.double()).square().sum().item()
                signal += h.double().square().sum().item()
            return _finite(math.sqrt(noise / signal) if signal else 0.0, number)
        return self._loss_after(number, batch)

    def _loss_after(self, number: int, batch: Any) -> float:
        gradients = self._gradients(batch)
        before = [p.detach().clone() for p in self._trained]
        with torch.no_grad():
            try:
                for p, g in zip(self._trained, gradients):
                    p.sub_(g, alpha=self._rate)
                self._chosen = [0] * len(self._places)
                return _finite(self._loss(batch).double().item(), number)
            finally:
                for p, old in zip(self._trained, before):
                    p.copy_(old)


def _restore(own: dict[str, Any], before: Any) -> None:
    if before is None:
        del own["forward"]
    else:
        own["forward"] = before


def _finite(value: float, number: int) -> float:
    if not math.isfinite(value):
        raise ValueError(
            f"batch {number}: the value is {value}, which has no shares; take a batch and a recipe with finite losses"
        )
    return value
