"""Quantizers, transforms and replay on arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import _arrays, _core, _ieee, _tables
from ._qtensor import QTensor, default_nibbles, scale_order

TE_SIGN_MASK = 0xD7E8
"""Transformer Engine's fixed signs: bit i set means that element i of 16 is negated."""

_STOCHASTIC = {4: "stochastic_4", 8: "stochastic_8", 16: "stochastic_16", 32: "stochastic_32"}


def rounding_label(rounding: str | None, random_bits: int = 16) -> str:
    """The library's label of a rounding; "" for the dialect's own."""
    if rounding in (None, "nearest", "own"):
        return ""
    if rounding == "stochastic":
        if random_bits not in _STOCHASTIC:
            raise ValueError(f"random_bits {random_bits} is not one of: 4, 8, 16, 32")
        return _STOCHASTIC[random_bits]
    return str(rounding)


def hadamard_size(rht: bool | int) -> int:
    if rht is True:
        return 16
    return int(rht)


def random_fields(random: Any, name: str = "random") -> np.ndarray | None:
    if random is None:
        return None
    array = np.asarray(random)
    if array.dtype != np.uint16:
        raise TypeError(f"{name} has dtype {array.dtype}: one uint16 field of bits an element is read")
    return np.ascontiguousarray(array).reshape(-1)


def _source(seed: int | None, step: int, tensor: int, generator: str, columnwise: bool) -> Any:
    if seed is None:
        return None
    return (int(seed), int(step), int(tensor), generator, columnwise)


def _checked_threads(threads: int | None) -> int:
    if threads is None:
        return 0
    if threads < 1:
        raise ValueError(f"threads {threads}: one at least, or None for OMP_NUM_THREADS")
    return int(threads)


def _tensor(parts: Any, d: _tables.Dialect, shape: tuple[int, int], columnwise: bool,
            scale_layout: str, nibbles: str, expanded: bool) -> QTensor:  # fmt: skip
    data, scales, numbers = parts
    amax = None if numbers.size == 0 else numbers if d.row_scaled else np.float32(numbers[0])
    return QTensor(data, scales, amax, shape, d.name, columnwise, scale_layout, nibbles, expanded)


