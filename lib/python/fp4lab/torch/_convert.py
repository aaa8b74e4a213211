"""convert: the linears of a model under a recipe."""

from __future__ import annotations

import math
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any

from torch import nn

from .. import _ieee, _tables
from ._linear import Linear, as_recipe

# The linears that recipes with `layers: "mlp"` select, by the usual names of their modules.
_MLP = ("*mlp*", "*feed_forward*", "*feedforward*", "*ffn*")


def _matches(name: str, patterns: Iterable[str]) -> bool:
    """Whether a pattern matches the whole name or its end behind a dot."""
    return any(fnmatchcase(name, p) or fnmatchcase(name, "*." + p) for p in patterns)


def _block_of(name: str, lists: dict[str, int]) -> tuple[str, int] | None:
    """The outermost nn.ModuleList on the way to a module, and the index in it."""
    parts = name.split(".")
    for i, part in enumerate(parts):
        path = ".".join(parts[:i])
        if path in lists and part.isdigit():
            return path, int(part)
    return None


def _blocks_of(count: Any, blocks: int) -> int:
    """A number of blocks, or a share of them such as "15%", rounded up."""
    if isinstance(count, str) and count.endswith("%"):
        return math.ceil(float(count[:-1]) / 100 * blocks)
    return int(count)


def _first_and_last(model: nn.Module, names: Iterable[str], first: Any, last: Any) -> set[str]:
    """Those of the named linears that lie in the first or the last blocks."""
    if not first and not last:
        return set()
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
    blocks = lists[paths[0]]
    begin, end = _blocks_of(first, blocks), blocks - _blocks_of(last, blocks)
    return {n for n, (_, block) in places.items() if not begin <= block < end}


@_ieee.ieee
def convert(
    model: nn.Module,
    recipe: str | _tables.Recipe = "te_nvfp4",
    *,
    include: Iterable[str] = (),
    exclude: Iterable[str] = ("lm_head",),
    first_blocks_bf16: int | str | None = None,
    last_blocks_bf16: int | str | None = None,
    seed: int = 0,
    total_steps: int | None = None,
) -> nn.Module:
    """Makes each nn.Linear of a model an fp4lab.torch.Linear, in place.

    Modules and parameters stay the same objects: optimizers, hooks and tied weights go on.

    Args:
        model: any module on the CPU. Subclasses of nn.Linear are left alone, and so is
            nn.MultiheadAttention, which multiplies by its parameters itself.
        recipe: a name of fp4lab.recipes(), or an fp4lab.Recipe.
        include, exclude: globs over the names of model.named_modules(), or over their ends behind a
            dot. A linear is converted if one of `include` matches (or it is empty) and none of
            `exclude`; all others compute as before.
        first_blocks_bf16, last_blocks_bf16: blocks whose linears round their operands to BF16 and
            no further (recipe "bf16"): a number, or "15%" of the blocks, rounded up. None: the
            recipe's. Blocks are the elements of the outermost nn.ModuleList.
        seed: of all random bits; each linear has its own, by its place in the model.
        total_steps: the steps of the run, for recipes that change during it.

    Returns:
        The model.

    Raises:
        ValueError: if no linear is selected, if the blocks are not known, or if the recipe selects
            layers by names of libfp4lab's own model and `include` does not say which they are here.
        fp4lab.Error: as Linear.
    """
    recipe = as_recipe(recipe)
    resolved = recipe.resolved
    if "rules" in resolved:
        raise ValueError(
            f"recipe {resolved.get('name', 'rules')} is a list of rules by libfp4lab's names: call "
            "convert once for the recipe of each rule, with the layers of this model in include"
        )
    include, exclude = tuple(include), tuple(exclude)
    if not include:
        if resolved["include"] or resolved["exclude"]:
            names = ", ".join([*resolved["include"], *("not " + e for e in resolved["exclude"])])
            raise ValueError(
                f"recipe {resolved['base']} selects layers by libfp4lab's names ({names}): say by "
                "include which layers of this model they are"
            )
        if resolved["layers"] == "mlp":
            include = _MLP
    first = resolved["first_blocks_bf16"] if first_blocks_bf16 is None else first_blocks_bf16
    last = resolved["last_blocks_bf16"] if last_blocks_bf16 is None else last_blocks_bf16
    linears = {n: m for n, m in model.named_modules() if type(m) is nn.Linear}
    chosen = [
        n for n in linears if (not include or _matches(n, include)) and not _matches(n, exclude)
    ]
    if not chosen:
        raise ValueError(
            f"no linear is selected; the model's nn.Linear modules: {', '.join(linears) or 'none'}"
        )
    bf16 = _first_and_last(model, chosen, first, last)
    options = dict(seed=seed, total_steps=total_steps)
    Linear(1, 1, recipe=recipe, device="meta", **options)  # raises before any change
    for index, name in enumerate(chosen):
        own = "bf16" if name in bf16 else recipe
        Linear.adopt(linears[name], recipe=own, index=index, **options)
    for module in model.modules():
        if isinstance(module, nn.TransformerEncoderLayer):
            module.activation_relu_or_gelu = 0  # its fused inference reads weights past its linears
    return model
