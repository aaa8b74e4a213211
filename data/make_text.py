#!/usr/bin/env python3
"""Makes texts of Debian packages for studies at GPU scale.

  $ data/make_text.py english OUT_DIR       # OUT_DIR/english.txt: 113 MB of dictionaries, manuals, an FAQ, novels
  $ data/make_text.py linux-c OUT_DIR       # OUT_DIR/linux-c.txt: 320 MB of C, the kernel's source files
  $ fp4lab train --text OUT_DIR/english.txt

apt-get download, dpkg-deb and tar; no root needed. A text consists of documents (files, or pieces of 64 KiB
that end at a line's end) in the order of their SHA-256, no document twice but for 44 KB of english. Every 50th goes
to the end, for validation: OUT_DIR/NAME.json says how large that part is, which packages the text is of, and its
SHA-256. A last line says whether it is the text of the studies of this repository.
The packages' licences are in usr/share/doc/PACKAGE/copyright; the text is not for redistribution as a whole.
"""
import glob
import gzip
import hashlib
import json
import os
import re
import struct
import subprocess
import sys
import tarfile
import typing
import zlib

PIECE = 1 << 16
EVERY = 50


def pieces(text, size=PIECE):
    """Parts of about `size` bytes that end at a line's end."""
    start = 0
    while start < len(text):
        end = text.find(b"\n", min(start + size, len(text)))
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


def kernel(root):
    """The C files of a source package, without the comments that begin them: licences, names, addresses."""
    comments = re.compile(rb"(?:\s*(?://[^\n]*\n|/\*.*?\*/))*\s*", re.S)
    with tarfile.open(glob.glob(root + "/usr/src/linux-source-*.tar.xz")[0]) as archive:
        for member in archive:
            if member.isfile() and member.name.endswith(".c"):
                data = archive.extractfile(member).read()
                yield data[comments.match(data).end():]


class Text(typing.NamedTuple):
    largest: int | None  # size in bytes; None: all of the text
    once: bool  # whether a document that packages hold twice stands in the text once
    studied: str  # SHA-256 of the text that the studies of this repository read
    sources: dict  # packages, each with a function of the folder where it is unpacked that yields documents;
    # "NAME=VERSION": asked for first, since a later version makes another text


TEXTS = {
    "english": Text(None, False, "0257cb6a55150dad1982976c7d333726bfc003442c7c895979517283894f0067", {
        "dict-gcide": lambda root: dictionary(root, "gcide"),
        "dict-wn": lambda root: dictionary(root, "wn"),
        "dict-foldoc": lambda root: dictionary(root, "foldoc"),
        "dict-jargon": lambda root: dictionary(root, "jargon"),
        "anarchism": lambda root: files(root, "/usr/share/doc/anarchism/**/*.md.gz"),
        "python3.11-doc": lambda root: files(root, "/usr/share/doc/python3.11/html/_sources/**/*.txt"),
        "perl-doc": lambda root: files(root, "/usr/share/perl/**/*.pod"),
        "r-cran-janeaustenr": novels,
    }),
    "linux-c": Text(320_000_000, True, "53c22b39282f910c2103ab0d17dd03f6f24766df1c035293434d935acb026c94",
                    {"linux-source-6.1=6.1.192-2": kernel}),
}


def fetch(wanted, folder):
    """Downloads and unpacks a package, of another version where the archive has `wanted` no more; returns its name,
    root, version and hash."""
    package = wanted.partition("=")[0]
    os.makedirs(folder, exist_ok=True)
    if not glob.glob(f"{folder}/{package}_*.deb"):
        download = ["apt-get", "-qq", "download"]
        if subprocess.run([*download, wanted], cwd=folder, check=wanted == package).returncode != 0:
            print(f"{wanted} is not to be had; another version is taken", file=sys.stderr)
            subprocess.run([*download, package], cwd=folder, check=True)
    deb = glob.glob(f"{folder}/{package}_*.deb")[0]
    root = f"{folder}/{package}"
    subprocess.run(["dpkg-deb", "-x", deb, root], check=True)
    with open(deb, "rb") as file:
        digest = hashlib.sha256(file.read()).hexdigest()
    return package, root, os.path.basename(deb).split("_")[1], digest


def main(name, out):
    largest, once, studied, sources = TEXTS[name]
    documents, packages = [], []
    for wanted, extract in sources.items():
        package, root, version, digest = fetch(wanted, f"{out}/packages")
        texts = [t for t in extract(root) if t]
        size = sum(map(len, texts))
        if size < 1_000_000:
            sys.exit(f"{package} {version}: only {size} bytes of text were found")
        packages.append({"package": package, "version": version, "deb_sha256": digest,
                         "bytes": size, "documents": len(texts)})
        print(f"{package:20} {version:20} {size:>11,} bytes in {len(texts)} documents")
        documents += [(hashlib.sha256(text).digest(), text) for text in texts]
    chosen, size = [], 0
    for _, text in sorted(dict(documents).items() if once else documents):
        if largest and size + len(text) > largest:
            break
        chosen.append(text)
        size += len(text)
    validation = b"".join(chosen[::EVERY])
    text = b"".join(t for i, t in enumerate(chosen) if i % EVERY) + validation
    with open(f"{out}/{name}.txt", "wb") as file:
        file.write(text)
    sha256 = hashlib.sha256(text).hexdigest()
    facts = {"name": f"debian-{name}", "bytes": len(text), "validation_bytes": len(validation),
             "validation_fraction": len(validation) / len(text), "sha256": sha256, "packages": packages}
    with open(f"{out}/{name}.json", "w") as file:
        json.dump(facts, file, indent=2)
        file.write("\n")
    print(f"{out}/{name}.txt: {len(text):,} bytes, {len(validation):,} of them for validation")
    print("the text of this repository's studies" if sha256 == studied else
          f"not the text of this repository's studies, whose SHA-256 is {studied}: the packages are of other versions")


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in TEXTS:
        sys.exit(__doc__)
    main(*sys.argv[1:])
