"""Recipes of one's own: a name, a dict, a JSON file or a list of rules."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

from .. import _core, _tables
from .._arguments import did_you_mean

RecipeLike: TypeAlias = (
    "str | os.PathLike[str] | Mapping[str, Any] | Sequence[Mapping[str, Any]] | _tables.Recipe"
)

# The linears that recipes with `layers: "mlp"` select, by the usual names of their modules.
MLP = ("*mlp*", "*feed_forward*", "*feedforward*", "*ffn*")
_KEYS = ("linears", "blocks", "steps", "recipe")  # of a rule


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Whether a pattern matches the whole name or its end behind a dot."""
    return any(fnmatchcase(name, p) or fnmatchcase(name, "*." + p) for p in patterns)


def _from_file(path: str) -> _tables.Recipe:
    try:
        with open(path, encoding="utf-8") as file:
            value = json.load(file)
    except json.JSONDecodeError as error:
        raise _core.Error(f"{path}: is no JSON: {error}") from None
    except OSError as error:
        raise _core.Error(f"{path}: {error.strerror}; recipe names a file of JSON, or is a name") from None
    try:
        return as_recipe(value)
    except _core.Error as error:
        raise _core.Error(f"{path}: {error}") from None


def as_recipe(recipe: RecipeLike) -> _tables.Recipe:
    """The recipe of a name, a file FILE.json, a dict, a list of rules, or a Recipe."""
    if isinstance(recipe, _tables.Recipe):
        return recipe
    if isinstance(recipe, os.PathLike) or (isinstance(recipe, str) and recipe.endswith(".json")):
        return _from_file(os.fspath(recipe))
    if isinstance(recipe, str):
        return _tables.Recipe.named(recipe)
    if isinstance(recipe, Mapping):
        return _tables.Recipe.from_json(dict(recipe))
    if isinstance(recipe, Sequence) and not isinstance(recipe, (bytes, bytearray)):
        return _bare_list(recipe)
    raise TypeError(
        f"recipe is {type(recipe).__name__}: a name of fp4lab.recipes(), a dict, a list of rules, a "
        "path of JSON or a Recipe is needed"
    )


def _bare_list(rules: Sequence[Any]) -> _tables.Recipe:
    written = []
    for i, rule in enumerate(rules):
        if not isinstance(rule, Mapping):
            raise TypeError(f'recipe[{i}] is {type(rule).__name__}: a rule is a dict, as {{"linears": "mlp.*", '
                            '"recipe": "te_nvfp4"}')  # fmt: skip
        rule = dict(rule)
        if "pattern" in rule:  # what other programs call it
            if "linears" in rule:
                raise _core.Error(f"recipe[{i}]: linears and pattern are one thing; give linears")
            rule["linears"] = rule.pop("pattern")
        for key in rule:
            if key not in _KEYS:
                raise _core.Error(f'recipe[{i}]: "{key}" is no key of a rule; {did_you_mean(key, _KEYS)}')
        if "recipe" not in rule:
            raise _core.Error(f"recipe[{i}]: has no recipe; give a name of fp4lab.recipes() or a dict")
        own = rule["recipe"]
        if isinstance(own, (_tables.Recipe, os.PathLike)) or str(own).endswith(".json"):
            rule["recipe"] = json.loads(as_recipe(own).json)
        written.append(rule)
    if not written:
        raise _core.Error("recipe: the list has no rule; give one at least")
    first = as_recipe(written[0]["recipe"]).resolved
    return _tables.Recipe.from_json({"rules": written, "rest": plain_name(first), "name": _BARE})


_BARE = "rules of linears"  # the name of a list that says nothing about the other linears


def plain_name(resolved: Mapping[str, Any]) -> str:
    """The recipe of operands that are not quantized, of the type that a recipe trains in."""
    rest = resolved.get("rest", resolved)
    return "fp32" if rest.get("training_dtype") == "fp32" else "bf16"


def name_of(resolved: Mapping[str, Any]) -> str:
    """How repr calls a recipe."""
    return str(resolved.get("base") or resolved.get("name") or "rules")


