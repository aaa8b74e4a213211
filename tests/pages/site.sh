#!/usr/bin/env bash
# tests/pages/site.sh PROGRAM FOLDER: builds the site of mkdocs.yml with the pinned packages of docs/requirements.txt in
# a virtual environment of FOLDER, and checks its pages. ctest calls it; the environment stays for the next run.
set -euo pipefail
source=$(cd "$(dirname "$0")/../.." && pwd)
program=$1 folder=$2
. "$source/tests/python/wheel.sh"

python3 -c 'import ensurepip, venv' 2>/dev/null || skip "python3 has no venv: install python3-venv"
mkdir -p "$folder"
wanted=$(python3 -VV; cat "$source/docs/requirements.txt")
if [ "$(cat "$folder/tools/made-of" 2>/dev/null)" != "$wanted" ]; then
  quietly python3 -m venv --clear "$folder/tools"
  PIP_RETRIES=6 pip tools download -q --no-deps -d "$folder/tools" -r "$source/docs/requirements.txt" >/dev/null 2>&1 ||
    skip "pip reaches no package index"
  quietly pip tools install -q -r "$source/docs/requirements.txt"
  echo "$wanted" >"$folder/tools/made-of"
fi

# Material prints an advertisement of its successor unless this is set.
FP4LAB_PROGRAM=$program NO_MKDOCS_2_WARNING=1 quietly "$folder/tools/bin/python" -m mkdocs build --strict \
  -f "$source/mkdocs.yml" -d "$folder/site"
python3 "$source/tests/pages/site_test.py" "$folder/site"