def quantize(
    x: Any,
    dialect: str | _tables.Dialect = "nvfp4.te",
    *,
    columnwise: bool = False,
    both: bool = False,
    amax: Any = None,
    rht: bool | int = False,
    sign_mask: int = TE_SIGN_MASK,
    rounding: str = "nearest",
    random_bits: int = 16,
    seed: int | None = None,
    step: int = 0,
    tensor: int = 0,
    generator: str = "philox",
    random: Any = None,
    rng_state: tuple[int, int] | None = None,
    te_kernel: str | None = None,
    scale_layout: str = "linear",
    nibbles: str | None = None,
    expanded_scales: bool = False,
    threads: int | None = None,
) -> Any:
    """Quantizes a matrix to the bytes that the dialect's code base writes.

    Args:
        x: (rows, columns) of float32, bfloat16 or float16: numpy (bfloat16 of ml_dtypes, or uint16
            with the bits), or an array of torch or JAX on the CPU. Any strides; read-only is fine.
            Leading dimensions become rows. NaN and infinities are data with stated results.
        dialect: a name of dialects().
        columnwise: quantizes the transposed matrix (blocks along the rows of x), as Transformer
            Engine's columnwise output.
        both: returns (rowwise, columnwise), the two outputs of Transformer Engine's quantizer.
        amax: the tensor scale's amax where it is not that of x: a reduced one, or one a row for
            dialects with a scale for each row.
        rht: True (16) or a size of 2 to 128: the random Hadamard transform along the blocks first;
            under `both` of the columns only, as in Transformer Engine. x must hold bfloat16 values.
        sign_mask: signs of the transform; bit i negates element i of a group.
        rounding: "nearest" (the dialect's own rounding), "stochastic", or a label of the library
            such as "toward_zero".
        random_bits: of stochastic rounding, an element: 4, 8, 16 (cvt.rs) or 32.
        seed, step, tensor, generator: the stream of random bits; the bits of an element depend on
            these and its index alone.
        random: instead, a uint16 field of bits for each element of the quantized matrix.
        rng_state: instead, Transformer Engine's (seed, offset): the words are those that the
            kernel `te_kernel` ("tuned", "opt2d", "generic", "fused-hadamard") takes by its source.
        scale_layout, nibbles, expanded_scales: as QTensor has them.
        threads: the most threads to use; None: OMP_NUM_THREADS, else all. No byte depends on it.

    Returns:
        A QTensor, or two under `both`.

    Raises:
        TypeError: for other types, and arrays outside the memory of the CPU.
        fp4lab.Error (a ValueError): for names and options that do not fit.

    >>> import numpy as np, fp4lab
    >>> x = np.linspace(-6, 6, 32, dtype=np.float32).reshape(2, 16)
    >>> q = fp4lab.quantize(x)
    >>> q.data[0].tobytes().hex(), q.scale_inv.tolist(), float(q.amax)
    ('ffefeededdbcab89', [[126], [126]], 6.0)
    >>> rows, columns = fp4lab.quantize(x, both=True)
    >>> columns.data.shape
    (16, 1)
    """
    d = _tables.dialect(dialect)
    array = _arrays.matrix(x)
    shape = (array.shape[0], array.shape[1])
    size = hadamard_size(rht)
    nibbles = default_nibbles(d) if nibbles is None else nibbles
    layout = (nibbles, scale_order(scale_layout), False, expanded_scales, "amax")
    count = _checked_threads(threads)
    if both and (columnwise or random is not None):
        raise ValueError("both: leave out columnwise and random, which are of one output")

    def one(columns: bool) -> QTensor:
        transform = size if columns or not both else 0
        numbers = _arrays.amaxes(amax)
        if rng_state is not None:
            return _replayed_by_te(columns, transform, numbers)
        parts = _core.quantize(
            array, d.name, rounding_label(rounding, random_bits), columns, numbers,
            random_fields(random), _source(seed, step, tensor, generator, columns), transform,
            sign_mask, layout, count,
        )  # fmt: skip
        return _tensor(parts, d, shape, columns, scale_layout, nibbles, expanded_scales)

    def _replayed_by_te(columns: bool, transform: int, numbers: list[float]) -> QTensor:
        if te_kernel is None:
            raise ValueError(
                'rng_state: name the kernel by te_kernel="tuned", "opt2d", "generic" or '
                '"fused-hadamard"'
            )
        state_seed, offset = (int(n) for n in rng_state)  # type: ignore[union-attr]
        words = _core.te_words(te_kernel, shape[0], shape[1], both or not columns,
                               both or columns, columns, state_seed, offset)  # fmt: skip
        source, turned = array, columns
        if transform:
            source, turned = _core.rht(array, transform, sign_mask, columns), False
        parts = _core.replay(
            source, words.reshape(-1), d.name, "te8", turned, numbers, layout
        )
        return _tensor(parts, d, shape, columns, scale_layout, nibbles, expanded_scales)

    if both:
        return one(False), one(True)
    return one(columnwise)


