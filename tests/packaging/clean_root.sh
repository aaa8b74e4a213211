# shellcheck shell=bash
# Clean roots for the tests of packages: folders that hold the files of some Debian packages and nothing else, as
# they are installed here. Programs run there by chroot, so that they find no other library.

# Prints the packages with all that they depend on, one per line. Alternatives: the first that is installed here.
with_dependencies() {
  local open=("$@") name depends
  local -A seen=()
  while [ ${#open[@]} -gt 0 ]; do
    name=$(installed "${open[0]}")
    open=("${open[@]:1}")
    [ -n "$name" ] && [ -z "${seen[$name]:-}" ] || continue
    depends=$(dpkg-query -W -f '${Depends}, ${Pre-Depends}' "$name")
    seen[$name]=1
    mapfile -t -O ${#open[@]} open < <(names_of "$depends")
  done
  printf '%s\n' "${!seen[@]}" | sort
}

# installed NAME: the package as dpkg knows it, of this architecture where several are installed; nothing if none is.
installed() {
  local name
  for name in "$1:$(dpkg --print-architecture)" "$1"; do
    if [ "$(dpkg-query -W -f '${db:Status-Status}' "$name" 2>/dev/null)" = installed ]; then echo "$name"; return; fi
  done
}

# names_of FIELD: the names in a field of dependencies, one per line, without versions and architectures.
names_of() { tr ',|' '\n\n' <<<"$1" | sed -E 's/\(.*//; s/:[a-z0-9]+//; s/[[:space:]]//g; /^$/d'; }

# make_clean_root ROOT PACKAGE...: the packages and what they depend on, with dpkg's knowledge of them.
make_clean_root() {
  local root=$1 folder package
  shift
  rm -rf "$root"
  mkdir -p "$root"/{usr,tmp,proc,var/lib/dpkg/{info,updates,triggers}}
  for folder in bin lib lib64 sbin; do
    mkdir "$root/usr/$folder"
    ln -s "usr/$folder" "$root/$folder"
  done
  for package in $(with_dependencies "$@"); do
    dpkg -L "$package" | while read -r file; do
      if [ -L "$file" ] || [ -f "$file" ]; then echo "$file"; fi
    done | tar -c -T - 2>/dev/null | tar -x -C "$root" --keep-directory-symlink
    dpkg -s "$package" >>"$root/var/lib/dpkg/status"
    echo >>"$root/var/lib/dpkg/status"
  done
}

# in_root ROOT COMMAND...: runs a command in a clean root, with none of this environment. It has /proc, without which
# the loader does not know where a program stands ($ORIGIN).
in_root() {
  local root=$1 as=()
  shift
  [ "$(id -u)" -eq 0 ] || as=(--map-root-user)
  env -i PATH=/usr/bin unshare "${as[@]}" --mount --pid --fork --mount-proc="$root/proc" /usr/sbin/chroot "$root" "$@"
}

# Skips the test where no program can have another root.
need_roots() {
  command -v dpkg-query >/dev/null || skip "no dpkg here"
  mkdir -p "$folder/empty"
  in_root / true 2>/dev/null || skip "no right to chroot here, and no user namespaces"
}

# A machine of a user without a compiler has these beside what a package depends on.
USER_PACKAGES=(coreutils dash grep)

# check_pages ROOT FOLDER X KERNEL: runs README.md's commands about a kernel's .npz and the page docs/start/kernel.md
# in ROOT, whose folder FOLDER has the program fp4lab, as a stranger would. The .npz holds X.npy as x, and codes and
# scales of KERNEL.npz. Prints the seconds that it took.
check_pages() {
  local root=$1 place=$2 x=$3 kernel=$4 started tool
  for tool in cc gcc g++ c++ clang make cmake python3; do
    [ ! -e "$root/usr/bin/$tool" ] || fail "$root has $tool, which a clean root has not"
  done
  rm -rf "$root/tmp/pages"
  mkdir -p "$root/tmp/pages"
  cp "$kernel" "$root/tmp/pages/kernel.npz"
  python3 -c 'import sys, zipfile; zipfile.ZipFile(sys.argv[1], "a").write(sys.argv[2], "x.npy")' \
    "$root/tmp/pages/kernel.npz" "$x"
  python3 "$source/tests/packaging/pages_in_root.py" script >"$root/tmp/pages/script"
  started=$(date +%s.%N)
  in_root "$root" /usr/bin/sh -c "cd /tmp/pages && PATH=$place:/usr/bin sh script" >"$folder/pages.log" 2>&1 || true
  python3 "$source/tests/packaging/pages_in_root.py" check <"$folder/pages.log" || fail "the first pages do not hold"
  echo "$(date +%s.%N) $started" | awk '{printf "%.1f", $1 - $2}'
}
