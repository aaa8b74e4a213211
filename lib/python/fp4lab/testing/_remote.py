"""A kernel in a process of its own, called with arrays, and what it may not do there."""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from .. import _core
from .._arguments import text
from ._watch import Mutated

_GUARD = 4096  # bytes before, between and after the arrays, which a kernel may not write
_MOST_BYTES = 1 << 28  # of an answer
_MOST_ENDS = 3  # ends of the process, after which the kernel is not started again
_PACKAGE = Path(__file__).resolve().parent.parent
_TYPES = ("uint8", "int8", "uint16", "uint32", "float32", "float64")


class KernelFailed(Exception):
    """The kernel raised, ended its process, took too long, or returned no answer."""


def kernel_place(kernel: Any) -> tuple[str, str]:
    """(file or module, function) of "kernel.py:quantize" or "package.kernel:quantize"."""
    if callable(kernel):
        raise TypeError(
            "kernel is a callable, which this process has imported: name it, as in 'kernel.py:quantize'"
        )
    place = text(kernel, "kernel")
    module, colon, name = place.rpartition(":")
    if not colon or not module or not name.isidentifier():
        raise ValueError(f"kernel {place!r}: name a file or module and its function, as in 'kernel.py:quantize'")
    if module.endswith(".py"):
        if not os.path.isfile(module):
            raise _core.Error(f"kernel: there is no file {module!r}")
        module = os.path.realpath(module)
    return module, name


def _shared_file(size: int) -> Any:
    """A file without a name; the kernel cannot shorten it under the judge, where the system knows seals."""
    if not hasattr(os, "memfd_create"):
        file: Any = tempfile.TemporaryFile()
        file.truncate(size)
        return file
    file = os.fdopen(os.memfd_create("fp4lab", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING), "r+b")
    file.truncate(size)
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    return file


