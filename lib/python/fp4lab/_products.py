"""Products of quantized matrices, and verdicts on products."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import _arrays, _core, _ieee
from ._arguments import flag, one_of, real, text, threads as _threads
from ._qtensor import QTensor, scale_order

_NAMES = {"block": "fp32-blocks"}
_OUTPUTS = {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}
_FP8_OUTPUTS = {"float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2"}


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


def output_name(dtype: Any) -> str:
    names = {**_OUTPUTS, **_FP8_OUTPUTS}
    name = dtype if isinstance(dtype, str) else np.dtype(dtype).name
    if name in names.values():
        return name
    return names[one_of(name, "out_dtype", names)]


def is_fp8(output: str) -> bool:
    """Whether a product's type is E4M3 or E5M2, which products with scales alone have."""
    return output in _FP8_OUTPUTS.values()


@dataclass(frozen=True)
class _Scaled:
    """What a product with scales of tensors, rows and blocks takes."""

    alpha: float | None
    rule: str
    accumulation: str
    output_scale: float


def _scaled(a: Any, b: Any, alpha: Any, accumulation: str, output: str, with_scales: bool,
            output_scale: float) -> _Scaled | None:  # fmt: skip
    """None for a product on the codes and block scales alone."""
    scale = _finite(output_scale, "output_scale")
    asked = flag(with_scales, "with_scales") or is_fp8(output)
    if not asked and not _core.is_scaled_operand(a) and not _core.is_scaled_operand(b):
        if scale != 1.0:
            raise _core.Error("output_scale: is of products of FP8: add with_scales=True")
        return None
    number, rule = _alpha(alpha)
    if number is not None:
        _finite(number, "alpha")
    exact = text(accumulation, "accumulation") == "block"
    return _Scaled(number, rule, "exact" if exact else accumulation, scale)


def is_scaled(a: QTensor, b: QTensor) -> bool:
    """Whether only a product of FP8 with scales takes the operands."""
    return _core.is_scaled_operand(_operand(a, "a")) or _core.is_scaled_operand(_operand(b, "b"))


def _finite(value: Any, name: str) -> float:
    number = real(value, name)
    with np.errstate(over="ignore"):
        if not np.isfinite(np.float32(number)):
            raise _core.Error(f"{name}: {number!r} is not a finite number")
    return number


