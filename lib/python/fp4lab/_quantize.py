"""Quantizers, transforms and replay on arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import _arrays, _core, _ieee, _tables
from ._arguments import (
    TE_SIGN_MASK,
    flag,
    hadamard,
    integer,
    one_of,
    rounding_label,
    seed as _seed,
    text,
    threads as _threads,
)
from ._qtensor import QTensor, default_nibbles, scale_order


def random_fields(random: Any, shape: tuple[int, int] | None = None) -> np.ndarray | None:
    """uint16 fields of bits as a flat array; None for None.

    Args:
        shape: of the quantized matrix, whose elements take a field each; None: not known.
    """
    if random is None:
        return None
    array, kind = _arrays.raw(random, "random")
    if kind != "uint16":
        raise TypeError(f"random has dtype {kind}: one uint16 field of bits an element is read")
    if shape is not None:
        _arrays.check_shape(array.shape, [shape], "random", "the fields of bits are")
    return np.ascontiguousarray(array).reshape(-1)


def _source(seed: int | None, step: int, tensor: int, generator: str, random: Any,
            columnwise: bool) -> Any:  # fmt: skip
    """The stream of random bits for the library; None without a seed."""
    if seed is None:
        for name, value, absent in (("step", step, 0), ("tensor", tensor, 0), ("generator", generator, "philox")):
            if value != absent:
                raise _core.Error(
                    f"{name}: it is of the stream of random bits that seed starts; give seed, or leave out {name}"
                )
        return None
    if random is not None:
        raise _core.Error("seed: random holds the bits already; give one of them")
    return (_seed(seed), integer(step, "step", 0, 2**32 - 1), integer(tensor, "tensor", 0, 2**32 - 1),
            text(generator, "generator"), columnwise)  # fmt: skip


def check_amax(
    numbers: list[float], array: np.ndarray, d: _tables.Dialect, size: int, sign_mask: int, columnwise: bool
) -> None:
    """Compares a given amax with that of the matrix that is quantized (_arrays.check_amax)."""
    if numbers and d.tensor_scale and array.size:
        own = _core.amax(array, d.name, size, sign_mask, columnwise)
        _arrays.check_amax(numbers, [float(v) for v in own])


def _rng_state(
    rng_state: Any, te_kernel: str | None, seed: Any, random: Any, stochastic: bool, random_bits: Any
) -> tuple[int, int] | None:
    """(seed, offset) of Transformer Engine's generator; None without it. Raises fp4lab.Error for arguments beside
    it that would be lost.
    """
    if rng_state is None:
        if te_kernel is not None:
            raise _core.Error("te_kernel: it is of rng_state, which is absent; give both, or neither")
        return None
    for name, value in (("seed", seed), ("random", random)):
        if value is not None:
            raise _core.Error(f"rng_state: {name} gives random bits, too; give one of them")
    if not stochastic:
        raise _core.Error(
            'rng_state: rounding to nearest takes no random bits; ask for rounding="stochastic", or leave out rng_state'
        )
    if random_bits not in (8, 16):
        raise _core.Error(f"random_bits: {random_bits}; Transformer Engine's kernels take 8: leave it out")
    if te_kernel is None:
        raise _core.Error('rng_state: name the kernel that takes the words, as in te_kernel="tuned"')
    text(te_kernel, "te_kernel")
    return _state(rng_state)


def _state(rng_state: Any) -> tuple[int, int]:
    try:
        state_seed, offset = rng_state
    except (TypeError, ValueError):
        raise TypeError("rng_state: two integers are taken, (seed, offset)") from None
    return _seed(state_seed, "rng_state[0]"), _seed(offset, "rng_state[1]")


def _tensor(parts: Any, d: _tables.Dialect, shape: tuple[int, int], columnwise: bool,
            scale_layout: str, nibbles: str, expanded: bool) -> QTensor:  # fmt: skip
    data, scales, numbers = parts
    amax = None if numbers.size == 0 else numbers if d.row_scaled else np.float32(numbers[0])
    return QTensor(data, scales, amax, shape, d.name, columnwise, scale_layout, nibbles, expanded)


def quantize(
    x: Any,
    dialect: _tables.DialectLike = "nvfp4.te",
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
        dialect: a name of dialects(), or a formula of your own as fp4lab.dialect takes it.
        columnwise: quantizes the transposed matrix (blocks along the rows of x), as Transformer
            Engine's columnwise output.
        both: returns (rowwise, columnwise), the two outputs of Transformer Engine's quantizer.
        amax: the tensor scale's amax where it is not that of x: a reduced one, or one a row for
            dialects with a scale for each row. A smaller one than x's own, 0 as well, is taken with
            an AmaxWarning; negative numbers are refused, and NaN and Inf where x's own is finite.
        rht: True (16) or a size of 2 to 128: the random Hadamard transform along the blocks first;
            under `both` of the columns only, as in Transformer Engine. x must hold bfloat16 values.
        sign_mask: signs of the transform, 32 bits; bit i negates element i of a group. Only with rht.
        rounding: "nearest" (the dialect's own rounding), "stochastic", or a label of the library
            such as "toward_zero".
        random_bits: of stochastic rounding, an element: 4, 8, 16 (cvt.rs) or 32.
        seed, step, tensor, generator: the stream of random bits; the bits of an element depend on
            these and its index alone. seed is 0..2^64 - 1, step and tensor are 0..2^32 - 1.
        random: instead, a uint16 field of bits for each element of the quantized matrix, of its
            shape (turned for columnwise) or in one dimension.
        rng_state: instead, Transformer Engine's (seed, offset): the words are those that the
            kernel `te_kernel` ("tuned", "opt2d", "generic", "fused-hadamard",
            "hadamard-columns") takes by its source, 8 bits per element. Only one of seed, random and
            rng_state is taken, and only with stochastic rounding.
        scale_layout, nibbles, expanded_scales: as QTensor has them.
        threads: the most threads to use; None: OMP_NUM_THREADS, else all. No byte depends on it.

    Returns:
        A QTensor, or two under `both`.

    Raises:
        TypeError: for other types, masked arrays, and arrays outside the memory of the CPU.
        fp4lab.Error (a ValueError): for names and options that do not fit, that are outside of their
            range, or that would have no effect beside the others.

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
    size, signs = hadamard(rht, sign_mask)
    nibbles = default_nibbles(d) if nibbles is None else text(nibbles, "nibbles")
    expanded_scales = flag(expanded_scales, "expanded_scales")
    layout = (nibbles, scale_order(scale_layout), False, expanded_scales, "amax")
    count = _threads(threads)
    columnwise, both = flag(columnwise, "columnwise"), flag(both, "both")
    if both and (columnwise or random is not None):
        raise _core.Error("both: leave out columnwise and random, which are of one output")
    numbers = _arrays.magnitudes(amax)
    label = "" if rng_state is not None and random_bits == 8 else rounding_label(rounding, random_bits)
    stochastic = d.takes_random_bits or str(rounding).startswith("stochastic")
    state = _rng_state(rng_state, te_kernel, seed, random, stochastic, random_bits)

    def one(columns: bool) -> QTensor:
        transform = size if columns or not both else 0
        source = _source(seed, step, tensor, generator, random, columns)
        fields = random_fields(random, shape[::-1] if columns else shape)
        check_amax(numbers, array, d, transform, signs, columns)
        if state is None:
            parts = _core.quantize(array, d.name, label, columns, numbers, fields, source, transform,
                                   signs, layout, count)  # fmt: skip
        else:
            parts = _replayed_by_te(columns, transform, state)
        return _tensor(parts, d, shape, columns, scale_layout, nibbles, expanded_scales)

    def _replayed_by_te(columns: bool, transform: int, state: tuple[int, int]) -> Any:
        words = _core.te_words(te_kernel, shape[0], shape[1], both or not columns,
                               both or columns, columns, *state)  # fmt: skip
        turned, columns_left = array, columns
        if transform:
            turned, columns_left = _core.rht(array, transform, signs, columns), False
        return _core.replay(turned, words.reshape(-1), d.name, "te8", columns_left, numbers, layout)

    if both:
        return one(False), one(True)
    return one(columnwise)


def qdq(
    x: Any,
    dialect: _tables.DialectLike = "nvfp4.te",
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
    elif type(out) is not np.ndarray or out.dtype != np.float32 or out.shape != numbers.shape:
        raise ValueError(f"out: needs a float32 array of shape {numbers.shape}")
    elif not out.flags.c_contiguous or not out.flags.writeable:
        raise ValueError("out: needs a contiguous array that can be written to")
    given = _arrays.magnitudes(amax)
    label = rounding_label(rounding, random_bits)
    source = _source(seed, step, tensor, generator, random, False)
    fields = random_fields(random, array.shape)
    check_amax(given, array, d, 0, TE_SIGN_MASK, False)
    _core.qdq(array, out.reshape(array.shape), d.name, label, given, fields, source,
              _threads(threads))  # fmt: skip
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
    size, signs = hadamard(rht, sign_mask)
    return np.float32(_core.amax(array, "nvfp4.te", size, signs, flag(columnwise, "columnwise"))[0])


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
    columns = integer(axis, "axis", -2, 1) in (0, -2)
    groups, signs = hadamard(integer(size, "size", 1, 128), sign_mask)
    out = _core.rht(array, groups, signs, columns)
    return out.T if columns else out


def replay(
    x: Any,
    words: Any,
    dialect: _tables.DialectLike = "nvfp4.te",
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
        words: uint32, (rows, ceil(columns / 4)) of the quantized matrix, or in one dimension: one
            word for 4 elements.
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
    bits, kind = _arrays.raw(words, "words")
    if kind != "uint32":
        raise TypeError(f"words has dtype {kind}: uint32 words are read")
    columnwise = flag(columnwise, "columnwise")
    rows, cols = array.shape[::-1] if columnwise else array.shape
    _arrays.check_shape(bits.shape, [(rows, -(-cols // n)) for n in (4, 2)], "words", "the words are")
    numbers = _arrays.magnitudes(amax)
    check_amax(numbers, array, d, 0, TE_SIGN_MASK, columnwise)
    nibbles = default_nibbles(d) if nibbles is None else text(nibbles, "nibbles")
    layout = (nibbles, scale_order(scale_layout), False, False, "amax")
    flat = np.ascontiguousarray(bits).reshape(-1)
    parts = _core.replay(array, flat, d.name, text(form, "form"), columnwise, numbers, layout)
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
        te_kernel: "tuned", "opt2d", "generic", "fused-hadamard" or "hadamard-columns".
        rowwise, columnwise: the outputs of the launch.
        of: "rowwise" or "columnwise": the output whose words are returned.

    Returns:
        uint32, (rows, ceil(columns / 4)); of the transposed shape for "columnwise".
    """
    one_of(of, "of", ("rowwise", "columnwise"))
    text(te_kernel, "te_kernel")
    try:
        rows, cols = shape
    except (TypeError, ValueError):
        raise TypeError("shape: two integers are taken, (rows, columns)") from None
    return _core.te_words(
        te_kernel, integer(rows, "shape[0]", 0, 2**40), integer(cols, "shape[1]", 0, 2**40),
        flag(rowwise, "rowwise"), flag(columnwise, "columnwise"), of == "columnwise",
        *_state(rng_state),
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
    one_of(overflow, "overflow", ("saturate", "special"))
    text(format, "format")
    array = _arrays.numbers(x)
    if array.dtype == np.uint16:
        array = (array.astype(np.uint32) << 16).view(np.float32)
    flat = np.ascontiguousarray(array).reshape(-1)
    codes = _core.encode(format, flat, overflow == "saturate").reshape(array.shape)
    bits = next(f.bits for f in _tables.formats() if format in (f.name, f.short_name))
    return codes.astype(np.uint8 if bits <= 8 else np.uint16 if bits <= 16 else np.uint32)


def decode(codes: Any, format: str = "float4_e2m1fn") -> np.ndarray:
    """The values of codes, one an element, as float32.

    Args:
        codes: integers of any width and shape, each a code of the format (0..15 for
            float4_e2m1fn); or an array whose own type is the format (ml_dtypes, torch, JAX).
        format: a name of formats(), long or short.

    Raises:
        TypeError: for other types (floats, bools, an array of another format), which are not codes.
        fp4lab.Error: for an integer that is no code of the format, and an unknown format.

    >>> import numpy as np, fp4lab
    >>> fp4lab.decode(np.arange(8, dtype=np.uint8)).tolist()
    [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
    """
    text(format, "format")
    row = next((f for f in _tables.formats() if format in (f.name, f.short_name)), None)
    if row is None:
        return _core.decode(format, np.zeros(0, np.uint32))  # raises, with names that are near
    array = _codes_of(codes, row)
    _arrays.check_range(array, "codes", 2**row.bits - 1, f"a code of {row.name}")
    flat = np.ascontiguousarray(array.astype(np.uint32)).reshape(-1)
    return _core.decode(format, flat).reshape(array.shape)


def _codes_of(codes: Any, row: _tables.Format) -> np.ndarray:
    """Integers as they are, and arrays of the format's own type as their bits."""
    kind = _arrays.type_name(codes)
    if kind.startswith(("bfloat16", "float4_", "float6_", "float8_")):
        bits, kind = _arrays.raw(codes, "codes")
        if kind == row.name:
            return bits
        raise TypeError(f"codes has dtype {kind}: integers are read, or {row.name}, one code an element")
    return _arrays.integers(codes, "codes")


_ieee.guard(globals())
