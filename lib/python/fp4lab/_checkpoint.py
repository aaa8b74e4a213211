"""The check of a whole checkpoint, and the comparison of two dumps."""

from __future__ import annotations

import json
import os
import tempfile
from typing import Any

from . import _core, _ieee

_DTYPES = {
    "u1": "U8", "i1": "I8", "u2": "BF16", "f2": "F16", "f4": "F32", "u4": "U32", "i4": "I32",
    "f8": "F64", "i8": "I64", "u8": "U64", "i2": "I16", "b1": "BOOL",
}  # fmt: skip


def _as_safetensors(path: str, folder: str) -> str:
    """Writes the arrays of an .npz file as .safetensors into a folder; returns the new path."""
    import numpy as np

    from . import _files

    with np.load(path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    texts = {k: v.tobytes().decode() for k, v in arrays.items() if k.split(".")[0] == "fp4lab"}
    arrays = {k: v for k, v in arrays.items() if k not in texts}
    kinds = {}
    for name, array in arrays.items():
        kind = array.dtype.str[1:]
        if kind not in _DTYPES:
            raise _core.Error(f"{path}#{name}: is {array.dtype}; known are {', '.join(_DTYPES)}")
        kinds[name] = _DTYPES[kind]
    shapes = {name: list(array.shape) for name, array in arrays.items()}
    out = os.path.join(folder, os.path.basename(path)[: -len(".npz")] + ".safetensors")
    _files.write_safetensors(out, arrays, kinds, shapes, texts)
    return out


def check_checkpoint(
    path: str | os.PathLike[str],
    original: str | os.PathLike[str] | None = None,
    values: str | os.PathLike[str] | None = None,
) -> dict[str, Any]:
    """Looks through a whole checkpoint: what is quantized, how it is stored, and what is wrong.

    The result is that of `fp4lab check --json`: "matrices" (name, naming, formula, shape, layout, the names
    of their findings), "findings" (finding, where, text, remedy) and "clean".

    Args:
        path: a folder of shards, a *.index.json, or a .safetensors, .gguf or .npz file.
        original: what was quantized: a checkpoint of numbers or of quantized matrices, or one .npy file.
            Each matrix then has "original": whether the bytes are those of a dialect, the SQNR of every
            reading, the cause.
        values: what another program decoded, as such files. Each matrix then has "values": how many
            differ from what it decodes to, by which factor, the cause.

    Raises:
        Error: for files that cannot be read.

    >>> import numpy as np, tempfile, fp4lab
    >>> q = fp4lab.quantize(np.eye(16, 32, dtype=np.float32), "nvfp4.te")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     q.save(folder + "/q.safetensors")
    ...     report = fp4lab.check_checkpoint(folder)
    >>> [(m["formula"], m["shape"]) for m in report["matrices"]]
    [('NVFP4', [16, 32])]
    """
    given = [os.fspath(p) if p is not None else "" for p in (path, original, values)]
    with tempfile.TemporaryDirectory(prefix="fp4lab-") as folder:
        read = []
        for i, name in enumerate(given):
            place = os.path.join(folder, str(i))
            os.mkdir(place)
            read.append(_as_safetensors(name, place) if name.endswith(".npz") else name)
        report = json.loads(_core.check_checkpoint(*read))
    return {**report, "path": given[0]}


def compare_dumps(
    first: str | os.PathLike[str],
    second: str | os.PathLike[str],
    least_sqnr: float | None = None,
    names: dict[str, str] | None = None,
) -> dict[str, Any]:
    """Compares two dumps of named tensors: of a training and a rollout engine, of two versions of a program.

    The result is that of `fp4lab compare --json`: "tensors" (name, equal, accepted, different, max_difference,
    max_relative, sqnr_db, factor, first, where, cause), "only_first", "only_second", "first_different" and
    "accepted".

    Args:
        first: a folder of .safetensors and .npy files, or one .safetensors, .npz or .npy file.
        second: the same, with tensors of the same names.
        least_sqnr: accepts tensors whose difference is so many decibels below the first dump's values. None:
            equal tensors only.
        names: names of the second dump by those of the first, where they differ; "*" is a number.

    Raises:
        Error: for files that cannot be read, and dumps without a common name.

    >>> import numpy as np, tempfile, fp4lab
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(folder + "/a.npz", h=np.float32([1, 2, 3]))
    ...     np.savez(folder + "/b.npz", h=np.float32([1, 2, 4]))
    ...     report = fp4lab.compare_dumps(folder + "/a.npz", folder + "/b.npz")
    >>> [(t["name"], t["different"], t["first"]["place"]) for t in report["tensors"]]
    [('h', 1, [2])]
    """
    given = [os.fspath(first), os.fspath(second)]
    with tempfile.TemporaryDirectory(prefix="fp4lab-") as folder:
        read = []
        for i, name in enumerate(given):
            place = os.path.join(folder, str(i))
            os.mkdir(place)
            read.append(_as_safetensors(name, place) if name.endswith(".npz") else name)
        report = json.loads(_core.compare_dumps(*read, least_sqnr, json.dumps(names or {})))
    return {**report, "paths": given}


_ieee.guard(globals())
