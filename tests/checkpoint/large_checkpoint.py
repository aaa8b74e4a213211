"""Writes a large checkpoint of NVFP4 under ModelOpt's names, to measure `fp4lab check` with.

    python3 tests/checkpoint/large_checkpoint.py big.safetensors [MIB]

Codes are random bytes; scales are random bytes of E4M3 below 448. Nothing but Python is needed.
"""

import json
import os
import sys

ROWS, COLS = 8192, 4096  # of a matrix: 16 MiB of codes, 2 MiB of scales


def main(path, mebibytes=1024):
    codes, scales = ROWS * COLS // 2, ROWS * COLS // 16
    matrices = max(1, mebibytes * 2**20 // (codes + scales))
    header, offset = {}, 0
    for i in range(matrices):
        name = f"model.layers.{i}.mlp.down_proj."
        for suffix, dtype, shape, size in (
            ("weight", "U8", [ROWS, COLS // 2], codes),
            ("weight_scale", "F8_E4M3", [ROWS, COLS // 16], scales),
            ("weight_scale_2", "F32", [], 4),
        ):
            header[name + suffix] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + size]}
            offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    table = bytes(0x30 + b % 0x4C for b in range(256))  # finite scales, none of them 0 or 448
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _ in range(matrices):
            file.write(os.urandom(codes))
            file.write(os.urandom(scales).translate(table))
            file.write(bytes.fromhex("6f12833a"))  # 0.001
    print(f"{path}: {matrices} matrices, {os.path.getsize(path)} bytes")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:3]))
