"""QTensor: a quantized matrix with the facts that are needed to read its bytes."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from . import _arrays, _core, _ieee, _tables
from ._arguments import flag, integer, one_of, text

# The names of the program's options --codes-order and --tensor-scale-is.
NIBBLES = ("low-first", "high-first", "split-halves", "bytes", "dense6")
TENSOR_SCALES = ("amax", "multiplier", "divisor", "none")
_OLD_TENSOR_SCALE = "level_two"  # its member and key in files of older versions
# Names of scale layouts: the program's (--scales-order), and those of torch and Transformer Engine.
_SCALE_LAYOUTS = {
    "linear": "linear", "padded": "padded", "swizzled_32_4_4": "128x4", "SWIZZLE_32_4_4": "128x4",
    "128x4": "128x4", "swizzled_8_4": "8x4", "8x4": "8x4",
}  # fmt: skip
_PUBLIC_LAYOUTS = {"linear": "linear", "padded": "padded", "128x4": "swizzled_32_4_4", "8x4": "8x4"}
# Types of safetensors for the bytes of a format.
_SCALE_TYPES = {"byte": (np.uint8, ""), "fp32": (np.float32, "F32"), "bf16": (np.uint16, "BF16")}
_SAFETENSORS = {"float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "float8_e8m0fnu": "F8_E8M0"}


def scale_order(name: str) -> str:
    """The library's name of a scale layout. Raises fp4lab.Error for an unknown one."""
    one_of(name, "scale_layout", _SCALE_LAYOUTS)
    return _SCALE_LAYOUTS[name]


def check_parts(dialect: str, rows: int, cols: int, layout: Any, codes: Any, scales: Any) -> None:
    """Raises fp4lab.Error for shapes of codes or scales that their layout does not have.

    Sizes that do not fit at all are left to the library.
    """
    code_rows, row_bytes, scale_rows, scale_cols = _core.sizes(dialect, rows, cols, layout)
    _arrays.check_shape(codes, [(code_rows, row_bytes)], "codes", f"{layout[0]} codes of a {rows}x{cols} matrix are")
    what = f"{layout[1]} scales of a {rows}x{cols} matrix are"
    _arrays.check_shape(scales, _scale_shapes(layout[1], scale_rows, scale_cols), "scales", what)


