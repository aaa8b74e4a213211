"""The check of whole checkpoints."""

import json
import struct

import numpy as np
import pytest

import fp4lab


def save(path, tensors):
    """A .safetensors file of (dtype, array) by name."""
    header, data = {}, b""
    for name, (dtype, array) in tensors.items():
        raw = np.ascontiguousarray(array).tobytes()
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def weights(seed=1, shape=(32, 64)):
    x = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return (x.view(np.uint32) & 0xFFFF0000).view(np.float32)


def modelopt(x, name="l"):
    q = fp4lab.quantize(x, "nvfp4.modelopt")
    number = np.float32(np.max(np.abs(x)) / np.float32(2688))
    return {
        f"{name}.weight": ("U8", q.data),
        f"{name}.weight_scale": ("F8_E4M3", q.scale_inv),
        f"{name}.weight_scale_2": ("F32", number.reshape(())),
    }


def test_a_clean_checkpoint_and_its_original(tmp_path):
    x = weights()
    save(tmp_path / "q.safetensors", modelopt(x))
    np.save(tmp_path / "x.npy", x)
    report = fp4lab.check_checkpoint(tmp_path / "q.safetensors", original=tmp_path / "x.npy")
    assert report["clean"] and report["findings"] == []
    (matrix,) = report["matrices"]
    assert matrix["formula"] == "NVFP4" and matrix["shape"] == [32, 64]
    assert matrix["original"]["equal"]


def test_findings_have_names_and_places(tmp_path):
    tensors = modelopt(weights())
    tensors["l.weight_scale_2"] = ("F32", np.zeros((), np.float32))
    save(tmp_path / "q.safetensors", tensors)
    report = fp4lab.check_checkpoint(tmp_path)
    assert [(f["finding"], f["where"]) for f in report["findings"]] == [("tensor-scale-zero", "l")]
    assert not report["clean"]


def test_npz_is_read_as_safetensors_is(tmp_path):
    arrays = {name: array for name, (_, array) in modelopt(weights()).items()}
    np.savez(tmp_path / "q.npz", **arrays)
    report = fp4lab.check_checkpoint(str(tmp_path / "q.npz"))
    assert report["path"] == str(tmp_path / "q.npz")
    assert [m["formula"] for m in report["matrices"]] == ["NVFP4"]


def test_values_and_another_quantized_checkpoint(tmp_path):
    x = weights()
    save(tmp_path / "q.safetensors", modelopt(x))
    save(tmp_path / "twice.safetensors", modelopt(2 * x))
    np.savez(tmp_path / "same.npz", **{name: array for name, (_, array) in modelopt(x).items()})
    assert fp4lab.check_checkpoint(tmp_path / "q.safetensors", values=tmp_path / "same.npz")["clean"]
    report = fp4lab.check_checkpoint(tmp_path / "q.safetensors", values=tmp_path / "twice.safetensors")
    (finding,) = report["findings"]
    assert finding["finding"] == "values" and "2 times what the matrix decodes to" in finding["text"]
    right = fp4lab.quantize(x, "nvfp4.modelopt").dequantize()
    np.save(tmp_path / "v.npy", right)
    assert fp4lab.check_checkpoint(tmp_path / "q.safetensors", values=tmp_path / "v.npy")["clean"]


def test_what_cannot_be_read_is_an_error(tmp_path):
    with pytest.raises(fp4lab.Error, match="holds no .safetensors"):
        fp4lab.check_checkpoint(tmp_path)
    (tmp_path / "b.safetensors").write_bytes(b"damaged")
    with pytest.raises(fp4lab.Error, match="is not a safetensors file"):
        fp4lab.check_checkpoint(tmp_path / "b.safetensors")


def test_two_dumps(tmp_path):
    x = weights()
    np.savez(tmp_path / "a.npz", **{"layers.0.out": x, "layers.1.out": x, "ids": np.arange(4)})
    (tmp_path / "b").mkdir()
    np.save(tmp_path / "b" / "layers.0.out.npy", x)
    np.save(tmp_path / "b" / "layers.1.out.npy", np.float32(1.5) * x)
    np.save(tmp_path / "b" / "ids.npy", np.arange(4))
    report = fp4lab.compare_dumps(tmp_path / "a.npz", tmp_path / "b")
    assert report["first_different"] == "layers.1.out" and not report["accepted"]
    by_name = {t["name"]: t for t in report["tensors"]}
    assert by_name["ids"]["equal"] and by_name["layers.0.out"]["equal"]
    assert by_name["layers.1.out"]["cause"].startswith("the first is 0.666667 times the second")
    assert fp4lab.compare_dumps(tmp_path / "a.npz", tmp_path / "b", least_sqnr=6)["accepted"]
    names = {"layers.*.out": "layers.*.out", "ids": "layers.0.out"}
    report = fp4lab.compare_dumps(tmp_path / "a.npz", tmp_path / "b", names=names)
    assert report["tensors"][0]["second_name"] == "layers.0.out" and report["tensors"][0]["problem"]
    with pytest.raises(fp4lab.Error, match="as many"):
        fp4lab.compare_dumps(tmp_path / "a.npz", tmp_path / "b", names={"a.*": "b"})
    with pytest.raises(fp4lab.Error, match="is not there"):
        fp4lab.compare_dumps(tmp_path / "a.npz", tmp_path / "none.npy")