def phases(resolved: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """A linear's recipe and those that it changes to."""
    if "rules" in resolved:
        parts = [rule["recipe"] for rule in resolved["rules"]] + [resolved["rest"]]
        return [phase for part in parts for phase in phases(part)]
    return [resolved] + (phases(resolved["then"]["recipe"]) if "then" in resolved else [])


def groups(resolved: Mapping[str, Any]) -> dict[str, int]:
    """{product: what its reduction axis must be a multiple of, for the Hadamard transform}."""
    sizes = {"fprop": 1, "dgrad": 1, "wgrad": 1}
    for phase in phases(resolved):
        for product in sizes:
            for operand in phase[product].values():
                if isinstance(operand, dict) and operand.get("hadamard"):
                    h = operand["hadamard"]
                    sizes[product] = math.lcm(
                        sizes[product], h["size"] if isinstance(h, dict) else h
                    )
    return sizes


def blocks_of(count: Any, blocks: int) -> int:
    """A number of blocks, or a share of them such as "15%", rounded up."""
    if isinstance(count, str) and count.endswith("%"):
        return math.ceil(float(count[:-1]) / 100 * blocks)
    return int(count)


@dataclass(frozen=True)
class Block:
    """The block of a linear: its index, and how many there are. index -1: outside of blocks."""

    index: int
    count: int


@dataclass(frozen=True)
class Rule:
    """A rule of a list, or a recipe as the one rule of a list.

    Attributes:
        first, last: the blocks that the rule is for; both 0: all.
        begin, end: the shares of the run that the rule is for, [begin, end).
        chooses: whether the recipe's own choice of linears counts.
    """

    patterns: tuple[str, ...]
    recipe: _tables.Recipe
    first: Any = 0
    last: Any = 0
    begin: float = 0.0
    end: float = 1.0
    chooses: bool = True

    @property
    def needs_blocks(self) -> bool:
        own = self.recipe.resolved
        kept = self.chooses and (own["first_blocks_bf16"] or own["last_blocks_bf16"])
        return bool(self.first or self.last or kept)

    def holds(self, name: str, block: Block) -> bool:
        if not matches(name, self.patterns):
            return False
        if not self.first and not self.last:
            return True
        first, last = blocks_of(self.first, block.count), blocks_of(self.last, block.count)
        return block.index >= 0 and not first <= block.index < block.count - last

    def recipe_of(self, name: str, block: Block) -> _tables.Recipe:
        """The rule's recipe, by its own choice of linears: or what that leaves to BF16."""
        own = self.recipe.resolved
        if not self.chooses:
            return self.recipe
        selected = own["layers"] != "mlp" or matches(name, MLP)
        first, last = own["first_blocks_bf16"], own["last_blocks_bf16"]
        if (first or last) and block.index >= 0:
            kept = blocks_of(first, block.count), blocks_of(last, block.count)
            selected = selected and kept[0] <= block.index < block.count - kept[1]
        return self.recipe if selected else _tables.Recipe.named(plain_name(own))


@dataclass(frozen=True)
class Rules:
    """A list of rules over the names of a model's own linears.

    Attributes:
        rules: the first that holds gives a linear its recipe.
        rest: of linears that no rule is for; None: they are left alone.
        plain: the recipe of a linear at steps that no rule is for.
    """

    rules: tuple[Rule, ...]
    rest: _tables.Recipe | None
    plain: _tables.Recipe = field(default_factory=lambda: _tables.Recipe.named("bf16"))

    @property
    def needs_blocks(self) -> bool:
        return any(rule.needs_blocks for rule in self.rules)

    def recipe_of(self, name: str, block: Block) -> _tables.Recipe | None:
        """The recipe of a linear; None: it is left alone."""
        held = [r for r in self.rules if r.holds(name, block)]
        for i, rule in enumerate(held):
            if (rule.begin, rule.end) == (0.0, 1.0):
                held = held[: i + 1]  # later rules never hold
                break
        if not held:
            return self.rest
        if (held[0].begin, held[0].end) == (0.0, 1.0):
            return held[0].recipe_of(name, block)
        rules = [
            {
                "linears": "*",
                "steps": {"from": rule.begin, "to": rule.end},
                "recipe": json.loads(rule.recipe_of(name, block).json),
            }
            for rule in held
        ]
        rest = json.loads((self.rest or self.plain).json)
        return _tables.Recipe.from_json({"rules": rules, "rest": rest})


def _is_own(recipe: _tables.Recipe) -> bool:
    """Whether a list was written by its user: a published one has libfp4lab's names."""
    value = json.loads(recipe.json)
    return isinstance(value, dict) and "rules" in value


def check_own_choice(resolved: Mapping[str, Any]) -> None:
    """Raises ValueError for a recipe that selects linears by the names of libfp4lab's own model."""
    if resolved["include"] or resolved["exclude"]:
        names = ", ".join([*resolved["include"], *("not " + e for e in resolved["exclude"])])
        raise ValueError(
            f"recipe {resolved['base']} selects layers by libfp4lab's names ({names}): say by "
            "include which layers of this model they are"
        )


def rules_of(recipe: _tables.Recipe) -> Rules | None:
    """The rules of a list; None for one recipe. Raises ValueError for a list of published names."""
    resolved = recipe.resolved
    if "rules" not in resolved:
        return None
    name = name_of(resolved)
    if not _is_own(recipe):
        raise ValueError(
            f"recipe {name} is a list of rules by libfp4lab's names: give convert a list with the names "
            'of this model, as [{"linears": "*.mlp.*", "recipe": "te_nvfp4"}, ...]'
        )
    rules = []
    for rule in resolved["rules"]:
        check_own_choice(rule["recipe"])
        blocks, steps = rule.get("blocks", {}), rule.get("steps", {})
        rules.append(
            Rule(
                tuple(rule["linears"]),
                _tables.Recipe.from_json(rule["recipe"]),
                blocks.get("first", 0),
                blocks.get("last", 0),
                steps.get("from", 0.0),
                steps.get("to", 1.0),
            )
        )
    rest = None if name == _BARE else _tables.Recipe.from_json(resolved["rest"])
    return Rules(tuple(rules), rest, _tables.Recipe.named(plain_name(resolved)))
