"""Hooks of MkDocs: the site has the pages that stand in rooms of the repository, the reference that generate.py makes
from the program, and the figures and files that pages link to. A page of the reference also stands in docs/, where it
names the command that prints it; the site has the whole text in its place."""

import os
import pathlib
import re
import sys

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path.insert(0, str(HERE))
import generate  # noqa: E402
import notebooks  # noqa: E402

ROOMS = {  # page of the site: page of the repository
    "index.md": "README.md",
    "start/python.md": "lib/python/README.md",
    "guides/debug-a-kernel.md": "tools/kernel-differs.md",
    "guides/judge.md": "lib/fp4lab/judge/README.md",
    "guides/checkpoint.md": "lib/fp4lab/checkpoint/README.md",
    "guides/studies.md": "studies/README.md",
    "guides/dialect-json.md": "studies/dialects.md",
    "guides/corpora.md": "data/README.md",
    "guides/jax.md": "lib/python/fp4lab/te_jax/README.md",
    "guides/cuda.md": "lib/fp4lab/cuda/README.md",
    "guides/gpu.md": "lib/fp4lab/gpu/README.md",
    "findings/surface.md": "studies/surface/README.md",
    "findings/league.md": "studies/results/league/README.md",
    "findings/atlas.md": "studies/atlas/README.md",
    "findings/stability.md": "studies/stability/README.md",
    "findings/architectures.md": "studies/architectures/README.md",
    "findings/outliers.md": "studies/outliers/README.md",
    "findings/figure6.md": "studies/figure6/README.md",
    "findings/trained.md": "studies/trained/README.md",
    "findings/transfer.md": "studies/transfer/README.md",
    "guides/models.md": "studies/model/README.md",
    "findings/fp8-gap.md": "studies/fp8-gap/README.md",
    "findings/parity.md": "studies/results/parity/README.md",
    "findings/results.md": "studies/results/README.md",
    "trust/tests.md": "tests/README.md",
    "trust/packages.md": "tests/python_packages/README.md",
    "trust/groups.md": "tests/python_packages/groups.md",
    "trust/golden.md": "tests/golden/README.md",
    "trust/fuzz.md": "tests/fuzz/README.md",
    "develop/contributing.md": "CONTRIBUTING.md",
    "develop/security.md": "SECURITY.md",
    "history/changes.md": "CHANGELOG.md",
    "develop/architecture.md": "lib/fp4lab/README.md",
    "history/benchmarks.md": "tests/bench/README.md",
    "history/gpu-speed.md": "tests/bench/gpu.md",
    "history/speed-changes.md": "tests/bench/changes.md",
    "history/token-gap.md": "studies/token-gap/README.md",
}
made = {}  # page of the site: the text that it has there, in place of the page of the repository
FENCE = re.compile(r"^```.*?^```[^\n]*$", re.DOTALL | re.MULTILINE)
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^)\s]+)\)")
ITEM = re.compile(r"([-*]|\d+\.) ")


def outside_fences(function, text):
    """The text with `function` applied to all parts that are not fenced code."""
    parts, at = [], 0
    for fence in FENCE.finditer(text):
        parts += [function(text[at : fence.start()]), fence[0]]
        at = fence.end()
    return "".join(parts) + function(text[at:])


def source_of(src_uri):
    """The path in the repository of a page of the site."""
    return ROOT / ROOMS[src_uri] if src_uri in ROOMS else HERE / src_uri


def site_path(target):
    """The place on the site of a file of the repository; None of a folder, which the site does not have."""
    for src_uri, room in ROOMS.items():
        if target == ROOT / room:
            return src_uri
    if target.is_relative_to(HERE):
        return target.relative_to(HERE).as_posix()
    return None if target.is_dir() else "files/" + target.relative_to(ROOT).as_posix()


def linked_files(src_uri):
    """{place on the site: file} of what a page links to beside other pages."""
    page, found = source_of(src_uri), {}

    def note(text):
        for _, _, link in LINK.findall(COMMENT.sub("", text)):
            target = (page.parent / link.split("#")[0]).resolve()
            if ":" not in link and not link.startswith("#") and target.is_file() and target.suffix != ".md":
                found[site_path(target)] = target
        return text

    outside_fences(note, page.read_text())
    return found


def as_mkdocs_reads(text):
    """The text without comments, with what GitHub does not need: an empty line before a list, and a word that what
    <details> holds is Markdown."""
    lines = []
    for line in COMMENT.sub("", text).replace("<details>", '<details markdown="1">').split("\n"):
        before = lines[-1] if lines else ""
        if (
            ITEM.match(line)
            and before.strip()
            and not ITEM.match(before.lstrip())
            and not before.startswith(" ")
            and (line[0] in "-*" or line.startswith("1."))
        ):
            lines.append("")
        lines.append(line)
    return "\n".join(lines)


def relinked(src_uri, text):
    """The text with links to the places on the site."""
    page, folder = source_of(src_uri), os.path.dirname(src_uri)

    def relink(m):
        mark, title, link = m.groups()
        path, hash_mark, anchor = link.partition("#")
        if not path or re.match(r"[a-z]+:", link):
            return m[0]
        place = site_path((page.parent / path).resolve())
        if place is None:
            return title
        return f"{mark}[{title}]({os.path.relpath(place, folder or '.')}{hash_mark}{anchor})"

    return LINK.sub(relink, text)


def on_files(files, config):
    rooms = {p.relative_to(ROOT).as_posix() for p in repository_pages()}
    if rooms - set(ROOMS.values()):
        raise PluginError(
            f"not on the site: {', '.join(sorted(rooms - set(ROOMS.values())))}; add them to docs/hooks.py"
        )
    for src_uri, room in ROOMS.items():
        files.append(File.generated(config, src_uri, content=(ROOT / room).read_text()))
    made.update(generate.pages())
    for src_uri, text in made.items():
        title = (HERE / src_uri).read_text().partition("\n")[0]
        if title != text.partition("\n")[0]:
            raise PluginError(f"docs/{src_uri} is called {title!r}, and the page of the site is not")
    texts, figures = notebooks.pages()
    made.update(texts)
    for place, content in (texts | figures).items():
        files.append(File.generated(config, place, content=content))
    linked = {}
    for file in files.documentation_pages():
        if file.src_uri not in made:
            linked |= linked_files(file.src_uri)
    for place, target in linked.items():
        if files.get_file_from_path(place) is None:
            files.append(File.generated(config, place, abs_src_path=str(target)))
    return files


def repository_pages():
    """The pages that stand outside of docs/."""
    for path in ROOT.rglob("*.md"):
        first, *rest = path.relative_to(ROOT).parts
        if not first.startswith((".", "build")) and first not in ("docs", "out") and "site-packages" not in rest:
            yield path


def on_page_markdown(markdown, page, **_):
    src_uri = page.file.src_uri
    if src_uri in made:
        return made[src_uri]
    return outside_fences(lambda text: relinked(src_uri, as_mkdocs_reads(text)), markdown)
