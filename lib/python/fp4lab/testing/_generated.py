"""Kernels that a program wrote: judged in a process of their own, on inputs that nobody has seen."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import _core, _ieee, _tables
from .._arguments import TE_SIGN_MASK, flag, hadamard, integer, one_of, real, rounding_label
from .._arguments import seed as _seed
from .._judge import KERNEL_TRANSFORMS, LEVELS, Case, cases
from .._qtensor import NIBBLES, TENSOR_SCALES, scale_order
from .._quantize import quantize
from ._kernel import _DTYPES, _failures, _Failure, _report
from ._remote import Remote, kernel_place
from ._trial import Trial


@dataclass(frozen=True)
class GeneratedReport:
    """The verdict on a generated kernel.

    Attributes:
        kernel, dialect: what was judged.
        seed: draws the same inputs again, given as seed=.
        inputs, right: the inputs that count, and those that the kernel answered right. Inputs whose
            right answer is zeros are judged and do not count.
        different: wrong answers, exceptions, declined inputs and changed arguments, of all inputs.
        left_out: directed cases of other shapes than `multiple` allows.
        causes: what explains every wrong answer, as of assert_kernel.
        text: the report.
    """

    kernel: str
    dialect: str
    seed: int
    inputs: int
    right: int
    different: int
    left_out: int
    causes: tuple[str, ...]
    text: str

    @property
    def score(self) -> float:
        """right / inputs, 0 to 1."""
        return self.right / self.inputs if self.inputs else 0.0

    @property
    def accepted(self) -> bool:
        """Whether every answer is right."""
        return self.inputs > 0 and self.different == 0


def judge_generated(
    kernel: str,
    dialect: _tables.DialectLike = "nvfp4.te",
    *,
    seed: int | None = None,
    shapes: int = 12,
    largest: tuple[int, int] = (256, 512),
    multiple: tuple[int, int] = (1, 1),
    level: str = "quick",
    timeout: float = 30.0,
    dtype: str = "float32",
    rht: bool | int = False,
    sign_mask: int = TE_SIGN_MASK,
    rounding: str = "nearest",
    random_bits: int = 16,
    columnwise: bool = False,
    scale_layout: str = "auto",
    nibbles: str = "auto",
    expanded_scales: bool = False,
    tensor_scale_is: str = "amax",
    explained: int = 3,
    shrink: bool = True,
) -> GeneratedReport:
    """Judges a kernel that is not trusted, and gives it a score.

    The kernel runs in processes of its own, which hold neither answers nor fp4lab. Shapes and values are
    drawn anew in each call. Each drawn matrix is given with permuted rows and blocks as well, and again to
    a second process in another order. The directed cases follow. Memory that a process allocates holds
    a byte other than 0, another one in the second process. The memory of the arguments belongs to the
    judge, who compares all of it after each call. An answer is computed after the kernel has given its own.

    Args:
        kernel: "kernel.py:quantize" or "package.kernel:quantize", called as assert_kernel's fn. This
            process does not import it.
        dialect: as assert_kernel.
        seed: of shapes, values and directed cases; None draws one, which the report states.
        shapes: the number of drawn shapes, of at most `largest` (rows, columns), and of multiples of
            `multiple`.
        level: of the directed cases.
        timeout: seconds for a call. The kernel is not called again after its process has ended 3 times.
        dtype, rht, sign_mask, rounding, random_bits, columnwise, scale_layout, nibbles, expanded_scales,
            tensor_scale_is, explained, shrink: as assert_kernel.

    Returns:
        The report, for right and wrong kernels.

    Raises:
        TypeError, ValueError, fp4lab.Error: for arguments that do not fit, not for a wrong kernel.
    """
    place = kernel_place(kernel)
    d = _tables.dialect(dialect)
    dtype = _DTYPES[one_of(dtype, "dtype", _DTYPES)]
    one_of(level, "level", LEVELS)
    drawn = secrets.randbits(63) if seed is None else _seed(seed)
    label = rounding_label(rounding, random_bits)
    takes_random = d.takes_random_bits if not label else label.startswith("stochastic")
    size, signs = hadamard(rht, sign_mask, KERNEL_TRANSFORMS)
    one_of(nibbles, "nibbles", ("auto", *NIBBLES))
    one_of(tensor_scale_is, "tensor_scale_is", TENSOR_SCALES)
    if scale_layout != "auto":
        scale_order(scale_layout)
    options = {
        "rht": size, "sign_mask": signs, "rounding": rounding, "random_bits": random_bits,
        "columnwise": flag(columnwise, "columnwise"), "scale_layout": scale_layout, "nibbles": nibbles,
        "expanded_scales": flag(expanded_scales, "expanded_scales"), "tensor_scale_is": tensor_scale_is,
    }  # fmt: skip
    steps = _multiples(multiple, size, columnwise)
    draw = _Draw(drawn, d, takes_random, dtype == "bfloat16" or size > 0)
    first, second = draw.rounds(integer(shapes, "shapes", 1, 10000), _pair(largest, "largest"), steps)
    directed = list(cases(d, level, seed=drawn, bf16_only=dtype == "bfloat16" or size > 0,
                          rounding=rounding, random_bits=random_bits))  # fmt: skip
    used = [c for c in directed if c.x.shape[0] % steps[0] == 0 and c.x.shape[1] % steps[1] == 0]
    everything = [*first, *second, *used]
    room = max(6 * c.x.size for c in everything)
    poisons = draw.rng.permutation(254)[:2] + 1  # 255 would fill with zeros
    with Remote(place, room, real(timeout, "timeout")) as remote:
        trial = Trial(remote, d, dtype, takes_random, options)
        failures: list[_Failure] = []
        for poison, part in ((poisons[0], first), (poisons[1], [*second, *used])):
            remote.start(int(poison))
            failures += _failed(trial, part)
        counted = [c for c in everything if _has_answer(c, d, options, takes_random)]
        wrong = {id(f.case) for f in failures}
        right = sum(id(c) not in wrong for c in counted)
        facts = (kernel, d.name, drawn, len(counted), right, len(failures), len(directed) - len(used))
        head = f"{kernel}: score {right / max(1, len(counted)):.3f}, {right} of {len(counted)} inputs right (seed={drawn})"
        if not failures:
            return GeneratedReport(*facts, (), head)
        if remote.problem:
            return GeneratedReport(*facts, (), f"{head}\n{remote.problem}")
        counts = (len(everything), len(failures), 0, len(directed) - len(used))
        report = _report(trial, level, everything, failures, counts, integer(explained, "explained", 0, 2**31 - 1),
                         flag(shrink, "shrink"))  # fmt: skip
    return GeneratedReport(*facts, report.causes, f"{head}\n{report.text}")


def assert_generated(
    kernel: str, dialect: _tables.DialectLike = "nvfp4.te", **options: Any
) -> GeneratedReport:
    """judge_generated, which raises AssertionError unless every answer is right.

    Args:
        kernel, dialect, **options: as judge_generated takes them.

    Returns:
        The report.

    Raises:
        AssertionError: for a wrong kernel; its attribute fp4lab_report is the GeneratedReport.
        TypeError, ValueError, fp4lab.Error: for arguments that do not fit.
    """
    report = judge_generated(kernel, dialect, **options)
    if not report.accepted:
        error = AssertionError(report.text)
        error.fp4lab_report = report  # type: ignore[attr-defined]
        raise error
    return report


def _failed(trial: Trial, part: list[Case]) -> list[_Failure]:
    """The inputs that the kernel fails; a declined one is failed."""
    failures = []
    for c in part:
        try:
            found, declined = _failures(trial, [c])
        except AssertionError as error:  # no form of an answer
            found, declined = [_Failure(c, None, str(error))], 0
        failures += found
        if declined:
            failures.append(_Failure(c, None, "the kernel declines this input"))
    return failures


def _has_answer(c: Case, d: _tables.Dialect, options: dict[str, Any], takes_random: bool) -> bool:
    """Whether the right answer of a case is not zeros alone."""
    given = {"random": c.random} if takes_random else {}
    if c.is_bf16 and options["rht"]:
        given |= {"rht": options["rht"], "sign_mask": options["sign_mask"]}
    rounding = {k: options[k] for k in ("rounding", "random_bits")} if options["rounding"] != "nearest" else {}
    q = quantize(c.x, d, **given, **rounding)
    return bool(np.any(q.data)) or (q.scale_inv is not None and bool(np.any(q.scale_inv)))


def _pair(value: Any, name: str) -> tuple[int, int]:
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise TypeError(f"{name} is {value!r}: two integers are taken, (rows, columns)")
    return integer(value[0], f"{name}[0]", 1, 2**20), integer(value[1], f"{name}[1]", 1, 2**20)


def _multiples(multiple: Any, size: int, columnwise: bool) -> tuple[int, int]:
    """What rows and columns are multiples of; of the transform's groups as well."""
    rows, cols = _pair(multiple, "multiple")
    if not size:
        return rows, cols
    return (int(np.lcm(rows, size)), cols) if columnwise else (rows, int(np.lcm(cols, size)))


