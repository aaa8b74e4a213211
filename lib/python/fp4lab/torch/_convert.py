"""convert: the linears of a model under a recipe."""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn

from .. import _ieee
from . import _experts, _plan, _recipes
from ._linear import Linear
from ._recipes import RecipeLike


@_ieee.ieee
def convert(
    model: nn.Module,
    recipe: RecipeLike = "te_nvfp4",
    *,
    include: Iterable[str] = (),
    exclude: Iterable[str] | None = None,
    experts: Iterable[str] = _plan.EXPERTS,
    first_blocks_bf16: int | str | None = None,
    last_blocks_bf16: int | str | None = None,
    seed: int = 0,
    total_steps: int | None = None,
) -> nn.Module:
    """Makes the linears of a model those of a recipe, in place.

    Each nn.Linear becomes an fp4lab.torch.Linear. Stacked expert weights, parameters (experts, out,
    in) or (experts, in, out), keep their module's code: its grouped_mm, bmm, matmul and linear with
    them become a linear of the recipe for each expert, with an amax of its own. Rows of zeros pad
    an expert's tokens to the groups of a transform.

    Modules and parameters stay the same objects: optimizers, hooks and tied weights go on.

    Args:
        model: any module on the CPU. Subclasses of nn.Linear are left alone, and so is
            nn.MultiheadAttention, which multiplies by its parameters itself.
        recipe: a name of fp4lab.recipes(), an fp4lab.Recipe, or a recipe of one's own: a dict as
            studies have it, or the path of a .json file with one. Or a list of rules {"linears",
            "blocks", "steps", "recipe"} ("pattern" is taken for "linears"), whose first that holds
            gives a linear its recipe; what none is for is left alone. A dict {"rules", "rest"}
            gives those linears the recipe "rest". Patterns are globs, as in `include`; "blocks" and
            "steps" mean what they mean in a study.
        include, exclude: globs over the names of model.named_modules(), or of named_parameters() for
            stacked weights, or over their ends behind a dot. A linear is converted if one of
            `include` matches (or it is empty) and none of `exclude`; all others compute as before.
            exclude None: lm_head, router and what is in it; nothing for a list of rules.
        experts: globs over names of stacked parameters, or of their module's class, in small
            letters. Other parameters of three dimensions are no weights of linears.
        first_blocks_bf16, last_blocks_bf16: blocks whose linears round their operands to BF16 and
            no further (recipe "bf16"): a number, or "15%" of the blocks, rounded up. None: the
            recipe's. Blocks are the elements of the outermost nn.ModuleList.
        seed: of all random bits; each linear and each expert has its own, by its place in the model.
        total_steps: the steps of the run, for recipes that change during it.

    Returns:
        The model.

    Raises:
        ValueError: if no linear is selected, if the blocks are not known, or if the recipe selects
            layers by names of libfp4lab's own model and `include` does not say which they are here.
            While the model runs: where a stacked weight is multiplied in a way that is not known.
        fp4lab.Error: as Linear; for delayed scaling of stacked weights.

    >>> import torch, fp4lab.torch
    >>> model = torch.nn.ModuleDict({"attention": torch.nn.Linear(64, 64), "mlp": torch.nn.Linear(64, 64)})
    >>> fp4lab.torch.convert(model, [{"linears": "attention", "recipe": "te_mxfp8"},
    ...                              {"linears": "mlp", "recipe": {"base": "te_nvfp4", "disable_rht": True}}])
    ModuleDict(
      (attention): Linear(in_features=64, out_features=64, bias=True, recipe=te_mxfp8)
      (mlp): Linear(in_features=64, out_features=64, bias=True, recipe=te_nvfp4)
    )
    """
    places = _plan.plan(
        model,
        _recipes.as_recipe(recipe),
        include=include,
        exclude=exclude,
        experts=experts,
        first=first_blocks_bf16,
        last=last_blocks_bf16,
    )
    options = dict(seed=seed, total_steps=total_steps)
    made = []
    for place in places:  # raises before any change
        if place.parameter is None:
            Linear(1, 1, recipe=place.recipe, device="meta", **options)
            made.append(None)
        else:
            shape = getattr(place.module, place.parameter).shape
            made.append(_experts.Stack.of(place.recipe, shape, index=place.index, name=place.name, **options))
    for place, stack in zip(places, made):
        if stack is None:
            Linear.adopt(place.module, recipe=place.recipe, index=place.index, **options)
        else:
            _experts.adopt(place.module, place.parameter, stack)
    for module in model.modules():
        if isinstance(module, nn.TransformerEncoderLayer):
            module.activation_relu_or_gelu = 0  # its fused inference reads weights past its linears
    return model
