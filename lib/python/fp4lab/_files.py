"""Files of quantized matrices: .npz by numpy, .safetensors by their few lines of format."""

from __future__ import annotations

import json
import os
import tempfile
from typing import Any

import numpy as np

_NUMPY = {"F32": "<f4", "U8": "u1", "U16": "<u2", "BF16": "<u2"}


def _atomically(path: str, write: Any) -> None:
    """Calls write(file) on a file beside `path`, which then takes its name."""
    folder = os.path.dirname(os.path.abspath(path))
    handle, temporary = tempfile.mkstemp(dir=folder, prefix=".fp4lab-")
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def write_npz(path: str, arrays: dict[str, np.ndarray], meta: dict[str, str]) -> None:
    texts = {k: np.frombuffer(v.encode(), np.uint8) for k, v in meta.items()}
    _atomically(path, lambda file: np.savez(file, **arrays, **texts))


def write_safetensors(
    path: str,
    arrays: dict[str, np.ndarray],
    kinds: dict[str, str],
    shapes: dict[str, list[int]],
    meta: dict[str, str],
) -> None:
    header: dict[str, Any] = {"__metadata__": meta}
    at = 0
    for name in sorted(arrays):
        size = arrays[name].nbytes
        header[name] = {
            "dtype": kinds[name], "shape": shapes[name], "data_offsets": [at, at + size],
        }  # fmt: skip
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)

    def write(file: Any) -> None:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in sorted(arrays):
            file.write(np.ascontiguousarray(arrays[name]).tobytes())

    _atomically(path, write)


def _is_text(name: str) -> bool:
    return name.split(".")[0] == "fp4lab" or name.split(".")[-1] == "columnwise"


def read(path: str) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Arrays and texts of a file. Raises ValueError for a file that is neither kind, or broken."""
    if path.endswith(".npz"):
        with np.load(path, allow_pickle=False) as file:
            all_ = {k: file[k] for k in file.files}
        texts = {k: v.tobytes().decode() for k, v in all_.items() if _is_text(k)}
        return {k: v for k, v in all_.items() if k not in texts}, texts
    if not path.endswith(".safetensors"):
        raise ValueError(f"{path}: ends neither in .npz nor in .safetensors")
    with open(path, "rb") as file:
        raw = file.read()
    try:
        end = 8 + int.from_bytes(raw[:8], "little")
        header = json.loads(raw[8:end])
        meta = header.pop("__metadata__", {})
        arrays = {}
        for name, tensor in header.items():
            first, last = tensor["data_offsets"]
            if not 0 <= first <= last <= len(raw) - end:
                raise ValueError(f"{name} lies outside of the file")
            kind = _NUMPY.get(tensor["dtype"], "u1")
            arrays[name] = np.frombuffer(raw[end + first : end + last], kind)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: is no .safetensors file: {error}") from error
    return arrays, meta
