#!/usr/bin/env bash
# tests/packaging/source.sh FOLDER VERSION CMAKE: the source archive that git writes and the one of the Python package
# hold what a build needs: each is unpacked, configured, and asked which files its build lacks.
set -euo pipefail
source=$(cd "$(dirname "$0")/../.." && pwd)
folder=$1 version=$2 cmake=$3
. "$source/tests/python/wheel.sh"
fail() { echo "error: $*" >&2; exit 1; }

git -C "$source" rev-parse HEAD >/dev/null 2>&1 || skip "no checkout of git here"
prepare 10 python3
rm -rf "$folder/archives" "$folder/unpacked"
mkdir -p "$folder/archives" "$folder/unpacked"

# complete ARCHIVE OPTION...: its build is configured, and no file that a rule needs is absent.
complete() {
  local archive=$1 tree=$folder/unpacked/fp4lab-$version
  shift
  rm -rf "$tree"
  tar -x -z -f "$archive" -C "$folder/unpacked"
  [ -d "$tree" ] || fail "$archive does not unpack to fp4lab-$version"
  quietly "$cmake" -S "$tree" -B "$tree/build" -G Ninja -DFP4LAB_CUDA=OFF "$@"
  quietly ninja -C "$tree/build" -n
}

quietly "$source/tools/packaging/source" "$folder/archives"
complete "$folder/archives/fp4lab-$version.tar.gz" -DFP4LAB_TESTS=ON
tree=$folder/unpacked/fp4lab-$version
quietly "$cmake" -DSOURCE="$tree" -DOUT="$folder/commit.h" -P "$tree/tools/commit.cmake"
[ "$(cat "$folder/commit.h")" = "#define FP4LAB_COMMIT \"$(git -C "$source" rev-parse --short=12 HEAD)\"" ] ||
  fail "a program of the archive would say: $(cat "$folder/commit.h")"

quietly "$folder/tools/bin/python" - "$source" "$folder/archives/python" <<'END'
import os, sys
from scikit_build_core.build import build_sdist
os.chdir(sys.argv[1])
os.makedirs(sys.argv[2], exist_ok=True)
build_sdist(sys.argv[2])
END
complete "$folder/archives/python/fp4lab-$version.tar.gz" -DFP4LAB_PYTHON=ON -DFP4LAB_TESTS=OFF -DFP4LAB_TOOLS=OFF \
  -DPython_EXECUTABLE="$folder/tools/bin/python"
echo "the source archives are complete"