def qdq(
    x: Any,
    dialect: str | _tables.Dialect = "nvfp4.te",
    *,
    amax: Any = None,
    rounding: str = "nearest",
    random_bits: int = 16,
    seed: int | None = None,
    step: int = 0,
    tensor: int = 0,
    generator: str = "philox",
    random: Any = None,
    out: np.ndarray | None = None,
    threads: int | None = None,
) -> np.ndarray:
    """Quantizes and decodes: quantize(x, ...).dequantize() in one call, without the bytes.

    Args:
        x: as quantize takes it; blocks run along the last dimension.
        out: a float32 array of x's shape for the result; contiguous.
        The others are quantize's.

    Returns:
        float32 of x's shape; `out` if it is given.

    Raises:
        As quantize; ValueError for an `out` of another shape or type.

    >>> import numpy as np, fp4lab
    >>> fp4lab.qdq(np.array([[0.3, 1.0, 2.4, 6.0]], np.float32))
    array([[0.5, 1. , 2. , 6. ]], dtype=float32)
    """
    d = _tables.dialect(dialect)
    numbers = _arrays.numbers(x)
    array = _arrays.matrix(numbers)
    if out is None:
        out = np.empty(numbers.shape, np.float32)
    elif not isinstance(out, np.ndarray) or out.dtype != np.float32 or out.shape != numbers.shape:
        raise ValueError(f"out: needs a float32 array of shape {numbers.shape}")
    elif not out.flags.c_contiguous or not out.flags.writeable:
        raise ValueError("out: needs a contiguous array that can be written to")
    _core.qdq(
        array, out.reshape(array.shape), d.name, rounding_label(rounding, random_bits),
        _arrays.amaxes(amax), random_fields(random), _source(seed, step, tensor, generator, False),
        _checked_threads(threads),
    )  # fmt: skip
    return out


def amax(
    x: Any, *, rht: bool | int = False, sign_mask: int = TE_SIGN_MASK, columnwise: bool = False
) -> np.float32:
    """max |x|; NaN is ignored, and an empty array gives 0. With `rht`, of the transformed matrix.

    >>> import numpy as np, fp4lab
    >>> float(fp4lab.amax(np.array([[1.0, -3.0]], np.float32)))
    3.0
    """
    array = _arrays.matrix(x)
    return np.float32(_core.amax(array, "nvfp4.te", hadamard_size(rht), sign_mask, columnwise)[0])


def rht(x: Any, *, size: int = 16, sign_mask: int = TE_SIGN_MASK, axis: int = -1) -> np.ndarray:
    """The random Hadamard transform of groups of `size` along an axis, with Transformer Engine's
    rounding: exact sums, one factor, the result rounded to bfloat16.

    Args:
        x: (rows, columns) of bfloat16 values; the axis is a multiple of `size`.
        size: 2, 4, 8, 16, 32, 64 or 128.
        sign_mask: bit i negates element i of a group; larger groups repeat it.
        axis: -1 or 1 (along the rows), 0 or -2 (down the columns).

    Returns:
        float32 values that are bfloat16 numbers, of x's shape.

    Raises:
        fp4lab.Error: for other sizes, partial groups and values that are not bfloat16.

    >>> import numpy as np, fp4lab
    >>> fp4lab.rht(np.eye(1, 16, dtype=np.float32))[0, :4]
    array([0.25, 0.25, 0.25, 0.25], dtype=float32)
    """
    array = _arrays.matrix(x)
    if axis not in (-2, -1, 0, 1):
        raise ValueError(f"axis {axis}: a matrix has the axes 0 and 1")
    columns = axis in (0, -2)
    out = _core.rht(array, int(size), sign_mask, columns)
    return out.T if columns else out


