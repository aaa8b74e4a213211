# shellcheck shell=bash
# The wheel of the Python package, built on a built libfp4lab.a, for the run scripts of its tests. They set
# `source`, `library` and `folder` before they source this file.

# A test that cannot run here: ctest reads the first word and shows "skipped".
skip() { echo "SKIPPED: $*"; exit 0; }

# Runs a command; its output is shown if it fails.
quietly() {
  "$@" >"$folder/log" 2>&1 || { tail -n 40 "$folder/log" >&2; echo "error: failed: $*" >&2; exit 1; }
}

# pip ENVIRONMENT ARGUMENTS: pip of the virtual environment of that name, patient with a busy network.
export PIP_RETRIES=10 PIP_DEFAULT_TIMEOUT=60
pip() { "$folder/$1/bin/python" -m pip "${@:2}" --disable-pip-version-check; }

# is_python COMMAND MAJOR MINOR: COMMAND runs, and is Python of that version or a newer one.
is_python() { "$1" -c "import sys; sys.exit(sys.version_info < ($2, $3))" 2>/dev/null; }

# Skips the test unless $1 can make virtual environments and build extension modules.
need_build_parts() {
  "$1" -c 'import ensurepip, venv' 2>/dev/null || skip "$1 has no venv: install python3-venv"
  local headers
  headers=$("$1" -c 'import sysconfig; print(sysconfig.get_paths()["include"])')
  [ -e "$headers/Python.h" ] || skip "$1 has no headers: install python3-dev"
}

# make_tools PYTHON: the environment `tools`, which stays for the next run of the same interpreter, with what
# builds the wheel.
make_tools() {
  if "$folder/tools/bin/python" -c 'import nanobind, scikit_build_core' 2>/dev/null &&
    [ "$("$folder/tools/bin/python" -VV)" = "$("$1" -VV)" ]; then return; fi
  quietly "$1" -m venv --clear "$folder/tools"
  pip tools download -q --no-deps -d "$folder/tools" nanobind >/dev/null 2>&1 ||
    skip "pip reaches no package index"
  quietly pip tools install -q nanobind scikit-build-core
}

# find_python MINOR NAMES...: the first of NAMES, or of pyenv's versions, that is Python 3.MINOR or newer. A
# shim of pyenv may stand on PATH for a version that is not chosen: what counts is that it runs.
find_python() {
  local name version
  for name in "${@:2}"; do
    if is_python "$name" 3 "$1"; then echo "$name"; return; fi
  done
  for version in $(pyenv versions --bare 2>/dev/null); do
    name=$(pyenv prefix "$version" 2>/dev/null)/bin/python3
    if is_python "$name" 3 "$1"; then echo "$name"; return; fi
  done
}

# prepare MINOR NAMES...: makes `folder`, sets `python` to FP4LAB_PYTHON_INTERPRETER or what find_python finds,
# and makes its environment `tools`; skips the test where one of these is not to be had.
prepare() {
  python=${FP4LAB_PYTHON_INTERPRETER:-$(find_python "$@")}
  [ -n "$python" ] || skip "no Python 3.$1 or newer here: name one in FP4LAB_PYTHON_INTERPRETER"
  is_python "$python" 3 "$1" || skip "$python is no Python 3.$1 or newer"
  need_build_parts "$python"
  mkdir -p "$folder"
  make_tools "$python"
}

# make_wheel SETTINGS...: $folder/wheel/*.whl, with $program if that is set; SETTINGS go to CMake (NAME=VALUE).
make_wheel() {
  rm -rf "$folder/wheel"
  quietly pip tools wheel "$source" --no-deps --no-build-isolation -w "$folder/wheel" \
    --config-settings=build-dir="$folder/build" \
    --config-settings=cmake.define.FP4LAB_PREBUILT="$library" \
    --config-settings=cmake.define.FP4LAB_PREBUILT_PROGRAM="${program:-}" \
    --config-settings=cmake.define.FP4LAB_WERROR=ON \
    "${@/#/--config-settings=cmake.define.}"
}
