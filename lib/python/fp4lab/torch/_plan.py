"""Which linears and stacked expert weights of a model have which recipe."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from torch import nn

from .. import _tables
from . import _recipes
from ._linear import Linear
from ._recipes import Block, Rule, Rules

# Linears that stay as they are unless a list of rules names them: the head, and routers of experts.
EXCLUDE = ("lm_head", "router", "router.*")
# Stacked expert weights, by the usual names of parameters, their modules and the modules' classes.
EXPERTS = ("*expert*", "*moe*")
OUTSIDE = Block(-1, 0)


@dataclass(frozen=True)
class Place:
    """A linear of a model, or the stacked weights (experts, out, in) of many.

    Attributes:
        name: of named_modules, or of named_parameters for stacked weights.
        module: the linear, or the module that has the parameter.
        parameter: the name of the stacked parameter in its module; None: a linear.
        experts: 0 for a linear.
        index: of the random bits; that of the first expert.
        recipe: of the linear.
    """

    name: str
    module: nn.Module
    parameter: str | None
    experts: int
    index: int
    recipe: _tables.Recipe


def _block_of(name: str, lists: dict[str, int]) -> tuple[str, int] | None:
    """The outermost nn.ModuleList on the way to a module, and the index in it."""
    parts = name.split(".")
    for i, part in enumerate(parts):
        path = ".".join(parts[:i])
        if path in lists and part.isdigit():
            return path, int(part)
    return None


def _blocks(model: nn.Module, names: Iterable[str]) -> dict[str, Block]:
    """The block of each linear. Raises ValueError where it is not known."""
    lists = {n: len(m) for n, m in model.named_modules() if isinstance(m, nn.ModuleList)}
    places = {n: place for n in names if (place := _block_of(n, lists))}
    paths = sorted({path for path, _ in places.values()})
    if len(paths) != 1:
        where = (
            f"several nn.ModuleLists hold linears: {', '.join(paths)}"
            if paths
            else "no nn.ModuleList holds linears"
        )
        raise ValueError(
            f"first_blocks_bf16, last_blocks_bf16: the model's blocks are not known, as {where}; "
            "give 0 for both and name the layers in exclude"
        )
    return {n: Block(index, lists[paths[0]]) for n, (_, index) in places.items()}


def stacks(model: nn.Module, experts: Iterable[str] = EXPERTS) -> dict[str, tuple[nn.Module, str]]:
    """{name: (module, parameter)} of the stacked expert weights of a model.

    They are parameters of three dimensions in modules that are not torch's own, with two experts at
    least, where a glob of `experts` matches the parameter's name, its module's or the class's.
    """
    experts = tuple(experts)
    found = {}
    for path, module in model.named_modules(remove_duplicate=True):
        kind = type(module)
        if kind.__module__.startswith("torch.nn."):
            continue
        for name, parameter in module.named_parameters(recurse=False):
            whole = f"{path}.{name}" if path else name
            if parameter.dim() != 3 or min(parameter.shape) < 2:
                continue
            if any(_recipes.matches(n.lower(), experts) for n in (whole, kind.__name__)):
                found[whole] = (module, name)
    return found


def _listed(rules: Rules, first: Any, last: Any) -> Rules:
    if first is not None or last is not None:
        raise ValueError(
            "first_blocks_bf16, last_blocks_bf16: a list of rules says its blocks itself; write "
            '"blocks": {"first": ...} into a rule'
        )
    return rules


def _single(recipe: _tables.Recipe, include: tuple[str, ...], first: Any, last: Any) -> Rules:
    """One recipe as a list of rules."""
    own = recipe.resolved
    if not include:
        _recipes.check_own_choice(own)
        if own["layers"] == "mlp":
            include = _recipes.MLP
    first = own["first_blocks_bf16"] if first is None else first
    last = own["last_blocks_bf16"] if last is None else last
    plain = _tables.Recipe.named("bf16")
    rules = [Rule(include or ("*",), recipe, chooses=False)]
    if first or last:
        rules.insert(0, Rule(include or ("*",), plain, first, last))
    return Rules(tuple(rules), None, plain)


def plan(
    model: nn.Module,
    recipe: _tables.Recipe,
    *,
    include: Iterable[str] = (),
    exclude: Iterable[str] | None = None,
    experts: Iterable[str] = EXPERTS,
    first: Any = None,
    last: Any = None,
    converted: bool = False,
) -> list[Place]:
    """The linears and stacked weights that get a recipe, in the order of the model.

    converted: whether those that fp4lab.torch.convert has changed are among them.

    Raises:
        ValueError: if none does, if blocks are asked for and not known, or if the recipe selects
            layers by names of libfp4lab's own model.
    """
    include = tuple(include)
    rules = _recipes.rules_of(recipe)
    if rules is None:
        rules = _single(recipe, include, first, last)
        exclude = EXCLUDE if exclude is None else tuple(exclude)
    else:
        rules = _listed(rules, first, last)
        exclude = () if exclude is None else tuple(exclude)
    kinds = (nn.Linear, Linear) if converted else (nn.Linear,)
    linears = {n: m for n, m in model.named_modules() if type(m) in kinds}
    stacked = {
        n: (module, parameter)
        for n, (module, parameter) in stacks(model, experts).items()
        if converted or parameter not in getattr(module, "fp4lab_stacks", ())
    }
    names = [
        n
        for n in (*linears, *stacked)
        if (not include or _recipes.matches(n, include)) and not _recipes.matches(n, exclude)
    ]
    ruled = [n for n in names if any(_recipes.matches(n, r.patterns) for r in rules.rules)]
    blocks = _blocks(model, ruled) if rules.needs_blocks and ruled else {}
    places, index = [], 0
    for name in names:
        own = rules.recipe_of(name, blocks.get(name, OUTSIDE))
        if own is None:
            continue
        if name in linears:
            places.append(Place(name, linears[name], None, 0, index, own))
            index += 1
        else:
            module, parameter = stacked[name]
            count = getattr(module, parameter).shape[0]
            places.append(Place(name, module, parameter, count, index, own))
            index += count
    if not places:
        raise ValueError(
            f"no linear is selected; the model's nn.Linear modules: {', '.join(linears) or 'none'}"
            + (f"; its stacked weights: {', '.join(stacked)}" if stacked else "")
        )
    return places


def own_places(model: nn.Module) -> list[Place]:
    """The linears of a converted model, each with its own recipe."""
    from ._experts import Stacked

    places = [
        Place(n, m, None, 0, m.index, m.recipe)
        for n, m in model.named_modules()
        if isinstance(m, Linear)
    ]
    for path, module in model.named_modules():
        if isinstance(module, Stacked):
            for parameter, stack in module.fp4lab_stacks.items():
                whole = f"{path}.{parameter}" if path else parameter
                places.append(Place(whole, module, parameter, stack.experts, stack.index, stack.recipe))
    if not places:
        raise ValueError(
            "the model has no linear of fp4lab.torch: give a recipe, or convert the model first"
        )
    return places
