#!/usr/bin/env bash
# tests/layering/core_test.sh BUILD [OBJECT...]: the files that layers call core, with OBJECTs, need no file of
# the library that is not core. A wheel that is built from source would not load otherwise, and tests of the
# Python package, which link the whole library, would not see it. BUILD/layers/core.txt lists the files.
set -euo pipefail
build=$1
shift
objects=("$@")
while IFS=/ read -r layer file; do
  object=$build/lib/fp4lab/$layer/CMakeFiles/fp4lab_$layer.dir/$file.o
  # A file that CMake makes stands in the build folder.
  [ -e "$object" ] || object=$(find "$build/lib/fp4lab/$layer" -name "${file##*/}.o")
  objects+=("$object")
done <"$build/layers/core.txt"
[ ${#objects[@]} -gt 100 ] || { echo "error: $build/layers/core.txt lists ${#objects[@]} files" >&2; exit 1; }

# nm's lines are "OBJECT: ADDRESS KIND NAME", without an address where the kind is U.
missing=$(nm -A "${objects[@]}" | awk '
  $(NF - 1) == "U" { if ($NF ~ /6fp4lab/) user[$NF] = $1; next }
  { defined[$NF] = 1 }
  END { for (name in user) if (!(name in defined)) print user[name], name }' | c++filt)
[ -z "$missing" ] && exit
echo "error: a core file needs what no core file defines; name the file that does under CORE_SOURCES:" >&2
sed "s|^$build/||" <<<"$missing" >&2
exit 1
