"""Stacked expert weights: parameters (experts, out, in), whose products are found while their module runs.

The module's code stays as it is. While its forward runs, a mode of torch sees every function that takes the
parameter, or what a cast, a view or an expert's slice makes of it. A product with it becomes one linear for each
expert.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakTensorKeyDictionary

from .. import _core
from . import _eager, _linear_ops, _recipes


@dataclass
class Use:
    """A product with stacked weights, as a linear for each expert.

    Attributes:
        stack: the name of the parameter in its module.
        parts: (expert, x (tokens, in), weight (out, in)) of each expert that has tokens.
        join: the product of the results (tokens, out) of `parts`.
        split: the parts of a gradient of the product, (tokens, out) each.
        original: the product as torch computes it.
    """

    stack: str
    parts: list[tuple[int, Tensor, Tensor]]
    join: Callable[[list[Tensor]], Tensor]
    split: Callable[[Tensor], list[Tensor]]
    original: Callable[[], Tensor]


@dataclass(frozen=True)
class _Piece:
    """What a tensor has of a stacked parameter. expert: of a slice; -1: all of them; -2: unknown."""

    stack: str
    expert: int


_ALL, _UNKNOWN = -1, -2

_GROUPED = tuple(
    getattr(home, name) for home, name in ((torch, "_grouped_mm"), (F, "grouped_mm")) if hasattr(home, name)
)
_MATMUL = (torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.mm, Tensor.mm, torch.bmm, Tensor.bmm)
_LINEAR = (F.linear, torch._C._nn.linear)
_JOINS = (torch.cat, torch.concat)
# Products that are not taken apart: a stacked weight in one of them is an error, never left as it is.
_OTHERS = {
    f: f.__name__
    for f in (torch.einsum, torch.tensordot, torch.baddbmm, Tensor.baddbmm, torch.addmm, Tensor.addmm,
              torch.addbmm, torch.mv, Tensor.mv, torch.bilinear, Tensor.__rmatmul__)
}  # fmt: skip


class Products(TorchFunctionMode):
    """Gives every product with stacked weights of a module to `multiply`.

    Args:
        parameters: {name: parameter} of the stacked weights.
        multiply: the product of a Use.
    """

    def __init__(self, parameters: dict[str, Tensor], multiply: Callable[[Use], Tensor]) -> None:
        super().__init__()
        self.multiply, self.parameters = multiply, parameters
        self.seen: set[str] = set()
        self._pieces = WeakTensorKeyDictionary()
        for name, parameter in parameters.items():
            self._pieces[parameter] = _Piece(name, _ALL)

    def tell_missed(self, name: str) -> None:
        """Warns of weights that no product took. name: of the module's class."""
        missed = self.parameters.keys() - self.seen
        if missed:
            warnings.warn(
                f"no product with {', '.join(sorted(missed))} of {name} was seen: these weights are not quantized",
                stacklevel=3,
            )

    def _piece(self, value: Any) -> _Piece | None:
        return self._pieces.get(value) if isinstance(value, Tensor) else None

    def _first_piece(self, values: Any) -> _Piece | None:
        """That of the first tensor with one, in arguments or in a list that is an argument."""
        for value in values:
            found = self._first_piece(value) if isinstance(value, (list, tuple)) else self._piece(value)
            if found:
                return found
        return None

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func in _OTHERS:
            taken = self._first_piece((*args, *kwargs.values()))
            if taken:
                raise ValueError(
                    f"{taken.stack} is multiplied by torch.{_OTHERS[func]}, which is not one of: "
                    "grouped_mm, linear, matmul, mm, bmm; leave it out by exclude"
                )
        use = self._use(func, args, kwargs)
        if use is not None:
            self.seen.add(use.stack)
            return self.multiply(use)
        result = func(*args, **kwargs)
        piece = self._first_piece(args[0] if func in _JOINS else args[:1]) if args else None
        if piece:
            self._note(func, args, piece, result)
        return result

    def _note(self, func: Any, args: Any, piece: _Piece, result: Any) -> None:
        """Remembers that a result is made of a stacked weight."""
        count = self.parameters[piece.stack].shape[0]
        if isinstance(result, (list, tuple)):
            unbinds = func in (torch.unbind, Tensor.unbind) and piece.expert == _ALL
            for i, part in enumerate(result):
                self._note_one(part, piece, i if unbinds and part.dim() == 2 else None, count)
            return
        index = None
        if func in (Tensor.__getitem__, torch.select, Tensor.select) and piece.expert == _ALL:
            last = args[-1]
            index = int(last) if isinstance(last, int) or (isinstance(last, Tensor) and last.dim() == 0) else None
            if func is not Tensor.__getitem__ and args[1] != 0:
                index = None
        self._note_one(result, piece, index, count)

    def _note_one(self, result: Any, piece: _Piece, index: int | None, count: int) -> None:
        if not isinstance(result, Tensor) or result.dim() < 2:
            return
        if piece.expert >= 0:
            expert = piece.expert if result.dim() == 2 else _UNKNOWN
        elif index is not None:
            expert = index % count
        else:
            whole = piece.expert == _ALL and result.dim() == 3 and result.shape[0] == count
            expert = _ALL if whole else _UNKNOWN
        self._pieces[result] = _Piece(piece.stack, expert)

    def _use(self, func: Any, args: Any, kwargs: Any) -> Use | None:
        """The product of x and a stacked weight that a function computes; None for other functions."""
        original = functools.partial(func, *args, **kwargs)
        if func in _GROUPED:
            x, weight, offs, bias, dtype = _grouped_arguments(*args, **kwargs)
        elif func in _MATMUL:
            x, weight = args if len(args) == 2 else (args[0], kwargs.get("other", kwargs.get("mat2")))
            offs = bias = dtype = None
        elif func in _LINEAR:
            x, weight = args[0], args[1] if len(args) > 1 else kwargs["weight"]
            bias = args[2] if len(args) > 2 else kwargs.get("bias")
            offs = dtype = None
        else:
            return None
        piece = self._piece(weight)
        if piece is None:
            first = self._piece(x)
            if first is not None:
                raise ValueError(f"{first.stack} is the first factor of {func.__name__}: x must be; "
                                 "leave it out by exclude")  # fmt: skip
            return None
        x, own = _linear_ops.cast(x)
        dtype = own if dtype is None else dtype
        if func in _LINEAR and piece.expert >= 0:
            return _sliced(piece, x, weight, bias, dtype, original)
        if func in _MATMUL and piece.expert >= 0 and weight.dim() == 2:
            return _sliced(piece, x, weight.T, None, dtype, original)
        if piece.expert == _ALL and weight.dim() == 3 and func not in _LINEAR and x.dim() in (2, 3):
            weights = weight.transpose(-2, -1).unbind(0)
            if func in _MATMUL and (x.dim() == 2 or x.shape[0] == 1):  # every token for every expert
                x = x.expand(weight.shape[0], *x.shape[-2:])
            if x.dim() == 3 and offs is None and x.shape[0] == weight.shape[0]:
                return _batched(piece, x, weights, bias, dtype, original)
            if x.dim() == 2 and offs is not None:
                return _grouped(piece, x, weights, offs, bias, dtype, original)
        raise ValueError(
            f"{piece.stack} is multiplied as {tuple(x.shape)} by {tuple(weight.shape)} in {func.__name__}: whose "
            "expert's rows these are is not known; leave it out by exclude"
        )


