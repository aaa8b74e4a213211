#!/usr/bin/env python3
"""Makes a token file of a text: a byte-level BPE vocabulary, trained on the text's beginning.

  $ data/make_text.py linux-c out
  $ data/make_tokens.py out/linux-c.txt 4096      # out/linux-c-bpe4096.{train,validation}.bin and .json

The files have the format of llm.c ("data": {"tokens": ..., "validation_tokens": ...}). The validation part is the
one that TEXT.json, which make_text.py writes, states. The .json says how many bytes a token is in each part, and
holds the vocabulary, so that losses can be read in nats a byte. Needs the package tokenizers of PyPI.
"""
import array
import hashlib
import itertools
import json
import pathlib
import struct
import sys

from make_text import pieces
from tokenizers import ByteLevelBPETokenizer

SAMPLE = 64 << 20  # bytes of the text that the vocabulary is trained on
PIECE = 1 << 20  # bytes that are encoded at once; a piece ends at a line's end
HEADER = struct.Struct("<256i")


def texts(data):
    """Parts of the text; bytes that are no UTF-8 become U+FFFD."""
    return (piece.decode(errors="replace") for piece in pieces(data, PIECE))


def train(data, vocabulary):
    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(texts(data[:SAMPLE]), vocab_size=vocabulary, show_progress=False)
    return tokenizer


def encode(tokenizer, data):
    """The tokens of the text, uint16."""
    tokens = array.array("H")
    parts = texts(data)
    while batch := list(itertools.islice(parts, 16)):
        for encoded in tokenizer.encode_batch(batch):
            tokens.extend(encoded.ids)
    if sys.byteorder == "big":
        tokens.byteswap()
    return tokens


def write(path, tokens):
    """Returns the SHA-256 of the file."""
    content = HEADER.pack(20240520, 1, len(tokens), *[0] * 253) + tokens.tobytes()
    partial = path.with_name(path.name + ".partial")
    partial.write_bytes(content)
    partial.replace(path)
    return hashlib.sha256(content).hexdigest()


def main(text, vocabulary):
    path = pathlib.Path(text)
    facts = json.loads(path.with_suffix(".json").read_text())
    data = path.read_bytes()
    if hashlib.sha256(data).hexdigest() != facts["sha256"]:
        sys.exit(f"{path}: not the text of {path.with_suffix('.json')}; make both again by data/make_text.py")
    cut = len(data) - facts["validation_bytes"]
    tokenizer = train(data[:cut], vocabulary)
    out = path.with_name(f"{path.stem}-bpe{vocabulary}")
    parts = {}
    for name, part in (("train", data[:cut]), ("validation", data[cut:])):
        tokens = encode(tokenizer, part)
        file = out.with_name(f"{out.name}.{name}.bin")
        parts[name] = {"file": file.name, "bytes": len(part), "tokens": len(tokens),
                       "bytes_per_token": len(part) / len(tokens), "sha256": write(file, tokens)}
        print(f"{file}: {len(tokens):,} tokens of {len(part) / len(tokens):.3f} bytes")
    out.with_name(out.name + ".json").write_text(json.dumps(
        {"text_sha256": facts["sha256"], "vocabulary": vocabulary, "parts": parts,
         "tokenizer": json.loads(tokenizer.to_str())}, indent=1) + "\n")


if __name__ == "__main__":
    if len(sys.argv) != 3 or not sys.argv[2].isdigit() or not 257 <= int(sys.argv[2]) <= 65536:
        sys.exit(__doc__)
    main(sys.argv[1], int(sys.argv[2]))