class Remote:
    """A kernel in another process. Calling it returns (codes, scales, tensor scale) as numpy arrays.

    The judge owns the memory of the arguments: it compares all of it after each call, guards included,
    whatever the kernel has done to its own process.
    """

    def __init__(self, place: tuple[str, str], room: int, timeout: float) -> None:
        """room: the most bytes of the arguments of a call."""
        self._place, self._timeout = place, timeout
        self._size = room + 4 * _GUARD
        self._file = _shared_file(self._size)
        self._memory = mmap.mmap(self._file.fileno(), self._size)
        self._process: subprocess.Popen[bytes] | None = None
        self._ends = 0
        self._poison = 0
        self.problem = ""  # why the kernel cannot be called at all

    def __enter__(self) -> Remote:
        return self

    def __exit__(self, *_: Any) -> None:
        self._end()
        self._memory.close()
        self._file.close()

    def start(self, poison: int) -> None:
        """Starts the process anew. poison: 1..254; memory that it allocates holds the complement."""
        self._end()
        self._ends, self._poison = 0, poison
        self._start()

    def _start(self) -> None:
        to_kernel, from_judge = os.pipe(), os.pipe()
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("FP4LAB_", "PYTEST_"))}
        # glibc fills what it hands out with the complement of this byte, and keeps no small pieces apart.
        environment["GLIBC_TUNABLES"] = f"glibc.malloc.perturb={self._poison}:glibc.malloc.tcache_count=0"
        environment["MALLOC_PERTURB_"] = str(self._poison)
        self._errors = tempfile.TemporaryFile()
        arguments = [str(_PACKAGE), *self._place, to_kernel[0], from_judge[1], self._file.fileno(), self._size]
        source = (_PACKAGE / "testing" / "_kernel_process.py").read_text()
        self._process = subprocess.Popen(
            [sys.executable, "-c", source, *map(str, arguments)], env=environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=self._errors, start_new_session=True,
            pass_fds=(to_kernel[0], from_judge[1], self._file.fileno()),
        )  # fmt: skip
        os.close(to_kernel[0])
        os.close(from_judge[1])
        self._requests, self._replies = to_kernel[1], from_judge[0]
        self._read = b""
        try:
            facts = self._facts(max(self._timeout, 60.0))  # imports take their time
        except KernelFailed as error:
            facts = {"status": "error", "text": str(error)}
        if facts.get("status") != "ready":
            self.problem = str(facts.get("text", "the kernel's process does not answer"))

    def _end(self) -> None:
        if self._process is None:
            return
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()
        os.close(self._requests)
        os.close(self._replies)
        self._errors.close()
        self._process = None

    def __call__(self, *arrays: np.ndarray) -> tuple[Any, Any, Any]:
        if self.problem:
            raise KernelFailed(self.problem)
        if self._process is None:
            if self._ends >= _MOST_ENDS:
                raise KernelFailed(f"not called: the kernel's process has ended {self._ends} times")
            self._start()
        guards = os.urandom(_GUARD)
        request, at = [], _GUARD
        written = bytearray(guards)
        for array in arrays:
            blob = np.ascontiguousarray(array).tobytes()
            kind = array.dtype.name
            request.append({"dtype": kind, "shape": list(array.shape), "offset": at})
            written += blob + guards
            written += bytes(-len(written) % 64)
            at = len(written)
        self._memory[: len(written)] = bytes(written)
        try:
            os.write(self._requests, json.dumps(request).encode() + b"\n")
            facts = self._facts(self._timeout)
            if facts.get("status") == "ok":
                answer = [self._array(a) for a in facts["arrays"]]
                if len(answer) != 3:
                    raise KernelFailed("the kernel's answer has not 3 parts")
        except (OSError, KeyError, TypeError, ValueError) as error:
            self._stop()
            raise KernelFailed(f"the kernel's process gave no answer: {error}") from None
        except KernelFailed:
            self._stop()
            raise
        self._check(request, bytes(written))
        if facts.get("status") == "declined":
            raise NotImplementedError
        if facts.get("status") != "ok":
            raise KernelFailed(str(facts.get("text", "no answer"))[:300])
        return answer[0], answer[1], answer[2]

    def _check(self, request: list[dict[str, Any]], written: bytes) -> None:
        """Raises Mutated if the memory of the arguments is not what was written there."""
        if self._memory[: len(written)] == written:
            return
        now = np.frombuffer(self._memory[: len(written)], np.uint8)
        places = np.flatnonzero(now != np.frombuffer(written, np.uint8))
        first = int(places[0])
        for name, facts in zip(("x", "random"), request, strict=False):
            width = 2 if facts["dtype"] in ("uint16", "bfloat16") else 4
            index = (first - facts["offset"]) // width
            if 0 <= index < facts["shape"][0] * facts["shape"][1]:
                row, col = divmod(index, facts["shape"][1])
                raise Mutated(f"the kernel changed its argument {name}: the first element at [{row}, {col}]")
        raise Mutated(f"the kernel wrote beside its arguments ({places.size} bytes)")

    def _array(self, facts: Any) -> Any:
        if facts is None:
            return None
        kind, shape, size = facts["dtype"], [int(n) for n in facts["shape"]], int(facts["bytes"])
        if kind not in _TYPES or not 0 <= size <= _MOST_BYTES:
            raise KernelFailed(f"the kernel's answer has {size} bytes of {kind}")
        blob = self._take(size, time.monotonic() + self._timeout)
        return np.frombuffer(blob, kind).reshape(shape).copy()

    def _facts(self, timeout: float) -> dict[str, Any]:
        """A line of JSON from the process."""
        end = time.monotonic() + timeout
        while b"\n" not in self._read:
            if len(self._read) > 1 << 20:
                raise KernelFailed("the kernel's process wrote into the judge's pipe")
            self._more(end)
        line, _, self._read = self._read.partition(b"\n")
        facts = json.loads(line)
        if not isinstance(facts, dict):
            raise ValueError("no facts")
        return facts

    def _take(self, size: int, end: float) -> bytes:
        pieces = bytearray(self._read)
        while len(pieces) < size:
            self._read = b""
            self._more(end)
            pieces += self._read
        self._read = bytes(pieces[size:])
        return bytes(pieces[:size])

    def _more(self, end: float) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._replies, selectors.EVENT_READ)
            if not selector.select(max(0.0, end - time.monotonic())):
                raise KernelFailed("the kernel took too long: timeout= takes more seconds")
        piece = os.read(self._replies, 1 << 20)
        if not piece:
            raise KernelFailed(self._why_ended())
        self._read += piece

    def _why_ended(self) -> str:
        assert self._process is not None
        code = self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read()[-4000:].decode(errors="replace").strip().splitlines()
        how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
        return f"the kernel's process ended {how}" + (f": {lines[-1]}" if lines else "")

    def _stop(self) -> None:
        self._end()
        self._ends += 1