def _scale_shapes(order: str, rows: int, cols: int) -> list[tuple[int, ...]]:
    """The shapes in which scales of an order are stored: the grid; of tiles also a run, the tiles, and torchao's
    rows of 16 bytes a tile.
    """
    shapes: list[tuple[int, ...]] = [(rows, cols)]
    if order in ("128x4", "8x4"):
        tile = 128 if order == "128x4" else 8
        shapes += [(rows * cols,), (rows // tile, cols // 4, tile * 4), (rows // 4, cols * 4)]
    return shapes


def default_nibbles(dialect: _tables.Dialect) -> str:
    return "low-first" if dialect.element_bits == 4 else "bytes"


@dataclass(frozen=True, eq=False)
class QTensor:
    """A quantized matrix.

    The arrays are kept as they are given and returned as they are kept: nothing is copied.

    Attributes:
        data: uint8, the codes: (rows, bytes of a row); 4-bit codes in pairs as `nibbles` says.
        scale_inv: the block scales, (rows, columns) with the padding of `scale_layout`; (0, 0) where the
            tensor is one block. uint8, or where the dialect's scales are numbers, float32 or bfloat16
            (uint16 with the bits).
        amax: the tensor's largest magnitude: numpy.float32, an array with one a row for dialects
            with a scale for each row, or None without a tensor scale.
        shape: (rows, columns) of the tensor.
        dialect: the name of the formulas.
        columnwise: whether the bytes are those of the transposed tensor, with blocks along the
            tensor's rows (Transformer Engine's columnwise data).
        scale_layout: "linear", "padded" (rows to 128, columns to 4), "128x4" (the tiles that tensor
            cores read) or "8x4", as the program's --scales-order has them. "swizzled_32_4_4" is
            another name of "128x4" (torch's SWIZZLE_32_4_4), and the one that the attribute holds.
        nibbles: "low-first" (the even column in the low nibble), "high-first", "split-halves"
            (ggml), "bytes" (one code a byte) or "dense6" (four 6-bit codes in three bytes), as the
            program's --codes-order has them.
        expanded_scales: whether the scale of a 16x16 block is repeated for each of its rows.

    >>> import numpy as np, fp4lab
    >>> q = fp4lab.quantize(np.eye(32, dtype=np.float32))
    >>> q
    QTensor(32x32, nvfp4.te, amax 1, scales linear)
    >>> q.data.shape, q.scale_inv.shape
    ((32, 16), (32, 2))
    >>> bool((q.dequantize() == np.eye(32)).all())
    True
    """

    data: np.ndarray
    scale_inv: np.ndarray
    amax: Any
    shape: tuple[int, int]
    dialect: str = "nvfp4.te"
    columnwise: bool = False
    scale_layout: str = "linear"
    nibbles: str = "low-first"
    expanded_scales: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale_layout", _PUBLIC_LAYOUTS[scale_order(self.scale_layout)])
        try:
            rows, cols = self.shape
        except (TypeError, ValueError):
            raise _core.Error(f"shape: {self.shape!r}; a QTensor is a matrix (rows, columns)") from None
        sizes = [integer(n, f"shape[{i}]", 0, 2**40) for i, n in enumerate((rows, cols))]
        object.__setattr__(self, "shape", tuple(sizes))
        for name in ("columnwise", "expanded_scales"):
            object.__setattr__(self, name, flag(getattr(self, name), name))
        text(self.nibbles, "nibbles")
        if not isinstance(self.dialect, str) or self.dialect.endswith(".json"):
            object.__setattr__(self, "dialect", _tables.dialect(self.dialect).name)

    # The matrix as the bytes have it: transposed for columnwise data.
    @property
    def _oriented(self) -> tuple[int, int]:
        rows, cols = self.shape
        return (cols, rows) if self.columnwise else (rows, cols)

    def _layout(self) -> tuple[str, str, bool, bool, str]:
        order = scale_order(self.scale_layout)
        return (self.nibbles, order, False, self.expanded_scales, "amax")

    def _parts(self) -> tuple[np.ndarray, np.ndarray, list[float]]:
        data, _, data_shape = _arrays.codes(self.data, "data")
        scales, scales_shape, _ = _arrays.scales(self.scale_inv, "scale_inv")
        if data.size:
            check_parts(self.dialect, *self._oriented, self._layout(), data_shape, scales_shape)
        return data, scales, _arrays.amaxes(self.amax)

    def _decodable_parts(self) -> tuple[np.ndarray, np.ndarray, list[float]]:
        """_parts() with an amax that is a magnitude: what a product or a decoder takes."""
        _arrays.magnitudes(self.amax)
        return self._parts()

    @property
    def nbytes(self) -> int:
        """The bytes of codes and scales."""
        return int(self.data.nbytes + self.scale_inv.nbytes)

    def __repr__(self) -> str:
        number = "none" if self.amax is None else "a row" if np.ndim(self.amax) else f"{self.amax:g}"
        text = f"QTensor({self.shape[0]}x{self.shape[1]}, {self.dialect}, amax {number}, "
        text += f"scales {self.scale_layout}"
        return text + (", columnwise)" if self.columnwise else ")")

    def dequantize(self, dtype: Any = "float32") -> np.ndarray:
        """The values, (rows, columns) of the tensor: element * block scale * tensor scale, in the
        order of operations of the dialect's code base, then rounded to `dtype`.

        Args:
            dtype: "float32", "float16", "bfloat16" (ml_dtypes if it is installed, else uint16), or
                a numpy dtype.

        Raises:
            fp4lab.Error: if sizes or shapes do not fit, a byte is no code, the tensor scale is
                missing, or the amax is negative or NaN.
        """
        rows, cols = self._oriented
        values = _core.dequantize(self.dialect, rows, cols, self._layout(), self._decodable_parts())
        values = _arrays.as_dtype(values, dtype)
        return values.T if self.columnwise else values

    def to(
        self,
        *,
        scale_layout: str | None = None,
        nibbles: str | None = None,
        expanded_scales: bool | None = None,
    ) -> QTensor:
        """The same matrix in another layout; values do not change. Absent arguments keep theirs.

        >>> import numpy as np, fp4lab
        >>> q = fp4lab.quantize(np.ones((128, 64), np.float32))
        >>> q.to(scale_layout="swizzled_32_4_4").scale_inv.shape
        (128, 4)
        """
        target = replace(
            self,
            scale_layout=self.scale_layout if scale_layout is None else scale_layout,
            nibbles=self.nibbles if nibbles is None else nibbles,
            expanded_scales=self.expanded_scales if expanded_scales is None else expanded_scales,
        )
        rows, cols = self._oriented
        data, scales, _ = _core.convert(
            self.dialect, rows, cols, self._layout(), self._parts(), target._layout()
        )
        return replace(target, data=data, scale_inv=scales)

    def tensor_scale(self, convention: str = "amax") -> np.ndarray | np.float32 | None:
        """The tensor scale as other code bases store it.

        Args:
            convention: "amax" (Transformer Engine), "multiplier" (amax / C: ModelOpt's
                weight_scale_2) or "divisor" (C / amax: compressed-tensors' weight_global_scale).

        >>> import numpy as np, fp4lab
        >>> float(fp4lab.quantize(np.full((1, 16), 2688, np.float32)).tensor_scale("multiplier"))
        1.0
        """
        one_of(convention, "convention", TENSOR_SCALES[:3])
        if self.amax is None or convention == "amax":
            return self.amax
        rows, cols = self._oriented
        to = (*self._layout()[:4], convention)
        parts = self._parts()
        numbers = _core.convert(self.dialect, rows, cols, self._layout(), parts, to)[2]
        return numbers if np.ndim(self.amax) else numbers[0]

    # ---- Files, in the convention of the program fp4lab (`fp4lab inspect FILE` reads them).

    def _description(self) -> str:
        d = _tables.dialect(self.dialect)
        rows, cols = self._oriented
        kind = _arrays.scales(self.scale_inv, "scale_inv")[2]
        return json.dumps(
            {
                "dialect": d.name,
                "shape": [rows, cols],
                "element": d.element,
                "scale": d.scale if kind == "byte" else kind,
                "block": list(d.block),
                "codes": self.nibbles,
                "scales": scale_order(self.scale_layout),
                "transposed": False,
                "expanded_scales": self.expanded_scales,
                "tensor_scale_is": "amax",
            },
            sort_keys=True,
        )

    def save(self, path: str | os.PathLike[str], name: str = "") -> None:
        """Writes the matrix to a .npz or .safetensors file, in the convention that the program
        fp4lab reads; the file appears whole or not at all.

        Args:
            path: ends in .npz or .safetensors.
            name: the name of the matrix in the file; may be empty.

        Raises:
            ValueError: for another ending.
        """
        path = os.fspath(path)
        dot = name + "." if name else ""
        rows, cols = self._oriented
        sizes = _core.sizes(self.dialect, rows, cols, self._layout())
        data, scales, numbers = self._parts()
        kind = _arrays.scales(self.scale_inv, "scale_inv")[2]
        scales = scales.view(_SCALE_TYPES[kind][0])
        if data.size != sizes[0] * sizes[1] or scales.size != sizes[2] * sizes[3]:
            raise ValueError(
                f"{path}: {data.size} bytes of codes and {scales.size} scales; a {rows}x{cols} "
                f"matrix has {sizes[0] * sizes[1]} and {sizes[2] * sizes[3]}"
            )
        arrays = {dot + "codes": data.reshape(sizes[0], sizes[1])}
        if scales.size:
            shape = (sizes[2], sizes[3])
            if self.scale_layout in ("swizzled_32_4_4", "8x4"):
                shape = (1, sizes[2] * sizes[3])
            arrays[dot + "scales"] = scales.reshape(shape)
        if numbers:
            arrays[dot + "tensor_scale"] = np.asarray(numbers, np.float32)
        key = "fp4lab." + name if name else "fp4lab"
        meta = {key: self._description()}
        if self.columnwise:
            meta[dot + "columnwise"] = "true"
        if path.endswith(".npz"):
            _files.write_npz(path, arrays, meta)
        elif path.endswith(".safetensors"):
            d = _tables.dialect(self.dialect)
            kinds = {dot + "codes": "U8", dot + "tensor_scale": "F32"}
            kinds[dot + "scales"] = _SCALE_TYPES[kind][1] or _SAFETENSORS.get(d.scale, "U8")
            shapes = {k: list(v.shape) for k, v in arrays.items()}
            if d.element_bits == 4 and self.nibbles == "low-first":
                kinds[dot + "codes"], shapes[dot + "codes"] = "F4", [sizes[0], 2 * sizes[1]]
            elif d.element_bits == 8:
                kinds[dot + "codes"] = _SAFETENSORS.get(d.element, "U8")
            _files.write_safetensors(path, arrays, kinds, shapes, meta)
        else:
            raise ValueError(f"{path}: ends neither in .npz nor in .safetensors")

    @staticmethod
    def load(path: str | os.PathLike[str], name: str | None = None) -> QTensor:
        """Reads a matrix that QTensor.save or the program fp4lab wrote.

        Args:
            path: a .npz or .safetensors file.
            name: the name of the matrix; None: the file's only one.

        Raises:
            ValueError: for a file without such a matrix, with the names that it has.
        """
        path = os.fspath(path)
        arrays, meta = _files.read(path)
        keys = [k for k in meta if k.split(".")[0] == "fp4lab"]
        names = [k[len("fp4lab.") :] for k in keys]
        if name is None:
            if len(names) != 1:
                raise ValueError(f"{path}: holds {len(names)} matrices; name one of: {names}")
            name = names[0]
        key = "fp4lab." + name if name else "fp4lab"
        if key not in meta:
            raise ValueError(f'{path}: holds no matrix "{name}"; it has: {names}')
        facts = json.loads(meta[key])
        dot = name + "." if name else ""
        numbers = arrays.get(dot + "tensor_scale", arrays.get(dot + _OLD_TENSOR_SCALE))
        scales = arrays.get(dot + "scales", np.zeros((0, 0), np.uint8))
        convention = facts.get("tensor_scale_is", facts.get(_OLD_TENSOR_SCALE))
        if facts["transposed"] or convention not in ("amax", "none"):
            raise ValueError(
                f"{path}: stored transposed or with another tensor scale than the amax; "
                "`fp4lab convert` brings it into the usual layout"
            )
        dialect = _tables.dialect(facts["dialect"])
        rows, cols = facts["shape"]
        columnwise = meta.get(dot + "columnwise", "false") == "true"
        layout = (facts["codes"], facts["scales"], False, facts["expanded_scales"], "amax")
        sizes = _core.sizes(dialect.name, rows, cols, layout)
        data = arrays[dot + "codes"]
        for part, size in ((data, sizes[0] * sizes[1]), (scales, sizes[2] * sizes[3])):
            if part.size != size:
                raise ValueError(f"{path}: {part.size} bytes where a {rows}x{cols} matrix has {size}")
        if numbers is None or not dialect.tensor_scale:
            amax = None
        else:
            amax = numbers if dialect.row_scaled else np.float32(numbers.reshape(-1)[0])
        return QTensor(
            data=data.reshape(sizes[0], sizes[1]),
            scale_inv=scales.reshape(sizes[2], sizes[3]),
            amax=amax,
            shape=(cols, rows) if columnwise else (rows, cols),
            dialect=dialect.name,
            columnwise=columnwise,
            scale_layout=facts["scales"],
            nibbles=facts["codes"],
            expanded_scales=facts["expanded_scales"],
        )


from . import _files  # noqa: E402: only save and load need it

_ieee.guard(globals())
