"""The tables of the library: formats, dialects, accumulations, recipes."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any, TypeAlias

from . import _core, _ieee


@dataclass(frozen=True)
class Format:
    """A number format.

    Attributes:
        name: the name in ml_dtypes, or one in its style: "float4_e2m1fn".
        short_name: "e2m1"; accepted wherever a format is asked for.
        bits, exponent_bits, mantissa_bits: widths; `signed` adds one bit.
        bias: of the exponent.
        max, max_code: the largest finite value and its code.
        min_normal, min_subnormal: the smallest positive values; None without subnormals.
        inf_codes, nan_codes: ascending; empty for formats without them.
    """

    name: str
    short_name: str
    bits: int
    signed: bool
    exponent_bits: int
    mantissa_bits: int
    bias: int
    max: float
    max_code: int
    min_normal: float
    min_subnormal: float | None
    inf_codes: tuple[int, ...]
    nan_codes: tuple[int, ...]

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Dialect:
    """One published way to quantize a tensor: a row of the table.

    Attributes:
        name: "nvfp4.te"; functions take this name.
        version, source: the code base with its commit or release, and the function in it.
        note: remarks; may be empty.
        element, scale: formats of elements and block scales, by name.
        block: (rows, columns) of a block; (0, 0): one block, the tensor.
        scale_max: the largest block scale that the tensor scale aims at.
        tensor_scale: whether there is a scale above the block scales.
        constant: C; the tensor scale maps an amax of C to 1 (0 without a tensor scale).
        row_scaled: whether each row has a tensor scale of its own.
        approximate: whether a set of answers is right (kernels that divide approximately).
        stochastic: whether elements are rounded stochastically, with `random_bits` each.
        takes_random_bits: `stochastic`, or scales that take random bits.
        stages: the exact formula of each stage, by the stage's name.
        formula: the fields that spell the dialect out, as `dialect` takes them:
            {**d.formula, "scale_encoding": "up"} is a formula of your own.
    """

    name: str
    version: str
    source: str
    note: str
    element: str
    scale: str
    element_bits: int
    block: tuple[int, int]
    scale_max: float
    tensor_scale: bool
    constant: float
    row_scaled: bool
    approximate: bool
    stochastic: bool
    random_bits: int
    takes_random_bits: bool
    stages: dict[str, str] = field(hash=False, compare=False)
    formula: dict[str, Any] = field(hash=False, compare=False)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Accumulation:
    """A way in which a product sums: a name for scaled_mm, its meaning and its evidence."""

    name: str
    what: str
    evidence: str

    def __str__(self) -> str:
        return self.name


DialectLike: TypeAlias = "str | os.PathLike[str] | Mapping[str, Any] | Dialect"
"""What stands for a dialect: its name, FILE.json, a dict that spells it out, a Dialect."""


@lru_cache(maxsize=None)
def _formats() -> tuple[Format, ...]:
    rows = json.loads(_core.formats())
    codes = ("inf_codes", "nan_codes")
    return tuple(Format(**{**row, **{key: tuple(row[key]) for key in codes}}) for row in rows)


def _row(row: dict[str, Any]) -> Dialect:
    known = {f.name: row[f.name] for f in fields(Dialect)}
    return Dialect(**{**known, "block": tuple(row["block"])})


@lru_cache(maxsize=None)
def _dialects() -> dict[str, Dialect]:
    return {row["name"]: _row(row) for row in json.loads(_core.dialects())}


@lru_cache(maxsize=256)
def _own_dialect(name: str) -> Dialect:
    return _row(json.loads(_core.dialect_row(name)))


@lru_cache(maxsize=None)
def _accumulations() -> tuple[Accumulation, ...]:
    return tuple(Accumulation(**row) for row in json.loads(_core.accumulations()))


def formats() -> list[Format]:
    """All number formats.

    >>> import fp4lab
    >>> next(f for f in fp4lab.formats() if f.name == "float4_e2m1fn").max
    6.0
    """
    return list(_formats())


def dialects() -> list[Dialect]:
    """All dialects, in the order of the command `fp4lab dialects`.

    >>> import fp4lab
    >>> [d.name for d in fp4lab.dialects() if d.name.startswith("mxfp4.")][:3]
    ['mxfp4.floor', 'mxfp4.ceil', 'mxfp4.rceil']
    """
    return list(_dialects().values())


def dialect(name: DialectLike) -> Dialect:
    """The dialect of a name or an alias, or one that is spelled out.

    Args:
        name: a name of dialects(); or a formula of your own: a dict, or the path of a .json file,
            with "base", the name of a row, and the fields that differ from it, or with all fields
            (`Dialect.formula` has them).

    Raises:
        fp4lab.Error: for an unknown name, with names that are near; for fields that are unknown,
            missing or contradict each other.
        TypeError: for a dict that JSON cannot hold.

    >>> import fp4lab
    >>> fp4lab.dialect("nvfp4.te").block
    (1, 16)
    >>> fp4lab.dialect({"base": "nvfp4.te", "scale_encoding": "up"}).name
    '{"base":"nvfp4.te","scale_encoding":"up"}'
    >>> fp4lab.dialect(fp4lab.dialect("nvfp4.te").formula).name
    'nvfp4.te'
    """
    if isinstance(name, Mapping):
        try:
            name = json.dumps(dict(name))
        except (TypeError, ValueError) as error:
            raise TypeError(f"dialect: the dict is no JSON: {error}") from None
    found = _core.find_dialect(str(name))
    return _dialects().get(found) or _own_dialect(found)


def accumulations() -> list[Accumulation]:
    """All accumulations that scaled_mm takes: binary32 in several orders, the exact sum, and the
    models of tensor cores.

    >>> import fp4lab
    >>> fp4lab.accumulations()[0].name
    'fp32-blocks'
    """
    return list(_accumulations())


def recipes() -> list[str]:
    """The names of all training recipes: MaxText's and Transformer Engine's, then published ones.

    >>> import fp4lab
    >>> "te_nvfp4" in fp4lab.recipes()
    True
    """
    return _core.recipes()


@dataclass(frozen=True)
class Recipe:
    """A training recipe: which dialect each operand of each linear takes.

    Attributes:
        json: the text that an arm of a study file may have as its "recipe".
        resolved: the recipe with every default applied: for each of "fprop", "dgrad" and "wgrad"
            the formats, roundings and transforms of both operands.
    """

    json: str
    resolved: dict[str, Any] = field(hash=False, compare=False)

    @staticmethod
    def named(name: str, **switches: Any) -> Recipe:
        """The recipe of a name, with switches of study files.

        Args:
            name: one of recipes().
            **switches: disable_rht, disable_stochastic_rounding, disable_2d_quantization,
                forward_only, layers, first_blocks_bf16, accumulation ...: the keys of a recipe in a
                study file.

        Raises:
            fp4lab.Error: for an unknown name or switch, with names that are near.

        >>> import fp4lab
        >>> recipe = fp4lab.Recipe.named("te_nvfp4", disable_rht=True)
        >>> recipe.resolved["wgrad"]["input"]["hadamard"]
        0
        """
        return Recipe.from_json({"base": name, **switches})

    @staticmethod
    def from_json(value: Any) -> Recipe:
        """The recipe of a JSON value or text, as study files have it."""
        text = value if isinstance(value, str) else json.dumps(value)
        return Recipe(json=text, resolved=json.loads(_core.recipe(text)))


_ieee.guard(globals())