def _grouped_arguments(mat_a, mat_b, offs=None, bias=None, out_dtype=None, **names):
    return mat_a, mat_b, offs, bias, out_dtype


def _sliced(piece, x, weight, bias, dtype, original) -> Use:
    lines = x.reshape(-1, x.shape[-1])
    return Use(
        piece.stack,
        [(piece.expert, lines, weight)] if lines.shape[0] else [],
        lambda ys: _linear_ops.biased(
            ys[0].reshape(*x.shape[:-1], -1) if ys else x.new_zeros(*x.shape[:-1], weight.shape[0]), bias, dtype
        ),
        lambda dy: [dy.reshape(-1, dy.shape[-1])],
        original,
    )


def _batched(piece, x, weights, bias, dtype, original) -> Use:
    return Use(
        piece.stack,
        [(e, x[e], w) for e, w in enumerate(weights)] if x.shape[1] else [],
        lambda ys: _linear_ops.biased(
            torch.stack(ys) if ys else x.new_zeros(*x.shape[:2], weights[0].shape[0]), bias, dtype
        ),
        lambda dy: list(dy.unbind(0)),
        original,
    )


def _grouped(piece, x, weights, offs, bias, dtype, original) -> Use:
    ends = offs.tolist()
    if len(ends) != len(weights):
        raise ValueError(f"{piece.stack}: offs has {len(ends)} ends for {len(weights)} experts")
    spans = [(e, a, b) for e, (a, b) in enumerate(zip([0, *ends], ends)) if b > a]

    def join(ys: list[Tensor]) -> Tensor:
        rest = x.shape[0] - (ends[-1] if ends else 0)
        if bias is not None:
            ys = [y + bias[e].float() for y, (e, _, _) in zip(ys, spans)]
        return torch.cat([*ys, x.new_zeros(rest, weights[0].shape[0], dtype=torch.float32)]).to(dtype)

    return Use(
        piece.stack,
        [(e, x[a:b], weights[e]) for e, a, b in spans],
        join,
        lambda dy: [dy[a:b] for _, a, b in spans],
        original,
    )


