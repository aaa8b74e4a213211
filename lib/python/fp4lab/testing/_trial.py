"""A callable under test, and one input that it fails made small."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .. import _core, _tables
from .._arrays import bf16_bits, bf16_view
from .._judge import Verdict, answer_of, verdict_on
from .._qtensor import QTensor
from ._watch import Watched


class NotJudged(Exception):
    """A kernel's answer that cannot be judged."""


class WrongSizes(Exception):
    """An answer whose sizes fit no layout; `answer` holds its bytes."""

    def __init__(self, error: Exception, answer: Any) -> None:
        super().__init__(f"{type(error).__name__}: {error}")
        self.answer = answer


@dataclass
class Trial:
    """A callable under test with everything that judging its answers takes."""

    fn: Callable[..., Any]
    dialect: _tables.Dialect
    dtype: str
    takes_random: bool
    options: dict[str, Any]

    def answer(self, x: np.ndarray, random: np.ndarray | None) -> tuple[Any, Any, Any]:
        """(codes, scales, tensor scale) of the kernel, which gets copies of x and random.

        Raises what the kernel raises; Mutated if it changed one of its arguments, NotJudged for an
        answer of another form.
        """
        given = bf16_view(bf16_bits(x)) if self.dtype == "bfloat16" else x
        watched = Watched(x=given, random=random if self.takes_random else None)
        result = watched.call(self.fn, "x", *(["random"] if self.takes_random else []))
        return parts_of(result)

    def verdict(self, x: np.ndarray, random: np.ndarray | None) -> Verdict:
        codes, scales, number = self.answer(x, random)
        options = dict(self.options)
        if isinstance(codes, QTensor):
            for key in ("scale_layout", "nibbles", "expanded_scales", "columnwise"):
                options.pop(key, None)
            if number is None:
                options.pop("tensor_scale_is", None)
        elif number is None:
            options.pop("tensor_scale_is", None)
        judged = answer_of(x, codes, scales, self.dialect.name, tensor_scale=number, random=random,
                           **options)  # fmt: skip
        try:
            return verdict_on(judged)
        except _core.Error as error:
            raise WrongSizes(error, judged) from None

    def fails(self, x: np.ndarray, random: np.ndarray | None) -> Verdict | None:
        """The verdict if the kernel answers this input, wrongly."""
        try:
            verdict = self.verdict(x, random)
        except Exception:  # an input that the kernel does not take is no failure
            return None
        return None if verdict else verdict


def parts_of(result: Any) -> tuple[Any, Any, Any]:
    """(codes, scales, tensor scale) of what a kernel returned. Raises NotJudged for another form.

    Arrays of numpy are copied: a kernel may write its next answer into the same memory.
    """
    if isinstance(result, QTensor):
        amax = None if result.amax is None else own(result.amax)
        return replace(result, data=own(result.data), scale_inv=own(result.scale_inv), amax=amax), None, None
    if isinstance(result, dict):
        unknown = sorted(str(k) for k in result if k not in ("codes", "scales", "tensor_scale"))
        if unknown or "codes" not in result:
            raise NotJudged(
                f"the kernel returned a dict with {', '.join(map(repr, unknown)) or 'no codes'}: its keys are "
                "'codes', 'scales' and 'tensor_scale'"
            )
        return own(result["codes"]), own(result.get("scales")), own(result.get("tensor_scale"))
    if not isinstance(result, (tuple, list)) or len(result) not in (2, 3):
        raise NotJudged(
            f"the kernel returned {type(result).__name__}: return a QTensor, (codes, scales) or "
            "(codes, scales, tensor_scale)"
        )
    codes, scales, number = (*result, None) if len(result) == 2 else result
    return own(codes), own(scales), own(number)


def own(array: Any) -> Any:
    """A copy of a numpy array, or of what shares its memory by DLPack; other objects as they are."""
    if isinstance(array, np.ndarray):
        return array.copy()
    for name in ("clone", "copy"):  # torch; others
        if hasattr(array, "__dlpack__") and not isinstance(array, np.generic) and hasattr(array, name):
            return getattr(array, name)()
    return array


