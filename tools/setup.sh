# Sourced by tools/run and tools/test: installs the packages that the build needs, and builds.

# Stops the script with one line on stderr.
fail() { echo "error: $*" >&2; exit 1; }

# install_missing PACKAGE...: installs the packages that are missing with apt-get, as root or by
# passwordless sudo; otherwise fails with the command to run.
install_missing() {
  local package missing=()
  command -v dpkg-query >/dev/null || fail "no dpkg here: install the equivalents of: $*"
  for package in "$@"; do
    dpkg-query -W -f '${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed ||
      missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return
  local sudo=()
  if [ "$(id -u)" -ne 0 ]; then
    sudo -n true 2>/dev/null ||
      fail "packages are missing; run: sudo apt-get install -y ${missing[*]}"
    sudo=(sudo -n)
  fi
  echo "installing: ${missing[*]}"
  "${sudo[@]}" apt-get update -qq ||
    fail "apt-get update failed: without a network, install by hand: ${missing[*]}"
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null ||
    fail "could not install: ${missing[*]}"
}

# at_least WANTED VERSION: succeeds if VERSION is WANTED or newer.
at_least() { [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" = "$1" ]; }

# Installs g++-12 and sets CXX to it if g++ is older than 12 (Ubuntu 22.04 has 11), unless CXX is set.
choose_compiler() {
  [ -n "${CXX:-}" ] && return
  if ! at_least 12 "$(g++ -dumpversion)"; then
    install_missing g++-12
    export CXX=g++-12
  fi
}

# Prints the CMake options for Highway: none if the system has 1.0.3 or newer or CMAKE_PREFIX_PATH is
# set; else options that make CMake fetch and build a pinned one (Ubuntu 22.04 packages 0.16).
# FP4LAB_HIGHWAY_URL names another place of that archive.
highway_options() {
  local version
  version=$(dpkg-query -W -f '${Version}' libhwy-dev 2>/dev/null | sed 's/-.*//')
  if [ -z "${CMAKE_PREFIX_PATH:-}" ] && ! at_least 1.0.3 "$version"; then
    echo "libhwy-dev here is $version: fetching a newer Highway" >&2
    echo "-DFP4LAB_FETCH_HIGHWAY=ON"
    [ -z "${FP4LAB_HIGHWAY_URL:-}" ] || echo "-DFP4LAB_HIGHWAY_URL=$FP4LAB_HIGHWAY_URL"
  fi
}

# Prints the path of a CMake of at least 3.25: the system's, or one from PyPI in build/venv (Ubuntu
# 22.04 has 3.22).
find_cmake() {
  local version
  version=$(cmake --version 2>/dev/null | sed -n 's/^cmake version //p')
  if [ -n "$version" ] && at_least 3.25 "$version"; then
    echo cmake
    return
  fi
  if [ ! -x build/venv/bin/cmake ]; then
    install_missing python3-venv >&2
    echo "CMake ${version:-(none)} is older than 3.25: taking it from PyPI into build/venv" >&2
    python3 -m venv build/venv && build/venv/bin/pip install -q 'cmake>=3.25,<4' >&2 ||
      fail "needs CMake 3.25 or newer: install it, then start again"
  fi
  echo build/venv/bin/cmake
}

BUILD_PACKAGES=(g++ ninja-build pkg-config libhwy-dev libcli11-dev nlohmann-json3-dev
  libeigen3-dev libboost-dev libssl-dev zlib1g-dev libzip-dev ca-certificates)
if ! command -v cmake >/dev/null; then BUILD_PACKAGES+=(cmake); fi

# configure_and_build FOLDER OPTION...: configures and builds in FOLDER. Prints nothing on success;
# the log stays in FOLDER/build.log.
configure_and_build() {
  local folder=$1 log=$1/build.log cmake highway
  shift
  mkdir -p "$folder"
  choose_compiler
  mapfile -t highway < <(highway_options)
  cmake=$(find_cmake)
  "$cmake" -S . -B "$folder" -G Ninja "${highway[@]}" "$@" >"$log" 2>&1 ||
    { tail -n 20 "$log" >&2; fail "configuring failed; the whole log: $log"; }
  "$cmake" --build "$folder" >>"$log" 2>&1 ||
    { grep -E -A5 'error|FAILED' "$log" | head -n 40 >&2; fail "the build failed; the log: $log"; }
}
