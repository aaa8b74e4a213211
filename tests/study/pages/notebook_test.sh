#!/bin/sh
# notebook_test.sh PROGRAM SOURCE_DIR WORK_DIR PYTHON: analyzes the fixture with the program and runs
# the notebook on the outcome; the notebook asserts that its token ratios are the program's.
set -eu
program=$1 source=$2 work=$3 python=$4
rm -rf "$work"
"$program" study report "$source/tests/study/support/synthetic_results.json" --out-dir "$work" > /dev/null
FP4LAB_RESULTS="$work/results.json" "$python" -m nbconvert --to notebook --execute \
  "$source/notebooks/token_gap.ipynb" --output-dir "$work" --output executed.ipynb
grep -q '24 token ratios agree with the program' "$work/executed.ipynb"