def shrunk(trial: Trial, x: np.ndarray, random: np.ndarray | None, verdict: Verdict,
            tries: int = 160) -> tuple[np.ndarray, np.ndarray | None, Verdict]:  # fmt: skip
    """The smallest part of x, of whole blocks, on which the kernel still fails; then as few
    elements other than 0 as it takes.
    """
    unit_rows, unit_cols = (max(n, 1) for n in trial.dialect.block)
    unit_cols = max(unit_cols, trial.options.get("rht", 0))
    if trial.options.get("columnwise"):
        unit_rows, unit_cols = unit_cols, unit_rows
    left = tries

    def attempt(part: np.ndarray, bits: np.ndarray | None) -> bool:
        nonlocal x, random, verdict, left
        if left <= 0:
            return False
        left -= 1
        failed = trial.fails(part, bits)
        if failed is None:
            return False
        x, random, verdict = part, bits, failed
        return True

    for axis, unit in ((0, unit_rows), (1, unit_cols)):
        step = -(-x.shape[axis] // unit)
        while step >= 1:
            count = -(-x.shape[axis] // unit)
            for start in range(0, count, step):
                inside = slice(start * unit, min((start + step) * unit, x.shape[axis]))
                if inside.stop - inside.start == x.shape[axis]:
                    continue
                cut = (inside, slice(None)) if axis == 0 else (slice(None), inside)
                part = np.ascontiguousarray(x[cut])
                if attempt(part, None if random is None else np.ascontiguousarray(random[cut])):
                    break
            step //= 2
    if x.size <= 1024:
        size = x.size
        while size >= 1:
            for start in range(0, x.size, size):
                part = x.copy()
                flat = part.reshape(-1)
                if not flat[start : start + size].view(np.uint32).any():
                    continue
                flat[start : start + size] = 0
                attempt(part, random)
            size //= 2
    return x, random, verdict


def _array_text(x: np.ndarray, name: str) -> str:
    """A numpy array to paste, bit for bit."""
    if x.dtype == np.uint16:
        return f"{name} = np.array({x.tolist()}, np.uint16)"
    if not np.isnan(x).any() and x.size <= 4096:
        nonzero = np.argwhere(x.view(np.uint32) != 0)
        if len(nonzero) * 4 < x.size:
            lines = [f"{name} = np.zeros({x.shape}, np.float32)"]
            lines += [f"{name}[{r}, {c}] = float.fromhex({float(x[r, c]).hex()!r})" for r, c in nonzero]
            return "\n".join(lines)
    words = ", ".join(f"0x{w:08x}" for w in x.view(np.uint32).reshape(-1))
    return f"{name} = np.array([{words}], np.uint32).view(np.float32).reshape{x.shape}"


def mutation_reproducer(trial: Trial, x: np.ndarray, random: np.ndarray | None) -> str:
    """Lines that call the kernel once and compare its arguments before and after."""
    lines = ["import numpy as np", "", _array_text(np.ascontiguousarray(x), "x")]
    names = ["x"]
    if trial.takes_random and random is not None:
        lines.append(_array_text(random, "random"))
        names.append("random")
    if trial.dtype == "bfloat16":
        lines.append("# the kernel takes bfloat16: x holds bfloat16 values")
    given = ", ".join(names)
    lines.append(f"before = [(a.shape, a.tobytes()) for a in ({given},)]")
    lines.append(f"kernel({given})")
    lines.append(f"assert before == [(a.shape, a.tobytes()) for a in ({given},)]")
    return "\n".join(lines)


def reproducer(trial: Trial, x: np.ndarray, random: np.ndarray | None) -> str:
    given = "x, random" if trial.takes_random else "x"
    options = {k: v for k, v in trial.options.items() if v not in (False, None, "auto", "nearest")}
    if not trial.options["rht"]:
        options.pop("rht", None)
        options.pop("sign_mask")
    if trial.options["rounding"] != "stochastic":
        options.pop("random_bits")
    if trial.options["tensor_scale_is"] == "amax":
        options.pop("tensor_scale_is")
    if "scale_layout" in options:
        options["layout"] = options.pop("scale_layout")
    if trial.takes_random:
        options["random"] = "random"
    text = "".join(f", {k}={v if k == 'random' else repr(v)}" for k, v in options.items())
    lines = ["import numpy as np", "import fp4lab.testing", ""]
    lines.append(_array_text(np.ascontiguousarray(x), "x"))
    if random is not None:
        lines.append(_array_text(random, "random"))
    if trial.dtype == "bfloat16":
        lines.append("# the kernel takes bfloat16: x holds bfloat16 values")
    lines.append(f"answer = kernel({given})  # (codes, scales) or (codes, scales, tensor_scale)")
    lines.append("number = answer[2] if len(answer) == 3 else None")
    lines.append(
        f'fp4lab.testing.assert_matches(x, *answer[:2], "{trial.dialect.name}", tensor_scale=number'
        f"{text})"
    )
    return "\n".join(lines)
