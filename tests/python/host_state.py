"""Floating-point states that a host program may have, by glibc's fenv_t: x86-64 and no compiler."""

import contextlib
import ctypes
import ctypes.util
import platform

_libm = ctypes.CDLL(ctypes.util.find_library("m") or "libm.so.6")
HERE = platform.machine() == "x86_64"
_SIZE, _CONTROL, _MXCSR = 32, 0, 28  # of fenv_t, and where the x87 control word and MXCSR are in it
_FLAGS = 0x3F

# name -> (bits of MXCSR, bits of the x87 control word) beside those of IEEE arithmetic; fesetround
# sets both.
STATES = {
    "FTZ": (0x8000, 0),
    "DAZ": (0x0040, 0),
    "FTZ and DAZ": (0x8040, 0),
    "down": (0x2000, 0x0400),
    "up": (0x4000, 0x0800),
    "toward zero": (0x6000, 0x0C00),
}


def _environment():
    memory = ctypes.create_string_buffer(_SIZE)
    _libm.fegetenv(memory)
    return memory


def current():
    """(MXCSR without flags, the x87 control word) of this thread."""
    memory = bytes(_environment())
    return (
        int.from_bytes(memory[_MXCSR:], "little") & ~_FLAGS,
        int.from_bytes(memory[_CONTROL : _CONTROL + 2], "little"),
    )


def write(name):
    """Sets a state of STATES."""
    vector, scalar = STATES[name]
    memory = _environment()
    memory[_MXCSR:] = (0x1F80 | vector).to_bytes(4, "little")
    memory[_CONTROL : _CONTROL + 2] = (0x037F | scalar).to_bytes(2, "little")
    _libm.fesetenv(memory)


@contextlib.contextmanager
def state(name):
    """A context with a state of STATES; afterwards the thread has the state of before."""
    before = _environment()
    write(name)
    try:
        yield
    finally:
        _libm.fesetenv(before)


def under(name, function):
    """(the function's value or exception, the state that the thread had afterwards)."""
    with state(name):
        try:
            value = function()
        except Exception as error:
            value = error
        after = current()
    return value, after


def expected(name):
    vector, scalar = STATES[name]
    return 0x1F80 | vector, 0x037F | scalar