def replay(
    x: Any,
    words: Any,
    dialect: str | _tables.Dialect = "nvfp4.te",
    *,
    form: str = "te8",
    columnwise: bool = False,
    amax: Any = None,
    scale_layout: str = "linear",
    nibbles: str | None = None,
) -> QTensor:
    """Quantizes with the random words that a device drew, to compare stochastic bytes exactly.

    Args:
        x: as quantize takes it.
        words: uint32, (rows, ceil(columns / 4)) of the quantized matrix: one word for 4 elements.
        form: "te8" (Transformer Engine's software rounder: byte i for element i) or "cvt.rs" (the
            instruction: its published fields of the word).
        The others are quantize's.

    >>> import numpy as np, fp4lab
    >>> x = np.full((1, 16), 2.5, np.float32); x[0, 0] = 6
    >>> up = fp4lab.replay(x, np.full((1, 4), 0xFFFFFFFF, np.uint32))
    >>> float(up.dequantize()[0, 1])
    3.0
    """
    d = _tables.dialect(dialect)
    array = _arrays.matrix(x)
    bits = np.asarray(words)
    if bits.dtype != np.uint32:
        raise TypeError(f"words has dtype {bits.dtype}: uint32 words are read")
    nibbles = default_nibbles(d) if nibbles is None else nibbles
    parts = _core.replay(
        array, np.ascontiguousarray(bits).reshape(-1), d.name, form, columnwise,
        _arrays.amaxes(amax), (nibbles, scale_order(scale_layout), False, False, "amax"),
    )  # fmt: skip
    return _tensor(parts, d, array.shape, columnwise, scale_layout, nibbles, False)


def te_words(
    shape: tuple[int, int],
    rng_state: tuple[int, int],
    *,
    te_kernel: str = "tuned",
    rowwise: bool = True,
    columnwise: bool = False,
    of: str = "rowwise",
) -> np.ndarray:
    """The random words that a Transformer Engine kernel takes by its source, for replay.

    Derived from source and never compared with a GPU.

    Args:
        shape: (rows, columns) of the tensor.
        rng_state: (seed, offset).
        te_kernel: "tuned", "opt2d", "generic" or "fused-hadamard".
        rowwise, columnwise: the outputs of the launch.
        of: "rowwise" or "columnwise": the output whose words are returned.

    Returns:
        uint32, (rows, ceil(columns / 4)); of the transposed shape for "columnwise".
    """
    if of not in ("rowwise", "columnwise"):
        raise ValueError(f'of "{of}" is not one of: rowwise, columnwise')
    seed, offset = rng_state
    return _core.te_words(
        te_kernel, int(shape[0]), int(shape[1]), rowwise, columnwise, of == "columnwise",
        int(seed), int(offset),
    )  # fmt: skip


def encode(x: Any, format: str = "float4_e2m1fn", *, overflow: str = "saturate") -> np.ndarray:
    """The codes of numbers in a format, rounded to nearest even.

    Args:
        x: numbers of any shape, as quantize takes them.
        format: a name of formats(), long or short.
        overflow: "saturate", or "special": the format's infinity or NaN where it has one, as the
            casts of ml_dtypes and torch do.

    Returns:
        uint8 (uint16, uint32 for wider formats) of x's shape, one code an element.

    >>> import numpy as np, fp4lab
    >>> fp4lab.encode(np.array([0.3, -6.0, 100.0], np.float32), "e2m1").tolist()
    [1, 15, 7]
    """
    if overflow not in ("saturate", "special"):
        raise ValueError(f'overflow "{overflow}" is not one of: saturate, special')
    array = _arrays.numbers(x)
    if array.dtype == np.uint16:
        array = (array.astype(np.uint32) << 16).view(np.float32)
    flat = np.ascontiguousarray(array).reshape(-1)
    codes = _core.encode(format, flat, overflow == "saturate").reshape(array.shape)
    bits = next(f.bits for f in _tables.formats() if format in (f.name, f.short_name))
    return codes.astype(np.uint8 if bits <= 8 else np.uint16 if bits <= 16 else np.uint32)


def decode(codes: Any, format: str = "float4_e2m1fn") -> np.ndarray:
    """The values of codes, one an element, as float32.

    >>> import numpy as np, fp4lab
    >>> fp4lab.decode(np.arange(8, dtype=np.uint8)).tolist()
    [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
    """
    array = np.asarray(codes)
    if array.dtype.kind != "u":
        array = array.view(np.uint8) if array.dtype.itemsize == 1 else array.view(np.uint16)
    flat = np.ascontiguousarray(array.astype(np.uint32)).reshape(-1)
    return _core.decode(format, flat).reshape(array.shape)


_ieee.guard(globals())
