"""The arithmetic of the calling thread: IEEE 754's while this package computes.

A shared library that was built with `gcc -Ofast` makes the thread that loads it flush subnormal
numbers to zero, and so do torch.set_flush_denormal and others; fesetround changes the rounding. No
result here depends on that: `guard` makes every public function of a module compute in IEEE
arithmetic and restore the caller's state. A function of the caller's, such as the kernel that
fp4lab.testing judges, runs in the caller's state by `as_caller`.
"""

from __future__ import annotations

import functools
import inspect
import threading
import types
from collections.abc import Callable
from typing import Any, TypeVar

from . import _core

_Function = TypeVar("_Function", bound=Callable[..., Any])
_SPECIAL = ("__call__", "__repr__", "__str__")  # guarded methods with such names


class _Thread(threading.local):
    inside = False  # a guarded function, and none of the caller's within it
    before: Any = None  # the caller's state; None where it is IEEE's


_thread = _Thread()


def ieee(function: _Function) -> _Function:
    """The function, computing in IEEE arithmetic whatever the state of the calling thread."""
    thread, enter, leave = _thread, _core.enter_ieee, _core.leave_ieee

    def guarded(*arguments: Any, **options: Any) -> Any:
        if thread.inside:
            return function(*arguments, **options)
        thread.before = enter()
        thread.inside = True
        try:
            return function(*arguments, **options)
        finally:
            thread.inside = False
            leave(thread.before)

    # With the globals of the function: doctest and torch.library look names up there.
    made = types.FunctionType(
        guarded.__code__, function.__globals__, function.__name__, None, guarded.__closure__
    )
    return functools.update_wrapper(made, function)  # type: ignore[return-value]


def as_caller(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """function(*arguments, **options) in the state that the thread had outside of this package."""
    if not _thread.inside:
        return function(*arguments, **options)
    _core.leave_ieee(_thread.before)
    _thread.inside = False
    try:
        return function(*arguments, **options)
    finally:  # the function may have changed the state: that is what the caller gets back
        _thread.before = _core.enter_ieee()
        _thread.inside = True


def _guarded_member(member: Any) -> Any:
    if isinstance(member, (staticmethod, classmethod)):
        return type(member)(ieee(member.__func__))
    if isinstance(member, property):
        return property(ieee(member.fget), member.fset, member.fdel, member.__doc__)
    if isinstance(member, functools.cached_property):
        member.func = ieee(member.func)
        return member
    return ieee(member) if inspect.isfunction(member) else member


def guard_class(cls: type) -> type:
    """Makes the public methods and properties of a class compute in IEEE arithmetic."""
    for name, member in list(vars(cls).items()):
        if not name.startswith("_") or name in _SPECIAL:
            guarded = _guarded_member(member)
            if guarded is not member:
                setattr(cls, name, guarded)
    return cls


def guard(module: dict[str, Any]) -> None:
    """Makes the public functions and classes that a module defines compute in IEEE arithmetic; the
    last line of a module is guard(globals())."""
    for name, value in list(module.items()):
        if name.startswith("_") or getattr(value, "__module__", None) != module["__name__"]:
            continue
        if inspect.isfunction(value):
            module[name] = ieee(value)
        elif inspect.isclass(value):
            guard_class(value)
