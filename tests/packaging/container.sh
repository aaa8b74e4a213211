#!/usr/bin/env bash
# tests/packaging/container.sh BUILD FOLDER VERSION CMAKE: runs the last stage of tools/packaging/Containerfile, step by
# step as the file has them, in a fresh Debian root of debootstrap, with the Debian package of the build folder BUILD
# in the place of the first stage's. Then the entry point gives a verdict. So no container engine and no registry is
# needed; the first stage's command is tools/packaging/deb, which makes the same package.
set -euo pipefail
source=$(cd "$(dirname "$0")/../.." && pwd)
build=$1 folder=$2 version=$3 cmake=$4
. "$source/tests/python/wheel.sh"
. "$source/tests/packaging/clean_root.sh"
fail() { echo "error: $*" >&2; exit 1; }

[ "$(id -u)" -eq 0 ] || skip "only root can make a Debian root"
command -v debootstrap >/dev/null || skip "no debootstrap: install it"
command -v dpkg-shlibdeps >/dev/null || skip "no dpkg-shlibdeps: install dpkg-dev"
mkdir -p "$folder"
need_roots
file=$source/tools/packaging/Containerfile
[[ $(. /etc/os-release; echo "$VERSION_CODENAME") == bookworm ]] || skip "the package of this machine is not for bookworm"
grep -q '^RUN /fp4lab/tools/packaging/deb /packages$' "$file" || fail "the first stage does not make the package"

# The steps of the last stage, one per line.
mapfile -t steps < <(sed -e ':a' -e '/\\$/{N;s/\\\n//;ta' -e '}' "$file" | awk '/^FROM/ {n = 0} !/^#/ && NF {line[n++] = $0}
  END {for (i = 0; i < n; ++i) print line[i]}')
base=${steps[0]#FROM debian:}
[ "$base" = bookworm-slim ] || fail "the last stage begins with ${steps[0]}"

root=$folder/root
if [ ! -e "$folder/base/usr/bin/apt-get" ]; then
  rm -rf "$folder/base"
  debootstrap --variant=minbase bookworm "$folder/base" >"$folder/log" 2>&1 || skip "debootstrap reaches no Debian archive"
fi
rm -rf "$root" "$folder/deb"
cp -a "$folder/base" "$root"
cp /etc/resolv.conf "$root/etc/resolv.conf"
quietly "$(dirname "$(command -v "$cmake")")/cpack" --config "$build/CPackConfig.cmake" -B "$folder/deb"

entry=() place=/
for step in "${steps[@]:1}"; do
  case $step in
    "COPY --from=build /packages /packages") mkdir -p "$root/packages" && cp "$folder"/deb/*.deb "$root/packages" ;;
    RUN\ *) quietly in_root "$root" /usr/bin/env PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive \
      sh -c "${step#RUN }" ;;
    WORKDIR\ *) place=${step#WORKDIR } && mkdir -p "$root$place" ;;
    ENTRYPOINT\ *) mapfile -t entry < <(python3 -c 'import json, sys; print(*json.loads(sys.argv[1]), sep="\n")' "${step#ENTRYPOINT }") ;;
    *) fail "Containerfile: this test does not know the step: $step" ;;
  esac
done
[ ${#entry[@]} -gt 0 ] || fail "Containerfile has no ENTRYPOINT"

# What `podman run -v "$PWD:/work" fp4lab ARGUMENTS` runs.
container() { in_root "$root" /usr/bin/env PATH=/usr/bin:/bin sh -c "cd $place && \"\$@\"" sh "${entry[@]}" "$@"; }
[[ $(container --version) == "fp4lab $version,"* ]] || fail "--version says: $(container --version)"
container cases --family factor-hazards --out-dir in >/dev/null
container quantize in/0000.x.npy --dialect nvfp4.cutlass --out kernel.npz >/dev/null
verdict=$(container verify --input in/0000.x.npy --codes kernel.npz#codes --scales kernel.npz#scales) &&
  fail "verify found no difference"
[[ $verdict == "nvfp4.te: DIFFERENT"* ]] || fail "the verdict is: $verdict"
echo "Containerfile: its last stage installs $(basename "$folder"/deb/*.deb) on Debian's minimal system, and its entry point is right"
