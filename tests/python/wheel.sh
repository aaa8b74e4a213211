# Sourced by the `run` scripts of the Python tests: builds the wheel of the Python package on a built
# libfp4lab.a into $folder/wheel. Takes $source, $library and $folder; FP4LAB_PYTHON_INTERPRETER names
# another python3. Gives `skip`, `quietly` and `pip ENVIRONMENT ARGUMENTS...` to the caller.
python=${FP4LAB_PYTHON_INTERPRETER:-python3}

skip() { echo "SKIPPED: $*"; exit 0; }
command -v "$python" >/dev/null || skip "no python3 here"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || skip "python3 is older than 3.10"
"$python" -c 'import ensurepip, venv' 2>/dev/null || skip "python3 has no venv: install python3-venv"
headers=$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["include"])')
[ -e "$headers/Python.h" ] || skip "python3 has no headers: install python3-dev"

mkdir -p "$folder"
log=$folder/log
quietly() { "$@" >"$log" 2>&1 || { tail -n 40 "$log" >&2; echo "error: failed: $*" >&2; exit 1; }; }
pip() { "$folder/$1/bin/python" -m pip "${@:2}" --disable-pip-version-check; }

# The tools of the build stay for the next run.
if ! "$folder/tools/bin/python" -c 'import nanobind, scikit_build_core' 2>/dev/null; then
  quietly "$python" -m venv --clear "$folder/tools"
  "$folder/tools/bin/python" -m pip download -q --no-deps -d "$folder/tools" nanobind \
    >/dev/null 2>&1 || skip "pip reaches no package index"
  quietly pip tools install -q nanobind scikit-build-core
fi
rm -rf "$folder/wheel"
quietly pip tools wheel "$source" --no-deps --no-build-isolation -w "$folder/wheel" \
  --config-settings=build-dir="$folder/build" \
  --config-settings=cmake.define.FP4LAB_PREBUILT="$library" \
  --config-settings=cmake.define.FP4LAB_WERROR=ON