def scaled_mm(
    a: QTensor,
    b: QTensor,
    *,
    alpha: float | str | None = None,
    bias: Any = None,
    accumulation: str = "block",
    out_dtype: Any = "bfloat16",
    with_scales: bool = False,
    output_scale: float = 1.0,
    threads: int | None = None,
) -> np.ndarray:
    """a @ b.T on the codes, with a stated order of every addition and rounding.

    FP8 operands with scales of rows, or of blocks as numbers, are multiplied as DeepSeek-V3 and torch
    do: each block of K is summed and multiplied by both scales in binary32, and the blocks are added.

    Args:
        a, b: (M, K) and (N, K) with blocks along K. A columnwise QTensor of a (K, M) tensor is
            (M, K).
        alpha: the factor of the tensor scales. None: made of both amaxes as Transformer Engine's
            reference does; "kernel", "reference" or "jax": one of its three orders; or a number. Of
            FP8 with scales a number alone, 1 for None; FP4 leaves its tensor scales to alpha.
        bias: N numbers, added in float32 before the result is rounded.
        accumulation: a name of accumulations(): "fp32-blocks" (binary32 in the order of blocks;
            "block" is another name of it), "exact", the tensor core "blackwell.mxf4.f32" ... Of FP8
            with scales it sums each block of K, and "block" is "exact".
        out_dtype: "bfloat16" (ml_dtypes if installed, else uint16 bits), "float32" or "float16"; or
            "bf16", "f32", "f16", as the program's --output has them; also "float8_e4m3fn" ("e4m3") and
            "float8_e5m2" ("e5m2"): ml_dtypes, else uint8 codes.
        with_scales: multiply by the scales of FP8 tensors, too (implied by scales of rows, by blocks
            whose scales are numbers, and by FP8 outputs).
        output_scale: of products with scales: a factor before the product is rounded.
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
    output = output_name(out_dtype)
    values = product_values(a, b, output, alpha=alpha, bias=bias, accumulation=accumulation,
                            with_scales=with_scales, output_scale=output_scale, threads=threads)  # fmt: skip
    if is_fp8(output):
        return _arrays.fp8_view(_core.encode(output, values.reshape(-1), True).reshape(values.shape), output)
    if output == "bf16":
        return _arrays.bf16_view(_arrays.bf16_bits(values))
    return values.astype(np.float16) if output == "f16" else values


def product_values(
    a: QTensor,
    b: QTensor,
    output: str,
    *,
    alpha: float | str | None = None,
    bias: Any = None,
    accumulation: str = "block",
    with_scales: bool = False,
    output_scale: float = 1.0,
    threads: int | None = None,
) -> np.ndarray:
    """scaled_mm as float32 numbers of the type `output`."""
    operands = _operand(a, "a"), _operand(b, "b")
    scaled = _scaled(*operands, alpha, accumulation, output, with_scales, output_scale)
    if scaled is None:
        number, rule = _alpha(alpha)
        return _core.product(*operands, number, rule, _bias(bias), _accumulation(accumulation), output,
                             _threads(threads))  # fmt: skip
    if bias is not None:
        raise _core.Error("bias: a product with scales has none; add it to the product")
    return _core.scaled_product(*operands, scaled.alpha, scaled.rule, scaled.accumulation, output,
                                scaled.output_scale, _threads(threads))  # fmt: skip


@dataclass(frozen=True)
class ProductVerdict:
    """The verdict on a product; true if every element is acceptable.

    Attributes:
        verdict: "equal" (bit for bit), "undetermined" (equal under a reading of points that no
            public result decides), "inside" (every element within the proven bound) or "outside".
        bound: "any-order" (binary32 sums in any order), "tensor-core", or "scaled" (products with scales).
        different, outside: numbers of elements that differ, that lie outside of the bound.
        accumulations: for each accumulation that takes the operands, the elements that differ; empty
            for products with scales.
        outside_in: the smallest (row, column, rows, columns) with all elements outside; None without.
        causes: names of the wrong kernels that give what is outside; several, if d does not tell them apart.
        text: all of this in lines.
    """

    verdict: str
    bound: str
    different: int
    outside: int
    accumulations: dict[str, int]
    outside_in: tuple[int, int, int, int] | None
    causes: tuple[str, ...]
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
    with_scales: bool = False,
    output_scale: float = 1.0,
    out_dtype: Any = None,
) -> ProductVerdict:
    """Judges a product d that a device returned for scaled_mm(a, b), as `fp4lab verify gemm` does.

    Args:
        d: (M, N) of float32, bfloat16, float16, float8_e4m3fn or float8_e5m2.
        alpha, accumulation, with_scales, output_scale: as in scaled_mm.
        out_dtype: the product's output type; None: the type of d. "e4m3" says that float32 numbers
            were rounded to E4M3.

    >>> import numpy as np, fp4lab
    >>> q = fp4lab.quantize(np.eye(16, dtype=np.float32))
    >>> fp4lab.verify_mm(q, q, np.eye(16, dtype=np.float32)).verdict
    'equal'

    A product of FP8 whose kernel leaves out the scales of A:

    >>> a, b = (fp4lab.quantize(np.full((4, 256), v, np.float32), "fp8_e4m3.1x128.fp32") for v in (1, 2))
    >>> d = fp4lab.scaled_mm(a, b, out_dtype="float32") * np.float32(448)
    >>> fp4lab.verify_mm(a, b, d).causes
    ('a-scales-missing',)
    """
    values, kind = numbers_of(d)
    better = None
    output = kind if out_dtype is None else output_name(out_dtype)
    operands = _operand(a, "a"), _operand(b, "b")
    scaled = _scaled(*operands, alpha, accumulation, output, with_scales, output_scale)
    if scaled is None:
        number, rule = _alpha(alpha)
        name = _accumulation(accumulation)
        judged = _core.judge_product(*operands, values, number, rule, name, output, True)
    else:
        name = scaled.accumulation
        *judged, better = _core.judge_scaled_product(*operands, values, scaled.alpha, scaled.rule, name, output,
                                                     scaled.output_scale)  # fmt: skip
    return _verdict(name, values.shape, judged, better)


def numbers_of(d: Any) -> tuple[np.ndarray, str]:
    """A product as a matrix that the library reads, and the name of its type."""
    array, kind = _arrays.raw(d, "d")
    if kind in _FP8_OUTPUTS:
        flat = np.ascontiguousarray(array).reshape(-1).astype(np.uint32)
        values = _core.decode(_FP8_OUTPUTS[kind], flat).reshape(array.shape)
        return _arrays.matrix(values, "d"), _FP8_OUTPUTS[kind]
    return _arrays.matrix(d, "d"), {"bfloat16": "bf16", "uint16": "bf16", "float16": "f16"}.get(kind, "f32")


def _verdict(name: str, shape: tuple[int, ...], judged: Sequence[Any], better: Any) -> ProductVerdict:
    verdict, bound, different, outside, first, worst, matches, (row, col, rows, cols), causes = judged
    lines = [f"{name}: {verdict}: {different} of {shape[0] * shape[1]} elements differ, {outside} outside of "
             f"the {bound} bound"]  # fmt: skip
    if outside and (rows, cols) != shape:
        lines.append(f"  outside in rows {row}..{row + rows - 1}, columns {col}..{col + cols - 1} only")
    for what, e in (("first different", first), ("worst", worst)):
        if different and (what == "first different" or outside):
            lines.append(f"  {what}: ({e[0]}, {e[1]}) got {e[2]!r}, {name} gives {e[3]!r}, exactly "
                         f"{e[4]!r}: error {e[5]:.3g}, bound {e[6]:.3g}")  # fmt: skip
    same = [n for n, count in matches if count == 0]
    if different and same:
        lines.append(f"  equal to the last bit under: {', '.join(same)}")
    for cause, what, elements, _ in causes:
        of = f" of {elements} elements" if elements else ""
        lines.append(f"{'cause' if len(causes) == 1 else 'possible cause'}{of}: the kernel {what} ({cause})")
    if better is not None:
        lines.append(f"  with output_scale={better[0]!r}, {better[1]} elements are outside")
    return ProductVerdict(verdict, bound, different, outside, dict(matches),
                          (row, col, rows, cols) if outside else None,
                          tuple(c[0] for c in causes), "\n".join(lines))  # fmt: skip


_ieee.guard(globals())
