# Debian's cross compiler for 64-bit Arm, its arm64 packages (multiarch), and QEMU's user emulation for what a
# build or a test runs. Debian names them g++-aarch64-linux-gnu,
# qemu-user-static, and libhwy-dev, libssl-dev, libzip-dev, zlib1g-dev and libgomp1 with ":arm64".
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static)
# The machine that builds has pkg-config files of its own.
set(ENV{PKG_CONFIG_LIBDIR} /usr/lib/aarch64-linux-gnu/pkgconfig:/usr/share/pkgconfig)
