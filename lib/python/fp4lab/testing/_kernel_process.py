"""The process of a kernel that is judged from outside: it holds the kernel and its input, and no answer.

fp4lab.testing runs the text of this file with `python -c`, not as a module of the package: nothing of
fp4lab is in the process, and the kernel cannot import, open or start any of it. A request is a line of
JSON; the input lies in memory that both processes map. The reply is a line of JSON and the bytes of its
arrays; nothing of it is run.
"""

import importlib
import importlib.util
import json
import mmap
import os
import sys

_BYTES = ("uint8", "int8", "uint16", "uint32", "float32", "float64")  # the other types go as bytes


def _refuse_fp4lab(package):
    """Keeps fp4lab out of this process; an audit hook cannot be removed by Python code."""
    folder = os.path.realpath(package) + os.sep

    def mentions(value):
        if isinstance(value, (list, tuple)):
            return any(mentions(v) for v in value)
        if isinstance(value, bytes):
            value = os.fsdecode(value)
        if not isinstance(value, str):
            return False
        words = value.replace("'", " ").replace('"', " ").split()
        return any(os.path.basename(w) == "fp4lab" or w.startswith("fp4lab.") for w in words) or folder in value

    def inside(path):
        if isinstance(path, bytes):
            path = os.fsdecode(path)
        return isinstance(path, str) and os.path.realpath(path).startswith(folder)

    def hook(event, args):
        if event == "import":
            refused = str(args[0]).split(".")[0] == "fp4lab" or inside(args[1])
        elif event in ("open", "ctypes.dlopen"):
            refused = inside(args[0])
        elif event in ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn"):
            refused = mentions(args)
        else:
            return
        if refused:
            raise PermissionError("a kernel that is judged does not use fp4lab")

    sys.addaudithook(hook)


def _load(module, name):
    """The kernel of a file or of a module; raises AttributeError with the functions that there are."""
    if module.endswith(".py"):
        sys.path.insert(0, os.path.dirname(module))
        spec = importlib.util.spec_from_file_location(os.path.basename(module)[:-3], module)
        loaded = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = loaded
        spec.loader.exec_module(loaded)
    else:
        loaded = importlib.import_module(module)
    kernel = getattr(loaded, name, None)
    if not callable(kernel):
        import difflib

        known = [n for n in vars(loaded) if not n.startswith("_") and callable(getattr(loaded, n))]
        near = difflib.get_close_matches(name, known, 1)
        more = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(sorted(known)) or 'none'}"
        raise AttributeError(f"{os.path.basename(module)} has no function {name!r}; {more}")
    return kernel


def _array(memory, np, facts):
    """The array of a request, on the memory that the judge maps, too."""
    kind = facts["dtype"]
    if kind == "bfloat16":
        try:
            import ml_dtypes

            kind = ml_dtypes.bfloat16
        except ImportError:
            kind = np.uint16
    rows, cols = facts["shape"]
    return np.frombuffer(memory, kind, rows * cols, facts["offset"]).reshape(rows, cols)


def _parts(result):
    if isinstance(result, dict):
        unknown = sorted(set(map(str, result)) - {"codes", "scales", "tensor_scale"})
        if unknown or "codes" not in result:
            raise TypeError("the kernel's dict has the keys 'codes', 'scales' and 'tensor_scale'")
        return [result["codes"], result.get("scales"), result.get("tensor_scale")]
    if not isinstance(result, (tuple, list)) or len(result) not in (2, 3):
        raise TypeError(
            f"the kernel returned {type(result).__name__}: return (codes, scales) or (codes, scales, tensor_scale)"
        )
    return [*result, None][:3]


def _reply_of(np, result):
    """(facts, bytes) of what the kernel returned."""
    facts, blobs = [], []
    for part in _parts(result):
        if part is None:
            facts.append(None)
            continue
        array = np.ascontiguousarray(np.asarray(part)).reshape(np.shape(part))
        if array.dtype.name not in _BYTES and array.dtype.kind in "iuf":
            array = array.astype("float64") if array.dtype.kind == "f" else array.astype("int64").astype("uint8")
        elif array.dtype.name not in _BYTES:
            array = array.view("uint8")
        facts.append({"dtype": array.dtype.name, "shape": list(array.shape), "bytes": array.nbytes})
        blobs.append(array.tobytes())
    return {"status": "ok", "arrays": facts}, blobs


def _main(package, module, name, requests, replies, memory, size):
    _refuse_fp4lab(package)
    requests, replies = os.fdopen(requests, "rb"), os.fdopen(replies, "wb")

    def reply(facts, blobs=()):
        replies.write(json.dumps(facts).encode() + b"\n")
        for blob in blobs:
            replies.write(blob)
        replies.flush()

    try:
        import numpy as np

        kernel = _load(module, name)
        shared = mmap.mmap(memory, size)
    except BaseException as error:
        reply({"status": "error", "text": f"{type(error).__name__}: {error}"})
        return
    reply({"status": "ready"})
    for line in requests:
        arrays = [_array(shared, np, facts) for facts in json.loads(line)]
        try:
            answer = _reply_of(np, kernel(*arrays))
        except NotImplementedError:
            answer = {"status": "declined"}, ()
        except BaseException as error:
            answer = {"status": "error", "text": f"{type(error).__name__}: {error}"}, ()
        reply(*answer)


_main(*sys.argv[1:4], *map(int, sys.argv[4:8]))
