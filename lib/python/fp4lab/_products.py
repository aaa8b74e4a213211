"""Products of quantized matrices, and verdicts on products."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from . import _arrays, _core, _ieee
from ._arguments import one_of, real, text, threads as _threads
from ._qtensor import QTensor, scale_order

_NAMES = {"block": "fp32-blocks"}
_OUTPUTS = {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}


def _operand(q: Any, name: str) -> Any:
    if not isinstance(q, QTensor):
        raise TypeError(f"{name} is {type(q).__name__}: a QTensor is multiplied")
    rows, cols = q._oriented
    layout = (q.nibbles, scale_order(q.scale_layout), False, q.expanded_scales, "amax")
    return (q.dialect, rows, cols, layout, q._decodable_parts())


def _alpha(alpha: Any) -> tuple[float | None, str]:
    if alpha is None:
        return None, ""
    if isinstance(alpha, str):
        return None, alpha
    return real(alpha, "alpha"), ""


def _bias(bias: Any) -> list[float]:
    """The numbers of a bias, (N,) or (1, N). Raises fp4lab.Error for another shape."""
    numbers, shape = _arrays.amaxes(bias, "bias"), np.shape(bias)
    if numbers and shape and shape[-1] != len(numbers):
        given = "x".join(map(str, shape))
        raise _core.Error(f"bias: is {given}; a bias has one dimension, a number per column of the product")
    return numbers


def _accumulation(name: str) -> str:
    return _NAMES.get(text(name, "accumulation"), name)


def _output(dtype: Any) -> str:
    name = dtype if isinstance(dtype, str) else np.dtype(dtype).name
    if name in _OUTPUTS.values():
        return name
    return _OUTPUTS[one_of(name, "out_dtype", _OUTPUTS)]


def scaled_mm(
    a: QTensor,
    b: QTensor,
    *,
    alpha: float | str | None = None,
    bias: Any = None,
    accumulation: str = "block",
    out_dtype: Any = "bfloat16",
    threads: int | None = None,
) -> np.ndarray:
    """a @ b.T on the codes, with a stated order of every addition and rounding.

    Args:
        a, b: (M, K) and (N, K) with blocks along K. A columnwise QTensor of a (K, M) tensor is
            (M, K).
        alpha: the factor of the tensor scales. None: made of both amaxes as Transformer Engine's
            reference does; "kernel", "reference" or "jax": one of its three orders; or a number.
        bias: N numbers, added in float32 before the result is rounded.
        accumulation: a name of accumulations(): "fp32-blocks" (binary32 in the order of blocks;
            "block" is another name of it), "exact", the tensor core "blackwell.mxf4.f32" ...
        out_dtype: "bfloat16" (ml_dtypes if installed, else uint16 bits), "float32" or "float16"; or
            "bf16", "f32", "f16", as the program's --output has them.
        threads: as in quantize.

    Returns:
        (M, N) of out_dtype.

    Raises:
        fp4lab.Error: if shapes differ in K, or the accumulation does not take the operands.

    >>> import numpy as np, fp4lab
    >>> q = fp4lab.quantize(np.eye(16, dtype=np.float32))
    >>> y = fp4lab.scaled_mm(q, q, out_dtype="float32")
    >>> bool((y == np.eye(16)).all())
    True
    """
    number, rule = _alpha(alpha)
    output = _output(out_dtype)
    values = _core.product(
        _operand(a, "a"), _operand(b, "b"), number, rule, _bias(bias),
        _accumulation(accumulation), output, _threads(threads),
    )  # fmt: skip
    if output == "bf16":
        return _arrays.bf16_view(_arrays.bf16_bits(values))
    return values.astype(np.float16) if output == "f16" else values


@dataclass(frozen=True)
class ProductVerdict:
    """The verdict on a product; true if every element is acceptable.

    Attributes:
        verdict: "equal" (bit for bit), "undetermined" (equal under a reading of points that no
            public result decides), "inside" (every element within the proven bound) or "outside".
        bound: "any-order" (binary32 sums in any order) or "tensor-core".
        different, outside: numbers of elements that differ, that lie outside of the bound.
        accumulations: for each accumulation that takes the operands, the elements that differ.
        text: all of this in lines.
    """

    verdict: str
    bound: str
    different: int
    outside: int
    accumulations: dict[str, int]
    text: str

    def __bool__(self) -> bool:
        return self.outside == 0

    def __str__(self) -> str:
        return self.text


def verify_mm(
    a: QTensor,
    b: QTensor,
    d: Any,
    *,
    alpha: float | str | None = None,
    accumulation: str = "block",
) -> ProductVerdict:
    """Judges a product d that a device returned for scaled_mm(a, b).

    Args:
        d: (M, N) of float32, bfloat16 or float16; its type is the product's output type.
        alpha, accumulation: as in scaled_mm.

    >>> import numpy as np, fp4lab
    >>> q = fp4lab.quantize(np.eye(16, dtype=np.float32))
    >>> fp4lab.verify_mm(q, q, np.eye(16, dtype=np.float32)).verdict
    'equal'
    """
    number, rule = _alpha(alpha)
    array, kind = _arrays.raw(d, "d")
    output = {"bfloat16": "bf16", "uint16": "bf16", "float16": "f16"}.get(kind, "f32")
    name = _accumulation(accumulation)
    verdict, bound, different, outside, first, worst, matches = _core.judge_product(
        _operand(a, "a"), _operand(b, "b"), _arrays.matrix(d, "d"), number, rule, name, output, True
    )
    lines = [f"{name}: {verdict}: {different} of {array.size} elements differ, {outside} outside of "
             f"the {bound} bound"]  # fmt: skip
    for what, e in (("first different", first), ("worst", worst)):
        if different and (what == "first different" or outside):
            lines.append(f"  {what}: ({e[0]}, {e[1]}) got {e[2]!r}, {name} gives {e[3]!r}, exactly "
                         f"{e[4]!r}: error {e[5]:.3g}, bound {e[6]:.3g}")  # fmt: skip
    same = [n for n, count in matches if count == 0]
    if different and same:
        lines.append(f"  equal to the last bit under: {', '.join(same)}")
    return ProductVerdict(verdict, bound, different, outside, dict(matches), "\n".join(lines))


_ieee.guard(globals())
