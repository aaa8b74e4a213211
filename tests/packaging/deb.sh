#!/usr/bin/env bash
# tests/packaging/deb.sh PROGRAM BUILD FOLDER VERSION CMAKE CXX: makes the Debian package of the build folder BUILD,
# installs it by dpkg in a clean root that has what it depends on and nothing else, and uses it there: a verdict on
# an .npz, the man page, the completions. Then a project and a command of pkg-config link the library in it.
set -euo pipefail
source=$(cd "$(dirname "$0")/../.." && pwd)
program=$1 build=$2 folder=$3 version=$4 cmake=$5 cxx=$6
. "$source/tests/python/wheel.sh"
. "$source/tests/packaging/clean_root.sh"
fail() { echo "error: $*" >&2; exit 1; }

command -v dpkg-shlibdeps >/dev/null || skip "no dpkg-shlibdeps: install dpkg-dev"
need_roots
rm -rf "$folder/deb"
quietly "$(dirname "$(command -v "$cmake")")/cpack" --config "$build/CPackConfig.cmake" -B "$folder/deb"
package=$(echo "$folder"/deb/*.deb)
[ "$(dpkg-deb -f "$package" Package Version | tr '\n' ' ')" = "Package: fp4lab Version: $version " ] ||
  fail "$package: $(dpkg-deb -f "$package" Package Version)"

root=$folder/root
mapfile -t depends < <(names_of "$(dpkg-deb -f "$package" Depends)")
make_clean_root "$root" "${depends[@]}"
quietly dpkg --root="$root" --force-not-root --force-script-chrootless --log=/dev/null -i "$package"

# A verdict: CUTLASS's formula in the place of a kernel.
in_root "$root" /usr/bin/fp4lab cases --family factor-hazards --out-dir /tmp/in
in_root "$root" /usr/bin/fp4lab quantize /tmp/in/0000.x.npy --dialect nvfp4.cutlass --out /tmp/k.npz
verdict=$(in_root "$root" /usr/bin/fp4lab verify --input /tmp/in/0000.x.npy --codes '/tmp/k.npz#codes' \
  --scales '/tmp/k.npz#scales') && fail "verify found no difference"
[[ $verdict == "nvfp4.te: DIFFERENT"* ]] || fail "the verdict is: $verdict"
[[ $(in_root "$root" /usr/bin/fp4lab --version) == "fp4lab $version,"* ]] || fail "--version says another version"

for file in bin/fp4lab lib/libfp4lab.a include/fp4lab/quantize/quantize.h lib/cmake/fp4lab/fp4labConfig.cmake \
  lib/pkgconfig/fp4lab.pc share/man/man1/fp4lab.1 share/bash-completion/completions/fp4lab \
  share/zsh/vendor-completions/_fp4lab share/fish/vendor_completions.d/fp4lab.fish; do
  [ -s "$root/usr/$file" ] || fail "the package lacks /usr/$file"
done
cmp "$root/usr/share/man/man1/fp4lab.1" <("$program" man)

# What README.md and the first page show.
user=$folder/user
make_clean_root "$user" "${depends[@]}" "${USER_PACKAGES[@]}"
quietly dpkg --root="$user" --force-not-root --force-script-chrootless --log=/dev/null -i "$package"
pages=$(check_pages "$user" /usr/bin "$root/tmp/in/0000.x.npy" "$root/tmp/k.npz")

# The library of the package.
quietly "$cmake" -S "$source/tests/find_package" -B "$folder/consumer" -DCMAKE_PREFIX_PATH="$root/usr" \
  -DCMAKE_CXX_COMPILER="$cxx"
quietly "$cmake" --build "$folder/consumer"
"$folder/consumer/consumer"
grep -q "$root/usr/lib" "$folder/consumer/CMakeCache.txt" || fail "CMake found another fp4lab"
export PKG_CONFIG_PATH=$root/usr/lib/pkgconfig
# shellcheck disable=SC2046
quietly "$cxx" -std=c++20 "$source/tests/find_package/main.cc" -o "$folder/with_pkg_config" \
  $(pkg-config --cflags --libs fp4lab)
"$folder/with_pkg_config"
echo "$(basename "$package"): $(stat -c %s "$package") bytes; depends on ${depends[*]}; a verdict, man page, completions and library are right; the first pages took $pages seconds without a compiler"
