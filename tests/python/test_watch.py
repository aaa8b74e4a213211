"""`python -m fp4lab.check --watch`: whether the functions that rows cite have changed."""

import io
import tarfile
import zipfile

import pytest

from fp4lab import check
from fp4lab.check import downloads, extract

FILE = "torchao/prototype/mx_formats/nvfp4_tensor.py"
OLD = """def per_tensor_amax_to_scale(a):
    return a / 2688

def nvfp4_quantize(x):
    return x
"""


def wheel(folder, version, text):
    target = folder / "torchao" / version
    target.mkdir(parents=True)
    with zipfile.ZipFile(target / f"torchao-{version}-py3-none-any.whl", "w") as z:
        z.writestr(FILE, text)


@pytest.fixture
def releases(tmp_path, monkeypatch):
    """A cache with torchao 0.18.0; the newest release is 0.19.0."""
    monkeypatch.setattr(downloads, "newest", lambda name: "0.19.0")
    wheel(tmp_path, "0.18.0", OLD)
    return tmp_path


def look(cache, capsys):
    code = check.main(["--watch", "--cache", str(cache), "nvfp4.torchao.inference"])
    return code, capsys.readouterr().out


def test_new_comments_and_docstrings_are_the_same(releases, capsys):
    wheel(releases, "0.19.0", "# new\n" + OLD.replace("return x", '"""Text."""\n    return  x'))
    code, out = look(releases, capsys)
    assert code == 0, out
    assert out.startswith("same          nvfp4.torchao.inference:") and "0.19.0" in out


def test_a_changed_function_is_shown(releases, capsys):
    wheel(releases, "0.19.0", OLD.replace("return x", "return x + 1"))
    code, out = look(releases, capsys)
    assert code == 1 and "differs" in out
    assert "-    return x" in out and "+    return x + 1" in out


def test_a_lost_function_differs(releases, capsys):
    wheel(releases, "0.19.0", OLD.replace("nvfp4_quantize", "other"))
    code, out = look(releases, capsys)
    assert code == 1 and "defines no nvfp4_quantize any more" in out


def test_a_network_failure_is_one_line(tmp_path, monkeypatch, capsys):
    def fail(name):
        raise downloads.DownloadError("pip reaches no index")

    monkeypatch.setattr(downloads, "newest", fail)
    code, out = look(tmp_path, capsys)
    assert code == 2
    assert "error         nvfp4.torchao.inference: torchao: pip reaches no index" in out


def test_pip_errors_are_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with pytest.raises(downloads.DownloadError) as error:
        downloads.archive("fp4lab-no-such-package", "1", tmp_path)
    assert "\n" not in str(error.value) and str(error.value)


@pytest.mark.parametrize("backend", ["setuptools.build_meta", None])
def test_source_distributions_are_downloaded_without_running_them(backend, tmp_path, monkeypatch):
    files = {"PKG-INFO": "Metadata-Version: 2.1\nName: fp4lab-sample\nVersion: 1.5\n",
             "setup.py": "raise RuntimeError('setup.py was run')\n", "src/a.py": "x = 1\n"}  # fmt: skip
    if backend:
        files["pyproject.toml"] = f'[build-system]\nrequires = ["torch"]\nbuild-backend = "{backend}"\n'
    links = tmp_path / "links"
    links.mkdir()
    with tarfile.open(links / "fp4lab_sample-1.5.tar.gz", "w:gz") as t:
        for name, text in files.items():
            info = tarfile.TarInfo(f"fp4lab_sample-1.5/{name}")
            info.size = len(text)
            t.addfile(info, io.BytesIO(text.encode()))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))
    path = downloads.archive("fp4lab-sample", "1.5", tmp_path)
    assert downloads.text_of(path, "src/a.py") == "x = 1\n"
    assert downloads.archive("fp4lab-sample", "1.5", tmp_path) == path


def test_the_reason_of_a_failure_is_its_cause():
    package = """  error: subprocess-exited-with-error
      Traceback (most recent call last):
        File "<string>", line 11, in <module>
      ModuleNotFoundError: No module named 'torch'
      [end of output]
  note: This error originates from a subprocess, and is likely not a problem with pip.
error: metadata-generation-failed
hint: See above for details.
"""
    assert downloads.reason(package) == "ModuleNotFoundError: No module named 'torch'"
    index = "WARNING: retrying\nERROR: No matching distribution found for x==1\n\nhint: See above.\n"
    assert downloads.reason(index) == "No matching distribution found for x==1"
    assert downloads.reason("hint: See above for details.\n") == "no message"


def test_rows_without_a_package_say_why(tmp_path, capsys):
    assert check.main(["--watch", "--cache", str(tmp_path), "nvfp4.quartet2"]) == 0
    assert "not watched   nvfp4.quartet2: not on PyPI" in capsys.readouterr().out


def test_functions_of_other_languages():
    text = """template <class T>
std::enable_if_t<N == 16> f(T x) {
  return g(x);  // {
}
int f(int);
int h() { return f(1); }
"""
    kept = "std::enable_if_t<N == 16> f(T x) {\nreturn g(x);\n}"
    assert extract.function("a.cuh", text, "f") == kept
    assert extract.function("a.cuh", text, "absent") is None
    assert extract.function("a.py", "class A:\n    def f(self): return 1\n", "A.f") is not None


def test_files_of_source_distributions(tmp_path):
    path = tmp_path / "p-1.tar.gz"
    with tarfile.open(path, "w:gz") as t:
        info = tarfile.TarInfo("p-1/src/p/a.py")
        info.size = 4
        t.addfile(info, io.BytesIO(b"x=1\n"))
    assert downloads.text_of(path, "src/p/a.py") == "x=1\n"
    assert downloads.text_of(path, "src/p/b.py") is None
