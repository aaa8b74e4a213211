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
import json
import pathlib
import struct
import sys

from tokenizers import ByteLevelBPETokenizer, Tokenizer

SAMPLE = 64 << 20  # bytes of the text that the vocabulary is trained on
PIECE = 1 << 20  # bytes that are encoded at once; a piece ends at a line's end
HEADER = struct.Struct("<256i")


def pieces(data):
    """Parts of about PIECE bytes that end at a line's end, as text; bytes that are no UTF-8 become U+FFFD."""
    start = 0
    while start < len(data):
        end = data.find(b"\n", min(start + PIECE, len(data)))
        end = len(data) if end < 0 else end + 1
        yield data[start:end].decode(errors="replace")
        start = end


def train(data, vocabulary):
    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(pieces(data[:SAMPLE]), vocab_size=vocabulary, show_progress=False)
    return tokenizer.to_str()


def encode(tokenizer, data):
    """The tokens of the text, uint16."""
    tokens = array.array("H")
    model = Tokenizer.from_str(tokenizer)
    batch = []
    for piece in pieces(data):
        batch.append(piece)
        if len(batch) == 16:
            for encoded in model.encode_batch(batch):
                tokens.extend(encoded.ids)
            batch = []
    for encoded in model.encode_batch(batch):
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
         "tokenizer": json.loads(tokenizer)}, indent=1) + "\n")


if __name__ == "__main__":
    if len(sys.argv) != 3 or not sys.argv[2].isdigit() or not 257 <= int(sys.argv[2]) <= 65536:
        sys.exit(__doc__)
    main(sys.argv[1], int(sys.argv[2]))
