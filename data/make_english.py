#!/usr/bin/env python3
"""Makes english.txt, about 115 MB of English from Debian packages, for studies at GPU scale.

  $ data/make_english.py OUT_DIR            # apt-get download and dpkg-deb; no root needed
  $ fp4lab train --text OUT_DIR/english.txt

Dictionaries, manuals, an FAQ and novels, cut into documents (files, or pieces of
64 KiB at a line's end), in the order of their SHA-256. Every 50th goes to the end, for validation:
OUT_DIR/english.json says how large that part is, which packages the text is of, and its SHA-256. The
packages' licences are in usr/share/doc/PACKAGE/copyright; the text is not for redistribution as a
whole.
"""
import glob
import gzip
import hashlib
import json
import os
import struct
import subprocess
import sys
import zlib

PIECE = 1 << 16
EVERY = 50


def pieces(text):
    """Documents of about 64 KiB that end at a line's end."""
    start = 0
    while start < len(text):
        end = text.find(b"\n", min(start + PIECE, len(text)))
        end = len(text) if end < 0 else end + 1
        yield text[start:end]
        start = end


def dictionary(root, name):
    with gzip.open(f"{root}/usr/share/dictd/{name}.dict.dz") as file:
        yield from pieces(file.read())


def files(root, pattern):
    for path in sorted(glob.glob(root + pattern, recursive=True)):
        with open(path, "rb") as file:
            data = file.read()
        yield gzip.decompress(data) if path.endswith(".gz") else data


def novels(root):
    """The strings of an R lazy-load database: records of a big-endian length and a zlib stream."""
    with open(glob.glob(root + "/usr/**/janeaustenr/data/Rdata.rdb", recursive=True)[0], "rb") as file:
        data = file.read()
    at = 0
    while at < len(data):
        (length,) = struct.unpack(">I", data[at:at + 4])
        stream = zlib.decompressobj()
        record = stream.decompress(data[at + 4:])
        at = len(data) - len(stream.unused_data)
        lines, place = [], 0
        while place + 8 <= len(record):
            flags, size = struct.unpack(">Ii", record[place:place + 8])
            if flags & 0xFF == 9 and 0 <= size <= len(record) - place - 8:
                lines.append(record[place + 8:place + 8 + size])
                place += 8 + size
            else:
                place += 4
        yield from pieces(b"\n".join(lines) + b"\n")


SOURCES = {
    "dict-gcide": lambda root: dictionary(root, "gcide"),
    "dict-wn": lambda root: dictionary(root, "wn"),
    "dict-foldoc": lambda root: dictionary(root, "foldoc"),
    "dict-jargon": lambda root: dictionary(root, "jargon"),
    "anarchism": lambda root: files(root, "/usr/share/doc/anarchism/**/*.md.gz"),
    "python3.11-doc": lambda root: files(root, "/usr/share/doc/python3.11/html/_sources/**/*.txt"),
    "perl-doc": lambda root: files(root, "/usr/share/perl/**/*.pod"),
    "r-cran-janeaustenr": novels,
}


def fetch(package, folder):
    """Downloads and unpacks a package; returns its root, version and hash."""
    os.makedirs(folder, exist_ok=True)
    if not glob.glob(f"{folder}/{package}_*.deb"):
        subprocess.run(["apt-get", "-qq", "download", package], cwd=folder, check=True)
    deb = glob.glob(f"{folder}/{package}_*.deb")[0]
    root = f"{folder}/{package}"
    subprocess.run(["dpkg-deb", "-x", deb, root], check=True)
    with open(deb, "rb") as file:
        digest = hashlib.sha256(file.read()).hexdigest()
    return root, os.path.basename(deb).split("_")[1], digest


def main(out):
    documents, packages = [], []
    for package, extract in SOURCES.items():
        root, version, digest = fetch(package, f"{out}/packages")
        texts = [t for t in extract(root) if t]
        size = sum(map(len, texts))
        if size < 1_000_000:
            sys.exit(f"{package} {version}: only {size} bytes of text were found")
        packages.append({"package": package, "version": version, "deb_sha256": digest,
                         "bytes": size, "documents": len(texts)})
        print(f"{package:20} {version:20} {size:>11,} bytes in {len(texts)} documents")
        documents += texts
    documents.sort(key=lambda text: hashlib.sha256(text).digest())
    validation = b"".join(documents[::EVERY])
    text = b"".join(t for i, t in enumerate(documents) if i % EVERY) + validation
    with open(f"{out}/english.txt", "wb") as file:
        file.write(text)
    facts = {"name": "debian-english-v1", "bytes": len(text), "validation_bytes": len(validation),
             "validation_fraction": len(validation) / len(text),
             "sha256": hashlib.sha256(text).hexdigest(), "packages": packages}
    with open(f"{out}/english.json", "w") as file:
        json.dump(facts, file, indent=2)
        file.write("\n")
    print(f"{out}/english.txt: {len(text):,} bytes, {len(validation):,} of them for validation")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
