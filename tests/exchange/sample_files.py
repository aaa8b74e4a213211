"""Writes small quantized tensors as other people's programs do, with the values that they stand for.

Independent of fp4lab: NumPy, struct and json only. Facts: Transformer Engine's nvfp4_tensor_storage.py and
dequantize_nvfp4.cuh, Model-Optimizer's nvfp4_tensor.py, compressed-tensors' nvfp4 compressor, ggml-common.h
(block_mxfp4, block_nvfp4) and ggml's gguf.md.

  sample_files.py FOLDER   writes FOLDER/<sample>.{safetensors,gguf} and FOLDER/<sample>.values.npy (float32)
"""
import json
import struct
import sys

import numpy as np

E2M1 = np.array([0, .5, 1, 1.5, 2, 3, 4, 6, -0., -.5, -1, -1.5, -2, -3, -4, -6], np.float32)


def e4m3(byte):
    e, m = byte.astype(int) >> 3 & 15, byte.astype(int) & 7
    return np.where(e > 0, np.ldexp(1 + m / 8, e - 7), np.ldexp(m / 8, -6)).astype(np.float32)


def e8m0(byte):
    return np.ldexp(np.float32(1), byte.astype(int) - 127).astype(np.float32)


def pairs(codes):  # the even column in the low nibble
    return (codes[:, 0::2] | codes[:, 1::2] << 4).astype(np.uint8)


def safetensors(path, tensors, metadata=None):
    header, data = {"__metadata__": metadata} if metadata else {}, b""
    for name, (dtype, array) in tensors.items():
        raw = array.tobytes()
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    open(path, "wb").write(struct.pack("<Q", len(text)) + text + data)


