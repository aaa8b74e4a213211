"""Attention on which wrong kernels part from the right one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .. import _arrays, _core, _ieee
from .._arguments import callable_, flag, one_of
from ._watch import Mutated, Watched


def _cases(scheme: str) -> list[tuple[Any, ...]]:
    """The directed cases of a scheme, and plain random ones: shared heads, the mask, tails."""
    cases = [c for c in _core.attention_cases() if c[2] == scheme]
    rng = np.random.default_rng(7)
    for name, (heads, kv_heads), queries, keys, width, causal in (
        ("random, shared heads", (4, 2), 20, 70, 64, False),
        ("random, causal", (2, 2), 40, 56, 64, True),
        ("random, one query", (2, 1), 1, 260, 128, True),
    ):
        q, k, v = ((rng.standard_normal((n, width)) * 1.25).astype(np.float32).view(np.uint32) & 0xFFFF0000
                   for n in (heads * queries, kv_heads * keys, kv_heads * keys))  # fmt: skip
        cases.append((name, "normal numbers", scheme, (heads, kv_heads), causal, "bf16",
                      *(x.view(np.float32) for x in (q, k, v))))  # fmt: skip
    return cases


def assert_attention(fn: Callable[..., Any], scheme: str, *, allow_declined: bool = False) -> int:
    """Feeds Q, K and V to an attention kernel and raises AssertionError unless every element is one
    that the scheme allows. The message names the heads, the rectangle and the wrong kernels that
    give the answer.

    Args:
        fn: called as fn(q, k, v, scale, causal) with arrays (heads, queries, channels) and
            (kv_heads, keys, channels) of bfloat16 (ml_dtypes if installed, else uint16 bits), the
            factor of the logits, and whether query i of M sees only the keys up to i + N - M of N.
            It quantizes as the scheme says. Returns (heads, queries, channels) of bfloat16, float16
            or float32. It may raise NotImplementedError for cases that it does not take. The arrays
            are copies of its own in every call; a kernel that changes them fails.
        scheme: the order of operations, of `fp4lab verify attention --schemes`: "bf16", "fp8",
            "sageattention3", ...
        allow_declined: whether declined cases are fine; a kernel must answer one at least.

    Returns:
        The number of cases that were compared; declined ones are not among them.

    >>> import numpy as np, fp4lab.testing
    >>> def bits(x):                                     # of bfloat16
    ...     return (x.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    >>> def attention(q, k, v, scale, causal):
    ...     share = q.shape[0] // k.shape[0]
    ...     q, k, v = bits(q), np.repeat(bits(k), share, 0), np.repeat(bits(v), share, 0)
    ...     y = q @ k.transpose(0, 2, 1) * np.float32(scale)
    ...     if causal:
    ...         y = np.where(np.tri(*y.shape[1:], y.shape[2] - y.shape[1], dtype=bool), y, -np.inf)
    ...     with np.errstate(invalid="ignore"):
    ...         p = np.exp(y - y.max(axis=2, keepdims=True))
    ...         o = np.nan_to_num(p @ v / p.sum(axis=2, keepdims=True))
    ...     return o.astype(np.float32)
    >>> fp4lab.testing.assert_attention(attention, "bf16")
    7
    """
    __tracebackhide__ = True
    callable_(fn, "fn(q, k, v, scale, causal), which returns an array (heads, queries, channels)")
    one_of(scheme, "scheme", _core.attention_schemes())
    allow_declined = flag(allow_declined, "allow_declined")
    compared, declined = 0, []
    for name, what, _, heads, causal, _, q, k, v in _cases(scheme):
        width, scale = q.shape[1], float(q.shape[1]) ** -0.5
        where = f"{name}, {heads[0]} heads on {heads[1]}, {len(q) // heads[0]} queries, {len(k) // heads[1]} keys"
        given = {key: _arrays.bf16_view(_arrays.bf16_bits(x)).reshape(n, -1, width)
                 for key, x, n in (("q", q, heads[0]), ("k", k, heads[1]), ("v", v, heads[1]))}  # fmt: skip
        try:
            watched = Watched(**given)
            o = watched.call(lambda a, b, c: fn(a, b, c, scale, causal), "q", "k", "v")  # noqa: B023
        except NotImplementedError:
            declined.append(name)
            continue
        except Mutated as error:
            raise AssertionError(f"{where}: {error}") from None
        compared += 1
        try:
            _, kind = _arrays.raw(o, "o")
            output = {"bfloat16": "bf16", "uint16": "bf16", "float16": "f16"}.get(kind, "f32")
            judged = _core.judge_attention(q, k, v, _arrays.matrix(o, "o"), heads, scale, causal, output, scheme)
        except (TypeError, ValueError) as error:
            raise AssertionError(f"{where}: {error}") from None
        if judged[1]:
            raise AssertionError(_text(where, what, judged))
    if not compared:
        raise AssertionError("the kernel declines every case: nothing is compared")
    if declined and not allow_declined:
        raise AssertionError(
            f"the kernel declines {len(declined)} of {compared + len(declined)} cases "
            f"({', '.join(declined)}): allow_declined=True accepts that"
        )
    return compared


def _text(where: str, what: str, judged: tuple[Any, ...]) -> str:
    different, outside, heads, (row, col, rows, cols), e, causes = judged
    lines = [
        f"{where}: {outside} elements are not allowed ({different} differ); the case tests {what}",
        f"in heads {', '.join(map(str, heads))}: queries {row}..{row + rows - 1}, channels {col}..{col + cols - 1}",
        f"head {e[0]}, query {e[1]}, channel {e[2]}: got {e[3]!r}, allowed {e[4]!r} to {e[5]!r}, exactly {e[6]!r}",
    ]
    for name, sentence in causes:
        lines.append(f"{'cause' if len(causes) == 1 else 'possible cause'}: the kernel {sentence} ({name})")
    return "\n".join(lines)


_ieee.guard(globals())