@dataclass
class Stack:
    """The recipe of stacked weights, and the numbers from which their random bits are made.

    Attributes:
        recipe, json: the recipe; its JSON as the operators take it.
        experts: how many.
        index: of the first expert; the others follow.
        group: what the tokens of an expert are padded to, with rows of zeros, for the transforms.
    """

    recipe: Any
    json: str
    experts: int
    index: int
    seed: int
    total_steps: int
    group: int

    @staticmethod
    def of(recipe: Any, shape: Any, *, index: int, seed: int, total_steps: int | None, name: str) -> Stack:
        """Raises fp4lab.Error for recipes that stacked weights cannot have."""
        steps = 0 if total_steps is None else total_steps
        changes, floats = _core.linear_recipe(recipe.json)
        if changes and steps <= 0:
            raise _core.Error(
                f"recipe {_recipes.name_of(recipe.resolved)} changes during the run: give total_steps, the steps of "
                "the whole run"
            )
        if floats:
            raise _core.Error(
                f"{name}: has delayed scaling, which stacked experts do not take; take a recipe without "
                "it, such as te_fp8_currentscaling, or leave them out by exclude"
            )
        sizes = _recipes.groups(recipe.resolved)
        group = math.lcm(sizes["fprop"], sizes["dgrad"])  # either side may be (out, in) or (in, out)
        if any(n % group for n in shape[1:]):
            raise _core.Error(
                f"{name}: the recipe transforms groups of {group}, and an expert is {tuple(shape[1:])}; take a "
                "recipe without the transform (disable_rht=True)"
            )
        return Stack(recipe, recipe.json, shape[0], index, seed, steps, sizes["wgrad"])

    def padded(self, x: Tensor) -> Tensor:
        """x with rows of zeros to a multiple of `group`: zeros change neither an amax nor a sum."""
        rest = -x.shape[0] % self.group
        return F.pad(x, (0, 0, 0, rest)) if rest else x

    def linear(self, expert: int, x: Tensor, weight: Tensor, step: int, json: str | None = None) -> Tensor:
        """x weight^T of one expert, float32."""
        y = _linear_ops.linear(
            self.padded(x), weight, torch.tensor(step), json or self.json, self.seed, self.index + expert,
            self.total_steps,
        )  # fmt: skip
        return y[: x.shape[0]]

    @_eager.ieee
    def multiply(self, use: Use, step: int, json: str | None = None) -> Tensor:
        return use.join([self.linear(e, x, w, step, json) for e, x, w in use.parts])


class Stacked(nn.Module):
    """What convert adds to the class of a module with stacked expert weights."""

    fp4lab_base: type[nn.Module]
    fp4lab_stacks: dict[str, Stack]
    fp4lab_step: int

    @torch.compiler.disable
    def forward(self, *arguments: Any, **options: Any) -> Any:
        step = self.fp4lab_step
        parameters = {name: getattr(self, name) for name in self.fp4lab_stacks}
        products = Products(parameters, lambda use: self.fp4lab_stacks[use.stack].multiply(use, step))
        with products:
            result = self.fp4lab_base.forward(self, *arguments, **options)
        products.tell_missed(self.fp4lab_base.__name__)
        if self.training:
            self.fp4lab_step = step + 1
        return result

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _remade, (self.fp4lab_base,), self.__dict__

    def extra_repr(self) -> str:
        named = ", ".join(f"{n}={_recipes.name_of(s.recipe.resolved)}" for n, s in self.fp4lab_stacks.items())
        own = self.fp4lab_base.extra_repr(self)
        return ", ".join(part for part in (own, named) if part)


@functools.lru_cache(maxsize=None)
def _stacked_class(base: type[nn.Module]) -> type[Stacked]:
    return type(base.__name__, (Stacked, base), {"fp4lab_base": base, "__module__": base.__module__,
                                                 "__qualname__": base.__qualname__})  # fmt: skip


def _remade(base: type[nn.Module]) -> nn.Module:
    kind = _stacked_class(base)
    return kind.__new__(kind)


def adopt(module: nn.Module, parameter: str, stack: Stack) -> None:
    """Makes the products of a module with a stacked parameter those of the recipe."""
    if not isinstance(module, Stacked):
        module.__class__ = _stacked_class(type(module))
        module.fp4lab_stacks, module.fp4lab_step = {}, 0
    module.fp4lab_stacks[parameter] = stack


@contextmanager
def intercepted(
    module: nn.Module, parameters: list[str], multiply: Callable[[Use], Tensor], counts: bool = False
) -> Iterator[None]:
    """While it lasts, the products of a module with stacked parameters are `multiply`'s.

    counts: whether the module's calls in training mode count its step, as they do without this.
    """
    own = type(module).fp4lab_base if isinstance(module, Stacked) else type(module)
    before = vars(module).get("forward")
    if hasattr(before, "fp4lab_products"):
        raise ValueError(f"{own.__name__}: its products are observed already; close that observer first")

    def forward(*arguments: Any, **options: Any) -> Any:
        with Products({name: getattr(module, name) for name in parameters}, multiply) as products:
            result = before(*arguments, **options) if before else own.forward(module, *arguments, **options)
        products.tell_missed(own.__name__)
        if counts and module.training:
            module.fp4lab_step += 1
        return result

    forward.fp4lab_products = True  # type: ignore[attr-defined]
    vars(module)["forward"] = forward
    try:
        yield
    finally:
        if before:
            vars(module)["forward"] = before
        else:
            del vars(module)["forward"]
