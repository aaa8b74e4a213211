"""Plain arguments of the package's functions: integers, switches, names and callables.

Each is checked, and refused with one line that names the argument. numpy is not imported here.
"""

from __future__ import annotations

import difflib
import operator
from collections.abc import Iterable
from typing import Any

from . import _core

MOST_THREADS = 1024
TE_SIGN_MASK = 0xD7E8
"""Transformer Engine's fixed signs: bit i set means that element i of 16 is negated."""


def is_bool(value: Any) -> bool:
    return isinstance(value, bool) or type(value).__name__ in ("bool_", "bool")


def _shown(value: Any) -> str:
    text = repr(value).replace("\n", " ")
    return text if len(text) <= 60 else text[:57] + "..."


def integer(value: Any, name: str, low: int, high: int) -> int:
    """An int of low..high: a Python or numpy integer.

    Raises TypeError for other types (1.0, "5", True), fp4lab.Error for a number outside.
    """
    if is_bool(value) or str(getattr(value, "dtype", "")).endswith("bool"):
        raise TypeError(f"{name} is {_shown(value)}: an integer is taken, not a bool")
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is {_shown(value)}: an integer is taken, no {type(value).__name__}") from None
    if not low <= number <= high:
        raise _core.Error(f"{name}: {number} is not in {low}..{_power(high)}")
    return number


def _power(high: int) -> str:
    """2^n - 1 in that form from 2^16 on."""
    bits = (high + 1).bit_length() - 1
    return f"2^{bits} - 1" if high >= 0xFFFF and high + 1 == 1 << bits else str(high)


def flag(value: Any, name: str) -> bool:
    """A bool of Python or numpy. Raises TypeError for other types."""
    if not is_bool(value):
        raise TypeError(f"{name} is {_shown(value)}: True or False is taken")
    return bool(value)


def probability(value: Any, name: str) -> float:
    """A float with 0 < value < 1. Raises TypeError for other types, fp4lab.Error for numbers outside."""
    number = real(value, name)
    if not 0 < number < 1:
        raise _core.Error(f"{name}: {number!r} is not between 0 and 1")
    return number


def real(value: Any, name: str) -> float:
    """A number as a float. Raises TypeError for text, bools and arrays of several numbers."""
    if not is_bool(value) and not isinstance(value, (str, bytes)):
        try:
            return float(value)
        except OverflowError:
            raise _core.Error(f"{name}: {_shown(value)} is beyond every float") from None
        except (TypeError, ValueError):
            pass
    raise TypeError(f"{name} is {_shown(value)}: a number is taken, no {type(value).__name__}")


def text(value: Any, name: str) -> str:
    """A str. Raises TypeError for other types."""
    if not isinstance(value, str):
        raise TypeError(f"{name} is {_shown(value)}: a name is taken, no {type(value).__name__}")
    return value


def one_of(value: Any, name: str, names: Iterable[str]) -> str:
    """A str of `names`. Raises fp4lab.Error for others, with the nearest name or all of them."""
    names = list(names)
    if text(value, name) in names:
        return value
    raise _core.Error(f'{name}: "{value}" is not one of: {", ".join(names)}{did_you_mean(value, names)}')


def did_you_mean(value: str, names: Iterable[str]) -> str:
    """'; did you mean "x"?' for a name that is near one of `names`, else ''."""
    near = difflib.get_close_matches(value, list(names), n=1)
    return f'; did you mean "{near[0]}"?' if near else ""


def name_list(value: Any, name: str) -> list[str]:
    """Names as a list: of none (None), a name alone, or several. Objects with a name (a Dialect) count as theirs."""
    if value is None:
        return []
    if isinstance(value, str) or not isinstance(value, Iterable):
        value = (value,)
    return [str(v) for v in value]


def callable_(fn: Any, form: str) -> Any:
    """A callable. Raises TypeError for others, with the form in which it is called."""
    if not callable(fn):
        raise TypeError(f"fn is {_shown(fn)}: a kernel is a callable, called as {form}")
    return fn


def threads(value: int | None) -> int:
    """The number of threads as the library takes it: 0 for None."""
    return 0 if value is None else integer(value, "threads", 1, MOST_THREADS)


def seed(value: Any, name: str = "seed") -> int:
    return integer(value, name, 0, 2**64 - 1)


def hadamard(rht: Any, sign_mask: Any, sizes: tuple[int, ...] | None = None) -> tuple[int, int]:
    """(size or 0, signs) of the random Hadamard transform.

    Args:
        rht: False, True (16) or a size.
        sign_mask: 32 bits; or "te", "none" or "0xD7E8", as the program's --signs has them.
        sizes: the sizes that the caller takes; None: the library says.

    Raises:
        fp4lab.Error: for another size, and for signs without a transform.
    """
    size = (16 if rht else 0) if is_bool(rht) else integer(rht, "rht", 0, 128)
    mask = integer(_signs(sign_mask), "sign_mask", 0, 2**32 - 1)
    if size and sizes is not None and size not in sizes:
        names = ", ".join(map(str, sizes))
        raise _core.Error(f"rht: {size} is not one of: {names} (the sizes of a kernel's transform)")
    if not size and mask != TE_SIGN_MASK:
        raise _core.Error("sign_mask: there is no transform to sign; give rht, or leave out sign_mask")
    return size, mask


def _signs(sign_mask: Any) -> Any:
    if not isinstance(sign_mask, str):
        return sign_mask
    if sign_mask in ("te", "none"):
        return TE_SIGN_MASK if sign_mask == "te" else 0
    try:
        return int(sign_mask, 16)
    except ValueError:
        raise _core.Error(f'sign_mask: "{sign_mask}" is no mask: te, none, or bits as in 0xD7E8') from None


_STOCHASTIC = {4: "stochastic_4", 8: "stochastic_8", 16: "stochastic_16", 32: "stochastic_32"}
_OWN_BITS = 16


def rounding_label(rounding: str | None, random_bits: int = _OWN_BITS) -> str:
    """The library's label of a rounding; "" for the dialect's own.

    Raises fp4lab.Error for random bits that no rounding takes.
    """
    bits = integer(random_bits, "random_bits", 0, 2**31 - 1)
    if bits not in _STOCHASTIC:
        raise _core.Error(f"random_bits: {bits} is not one of: 4, 8, 16, 32")
    if rounding == "stochastic":
        return _STOCHASTIC[bits]
    if bits != _OWN_BITS:
        raise _core.Error('random_bits: only rounding="stochastic" takes it; leave it out')
    return "" if rounding in (None, "nearest", "own") else text(rounding, "rounding")