def gguf(path, tensors):  # name: (ggml type, dimensions innermost first, bytes)
    def string(s):
        return struct.pack("<Q", len(s)) + s.encode()

    infos, data = b"", b""
    for name, (kind, dims, raw) in tensors.items():
        infos += string(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims)
        infos += struct.pack("<IQ", kind, len(data))
        data += raw + bytes(-len(raw) % 32)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), 2)
    head += string("general.architecture") + struct.pack("<I", 8) + string("llama")
    head += string("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, 2) + string("a") + string("b")
    head += infos
    open(path, "wb").write(head + bytes(-len(head) % 32) + data)


def split_halves(codes, block):  # element j in the low nibble, j + block / 2 in the high one
    b = codes.reshape(-1, block)
    return (b[:, :block // 2] | b[:, block // 2:] << 4).astype(np.uint8)


def main(folder):
    rng = np.random.default_rng(20260101)
    rows, cols = 6, 192
    codes = rng.integers(0, 16, (rows, cols)).astype(np.uint8)
    scales = rng.integers(0, 0x7F, (rows, cols // 16)).astype(np.uint8)  # E4M3, no NaN
    exponents = rng.integers(100, 150, (rows, cols // 32)).astype(np.uint8)  # E8M0
    v = E2M1[codes]
    s = np.repeat(e4m3(scales), 16, axis=1)
    amax = np.float32(3.141)
    one = np.float32(1)

    def done(name, values):
        np.save(f"{folder}/{name}.values.npy", values.astype(np.float32))

    # Transformer Engine: amax, scales padded to multiples of 128 rows and 4 columns with arbitrary
    # bytes.
    padded = np.full((128, 12), 0xAB, np.uint8)
    padded[:rows, :] = scales
    safetensors(f"{folder}/te.safetensors", {
        "fc1.weight_rowwise_data": ("U8", pairs(codes)),
        "fc1.weight_rowwise_scale_inv": ("U8", padded),
        "fc1.weight_amax_rowwise": ("F32", np.array([amax]))})
    done("te", v * ((s * amax) * (one / np.float32(2688))))

    # ModelOpt: the second scale is a multiplier.
    multiplier = amax / np.float32(2688)
    safetensors(f"{folder}/modelopt.safetensors", {
        "model.layers.0.mlp.up_proj.weight": ("U8", pairs(codes)),
        "model.layers.0.mlp.up_proj.weight_scale": ("F8_E4M3", scales),
        "model.layers.0.mlp.up_proj.weight_scale_2": ("F32", np.array(multiplier)),
        "model.layers.0.mlp.up_proj.input_scale": ("F32", np.array(one)),
        "model.layers.0.norm.weight": ("BF16", np.zeros(4, np.uint16))})
    done("modelopt", v * (s * multiplier))

    # ComfyUI: codes high-first, scales in tiles of 128x4, and a marker beside the weight; or, in place
    # of the marker, the layers in the file's metadata.
    tile = np.full((128, 12), 0, np.uint8)
    tile[:rows, :] = scales
    tile = tile.reshape(1, 4, 32, 3, 4).transpose(0, 3, 2, 1, 4).reshape(128, 12)
    high_first = codes[:, 0::2] << 4 | codes[:, 1::2]
    comfy = {"blocks.0.q.weight": ("U8", high_first), "blocks.0.q.weight_scale": ("U8", tile),
             "blocks.0.q.weight_scale_2": ("F32", np.array(multiplier))}
    marker = np.frombuffer(b'{"format": "nvfp4"}', np.uint8)
    safetensors(f"{folder}/comfyui.safetensors", {**comfy, "blocks.0.q.comfy_quant": ("U8", marker)})
    done("comfyui", v * (s * multiplier))
    safetensors(f"{folder}/comfyui-metadata.safetensors", comfy, {
        "_quantization_metadata": '{"format_version": "1.0", "layers": '
                                  '{"blocks.0.q": {"format": "nvfp4"}}}'})
    done("comfyui-metadata", v * (s * multiplier))

    # compressed-tensors: the global scale is a divisor.
    divisor = np.float32(2688) / amax
    safetensors(f"{folder}/compressed-tensors.safetensors", {
        "lin.weight_packed": ("U8", pairs(codes)),
        "lin.weight_scale": ("F8_E4M3", scales),
        "lin.weight_global_scale": ("F32", np.array([divisor]))})
    done("compressed-tensors", v * (s / divisor))
    safetensors(f"{folder}/compressed-tensors-mxfp4.safetensors", {
        "lin.weight_packed": ("U8", pairs(codes)), "lin.weight_scale": ("U8", exponents)})
    done("compressed-tensors-mxfp4", v * np.repeat(e8m0(exponents), 32, axis=1))

    # ggml: NVFP4 = 4 scale bytes and 32 bytes of codes for 64 elements, MXFP4 = 1 and 16 for 32.
    nv = np.concatenate([scales.reshape(-1, 4), split_halves(codes, 16).reshape(-1, 32)], axis=1)
    mx = np.concatenate([exponents.reshape(-1, 1), split_halves(codes, 32)], axis=1)
    f32 = np.float32
    gguf(f"{folder}/ggml-nvfp4.gguf", {
        "blk.0.ffn_up.weight": (40, [cols, rows], nv.tobytes()),
        "blk.0.ffn_up.scale": (0, [1], f32(0.375).tobytes()),
        "blk.0.norm.weight": (0, [5], np.zeros(5, f32).tobytes())})
    done("ggml-nvfp4", v * (s * f32(0.375)))
    gguf(f"{folder}/ggml-mxfp4.gguf", {"blk.0.ffn_up.weight": (39, [cols, rows], mx.tobytes())})
    done("ggml-mxfp4", v * np.repeat(e8m0(exponents), 32, axis=1))
    # Three experts of two rows, each with its own tensor scale.
    experts = np.array([0.5, 2, 3], f32)
    gguf(f"{folder}/ggml-experts.gguf", {
        "blk.0.ffn_up_exps.weight": (40, [cols, 2, 3], nv.tobytes()),
        "blk.0.ffn_up_exps.scale": (0, [3], experts.tobytes())})
    done("ggml-experts", v * (s * np.repeat(experts, 2)[:, None]))


if __name__ == "__main__":
    main(sys.argv[1])