class _Draw:
    """Shapes and values of a seed."""

    def __init__(self, seed: int, d: _tables.Dialect, takes_random: bool, bf16: bool) -> None:
        self.rng = np.random.default_rng(seed)
        self._dialect, self._takes_random, self._bf16 = d, takes_random, bf16

    def rounds(self, shapes: int, largest: tuple[int, int],
               steps: tuple[int, int]) -> tuple[list[Case], list[Case]]:  # fmt: skip
        """What the first process gets, and the second: the same again, in another order."""
        first: list[Case] = []
        for i in range(shapes):
            rows, cols = (self._side(most, step) for most, step in zip(largest, steps, strict=True))
            x = self._values(rows, cols)
            first += [self._case(f"drawn/{i}", x), self._case(f"drawn/{i}-permuted", self._permuted(x))]
        again = [self._case(c.name + "-again", c.x, c.random) for c in first]
        return first, [again[int(i)] for i in self.rng.permutation(len(again))]

    def _side(self, most: int, step: int) -> int:
        """1 to most, small sides as likely as large ones, in multiples of step."""
        units = max(1, most // step)
        return step * max(1, min(units, int(np.exp2(self.rng.uniform(0, np.log2(units + 1))))))

    def _values(self, rows: int, cols: int) -> np.ndarray:
        rng = self.rng
        x = rng.standard_normal((rows, cols))
        kind = int(rng.integers(5))
        if kind == 1:  # heavy tails
            x /= np.maximum(0.05, np.abs(rng.standard_normal((rows, cols))))
        elif kind == 2:  # rows and blocks of unlike magnitudes
            x *= np.exp2(rng.integers(-9, 9, (rows, 1)) + rng.integers(-3, 4, (1, cols)))
        elif kind == 3:  # few bits, so that ties are met
            x = np.round(x * 8) / 8
        elif kind == 4:  # many zeros, of both signs
            x = np.where(rng.random((rows, cols)) < 0.7, np.copysign(0.0, x), x)
        x = (x * np.exp2(rng.integers(-12, 13))).astype(np.float32)
        if not np.any(x):
            x[0, 0] = 1.0
        return _bf16(x) if self._bf16 else x

    def _permuted(self, x: np.ndarray) -> np.ndarray:
        """The same values, so the same amax and sum, in other places."""
        y = x[self.rng.permutation(x.shape[0])]
        block = max(1, self._dialect.block[1])
        whole = x.shape[1] // block
        if whole < 2:
            return np.ascontiguousarray(y[:, self.rng.permutation(x.shape[1])])
        order = (self.rng.permutation(whole)[:, None] * block + np.arange(block)).reshape(-1)
        return np.ascontiguousarray(y[:, np.concatenate([order, np.arange(whole * block, x.shape[1])])])

    def _case(self, name: str, x: np.ndarray, random: np.ndarray | None = None) -> Case:
        if self._takes_random and random is None:
            random = self.rng.integers(0, 2**16, x.shape).astype(np.uint16)
        return _DrawnCase("drawn", name, x, bool(np.all(_bf16(x) == x)), random)


class _DrawnCase(Case):
    """A drawn input, as a case."""

    cause = "shapes and values that no kernel has seen"


def _bf16(x: np.ndarray) -> np.ndarray:
    """The numbers of bfloat16 toward zero."""
    return (x.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)


_ieee.guard(globals())
