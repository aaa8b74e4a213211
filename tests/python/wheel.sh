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

# make_tools PYTHON: the environment `tools`, which stays for the next run, with what builds the wheel.
make_tools() {
  if "$folder/tools/bin/python" -c 'import nanobind, scikit_build_core' 2>/dev/null; then return; fi
  quietly "$1" -m venv --clear "$folder/tools"
  pip tools download -q --no-deps -d "$folder/tools" nanobind >/dev/null 2>&1 ||
    skip "pip reaches no package index"
  quietly pip tools install -q nanobind scikit-build-core
}

# make_wheel SETTINGS...: $folder/wheel/*.whl; SETTINGS go to CMake (NAME=VALUE).
make_wheel() {
  rm -rf "$folder/wheel"
  quietly pip tools wheel "$source" --no-deps --no-build-isolation -w "$folder/wheel" \
    --config-settings=build-dir="$folder/build" \
    --config-settings=cmake.define.FP4LAB_PREBUILT="$library" \
    --config-settings=cmake.define.FP4LAB_WERROR=ON \
    "${@/#/--config-settings=cmake.define.}"
}
