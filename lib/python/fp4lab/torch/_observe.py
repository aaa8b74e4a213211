"""observe: the diagnostics of every operand of a model's linears, while it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from .. import _core, _ieee, _measure
from .._arguments import integer
from . import _experts, _linear_ops, _plan, _recipes, _tensors, _writers
from ._linear import Linear, check_groups
from ._recipes import RecipeLike


class Observer:
    """What `observe` returns: it watches a model until close(), or the end of its `with`.

    Attributes:
        rows: a dict for each operand that was seen: "step", "name" ("blocks.0.mlp.up.fprop.input"),
            "format", "rows" and "columns" of the operand with its blocks along the columns, a
            number for each of fp4lab.diagnostics(), "elements" that were measured, and the others,
            "not_finite".
        step: the number of the next forward pass of the model in training; it may be set.
    """

    def __init__(self, model: nn.Module, every: int, to: list[_writers.Writer], keep: bool) -> None:
        self.rows: list[_writers.Row] = []
        self.step = 0
        self._every, self._writers, self._keep = every, to, keep
        self._waiting: list[_writers.Row] = []
        self._on, self._now, self._closed = False, 0, False
        self._stack = ExitStack()
        self._hook(model.register_forward_pre_hook(self._begin))
        self._hook(model.register_forward_hook(self._end))

    def _hook(self, handle: Any) -> None:
        self._stack.callback(handle.remove)

    def _begin(self, model: nn.Module, arguments: Any) -> None:
        self.flush()
        self._on, self._now = self.step % self._every == 0, self.step

    def _end(self, model: nn.Module, arguments: Any, result: Any) -> None:
        if model.training:
            self.step += 1

    def flush(self) -> None:
        """Gives the rows of the last step to the writers; the next forward pass does so, too."""
        rows, self._waiting = self._waiting, []
        if rows:
            for write in self._writers:
                write(rows)

    def close(self) -> None:
        """Ends the observation and flushes."""
        self._on, self._closed = False, True
        self._stack.close()
        self.flush()

    def __enter__(self) -> Observer:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def table(self, *keys: str, sort: str = "") -> str:
        """The rows as text, a column for each diagnostic.

        Args:
            keys: of fp4lab.diagnostics(); none: all of them.
            sort: the key by which rows are sorted, the largest first.
        """
        shown = [d for d in _measure.diagnostics() if not keys or d.key in keys]
        rows = sorted(self.rows, key=lambda r: -r[sort]) if sort else self.rows
        lines = [["step", "operand", "format", *(f"{d.label} {d.unit}".strip() for d in shown)]]
        lines += [[str(r["step"]), r["name"], r["format"], *(d.text(r[d.key]) for d in shown)] for r in rows]
        widths = [max(map(len, column)) for column in zip(*lines)]
        return "\n".join(
            "  ".join(c.ljust(w) if i in (1, 2) else c.rjust(w) for i, (c, w) in enumerate(zip(line, widths)))
            for line in lines
        )

    def _add(self, name: str, seen: Iterable[Any]) -> None:
        for operand, form, rows, columns, numbers, elements in seen:
            row = {
                "step": self._now,
                "name": f"{name}.{operand}" if name else operand,  # the model may be a linear itself
                "format": form,
                "rows": rows,
                "columns": columns,
                **_measure.named(numbers),
                "elements": elements,
                "not_finite": rows * columns - elements,
            }
            self._waiting.append(row)
            if self._keep:
                self.rows.append(row)

    def _watch(
        self, name: str, json: str, numbers: Any, x: Tensor, weight: Tensor, history: Any
    ) -> Callable[[Tensor], None] | None:
        """Adds the rows of a forward pass; the result adds those of its backward pass."""
        if x.numel() == 0 or weight.numel() == 0:
            return None
        x, weight = x.detach(), weight.detach()
        now = self._now

        @_ieee.ieee
        def look(dy: Tensor | None) -> None:
            if self._closed:
                return
            arguments = [_tensors.matrix(x), _tensors.matrix(weight, "weight")]
            arguments.append(None if dy is None else _tensors.matrix(dy.detach().contiguous(), "dy"))
            seen = _core.linear_observe(json, *arguments, numbers, history, _tensors.threads())
            present, self._now = self._now, now
            self._add(name, seen)
            self._now = present

        look(None)
        return look

    def watch_linear(self, place: _plan.Place, seed: int, total_steps: int, own: bool) -> None:
        resolved = place.recipe.resolved
        groups, recipe = _recipes.groups(resolved), _recipes.name_of(resolved)

        def seen(module: nn.Module, arguments: Any, y: Tensor) -> None:
            if not self._on:
                return
            x, _ = _linear_ops.cast(arguments[0])
            check_groups(groups, recipe, x, module.weight)
            step = self._now
            if own:  # the call has counted already
                step = int(module.step) - (1 if module.training else 0)
            history = getattr(module, "amax_history", None) if own else None
            numbers = (seed, step & 0xFFFFFFFF, _linear_ops.OPERANDS * place.index, total_steps)
            past = None if history is None else history.clone().numpy()
            look = self._watch(place.name, place.recipe.json, numbers, x, module.weight, past)
            if look and y.requires_grad:
                y.register_hook(look)

        self._hook(place.module.register_forward_hook(seen))

    def watch_stacks(self, module: nn.Module, stacks: dict[str, tuple[str, _experts.Stack]], own: bool) -> None:
        def multiply(use: _experts.Use) -> Tensor:
            name, stack = stacks[use.stack]
            step = module.fp4lab_step if own else self._now
            y = stack.multiply(use, step) if own else use.original()
            if not self._on:
                return y
            looks = []
            for expert, x, weight in use.parts:
                numbers = (stack.seed, step & 0xFFFFFFFF, _linear_ops.OPERANDS * (stack.index + expert),
                           stack.total_steps)  # fmt: skip
                looks.append(
                    self._watch(f"{name}[{expert}]", stack.json, numbers, stack.padded(x), weight, None)
                )

            def backward(dy: Tensor) -> None:
                for look, part in zip(looks, use.split(dy)):
                    if look:
                        look(stack.padded(part))

            if y.requires_grad:
                y.register_hook(backward)
            return y

        self._stack.enter_context(_experts.intercepted(module, list(stacks), multiply, counts=own))


def observe(
    model: nn.Module,
    recipe: RecipeLike | None = None,
    *,
    include: Iterable[str] = (),
    exclude: Iterable[str] | None = None,
    experts: Iterable[str] = _plan.EXPERTS,
    every: int = 1,
    to: Any = None,
    keep: bool | None = None,
    seed: int = 0,
    total_steps: int | None = None,
) -> Observer:
    """Watches the operands of a model's linears and says what quantization does to each.

    The model computes what it computed before. Each linear's forward pass gives a row for fprop's
    input and weight; its backward pass gives rows for dgrad's and wgrad's operands, unless one is
    the transpose of another. Stacked expert weights give rows for each expert that has tokens.
    Numbers are those of fp4lab.measure on the operand as the recipe's product takes it: rounded to
    BF16 and transformed where the recipe says so. Operands that are not quantized have no row.

    Args:
        model: a model that convert has changed, observed under its own recipes; or, with `recipe`,
            any model, whose operands are measured as if they were quantized.
        recipe, include, exclude, experts, seed, total_steps: as convert has them. None: the
            recipes of a converted model.
        every: forward passes of the model in training from one that is observed to the next.
        to: where rows go: a path that ends in .jsonl (lines as `fp4lab train` writes) or .csv, a
            SummaryWriter of TensorBoard, a run of wandb, a function of a list of rows, or several.
        keep: whether rows stay in Observer.rows; None: unless `to` is given.

    Returns:
        An Observer, which is a context, too.

    Raises:
        ValueError: as convert; and for a model without linears of fp4lab.torch where recipe is None.

    >>> import torch, fp4lab.torch
    >>> _ = torch.manual_seed(0)
    >>> model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 32))
    >>> x = torch.randn(128, 64)
    >>> x[:, 7] *= 50  # a channel of outliers
    >>> with fp4lab.torch.observe(model, "te_nvfp4") as seen:
    ...     model(x).square().mean().backward()
    >>> [row["name"] for row in seen.rows if row["name"].startswith("2.")]
    ['2.fprop.weight', '2.fprop.input', '2.dgrad.grad', '2.wgrad.grad', '2.wgrad.input']
    >>> [row["name"] for row in seen.rows if row["kurtosis"] > 20]
    ['0.fprop.input', '0.wgrad.input']
    """
    every = integer(every, "every", 1, 2**63 - 1)
    steps = 0 if total_steps is None else total_steps
    if recipe is None:
        places = _plan.own_places(model)
    else:
        places = _plan.plan(model, _recipes.as_recipe(recipe), include=include, exclude=exclude,
                            experts=experts, converted=True)  # fmt: skip
    prepared: list[tuple[_plan.Place, _experts.Stack | None]] = []
    for place in places:
        own = recipe is None
        if place.parameter is None:
            if not own:
                Linear(1, 1, recipe=place.recipe, device="meta", seed=seed, total_steps=total_steps)
                if _core.linear_recipe(place.recipe.json)[1]:
                    raise _core.Error(
                        f"{place.name}: delayed scaling needs the amaxes of the steps before; convert the model, or "
                        "take a recipe without it"
                    )
            prepared.append((place, None))
        elif own:
            prepared.append((place, place.module.fp4lab_stacks[place.parameter]))
        else:
            shape = getattr(place.module, place.parameter).shape
            prepared.append((place, _experts.Stack.of(place.recipe, shape, index=place.index, seed=seed,
                                                      total_steps=total_steps, name=place.name)))  # fmt: skip
    observer = Observer(model, every, _writers.writers_of(to), to is None if keep is None else keep)
    stacked: dict[nn.Module, dict[str, tuple[str, _experts.Stack]]] = {}
    for place, stack in prepared:
        if stack is not None:
            stacked.setdefault(place.module, {})[place.parameter] = (place.name, stack)
        elif recipe is None:
            observer.watch_linear(place, place.module.seed, place.module.total_steps, True)
        else:
            observer.watch_linear(place, seed, steps, False)
    for module, stacks in stacked.items():
        observer.watch_stacks(module, stacks, recipe is None)
    return observer
