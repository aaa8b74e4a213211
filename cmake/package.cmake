# Packages: `cpack` in the build folder makes fp4lab_VERSION_ARCH.deb of what `cmake --install` installs.
set(FP4LAB_PACKAGE_CONTACT "fp4lab maintainers <maintainers@fp4lab.invalid>" CACHE STRING
    "The maintainer that a package names: NAME <ADDRESS>")
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME fp4lab)
set(CPACK_PACKAGE_CONTACT ${FP4LAB_PACKAGE_CONTACT})
string(CONCAT CPACK_PACKAGE_DESCRIPTION
  "Quantization in every published formula of NVFP4, MXFP4 and FP8, verdicts on kernels, and training of small "
  "models under published recipes, bit for bit on a CPU.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# A program that links the library needs these beside a compiler; the program fp4lab needs none of them.
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS
    "libhwy-dev, libssl-dev, libzip-dev, nlohmann-json3-dev, pkg-config, zlib1g-dev")
if(FP4LAB_MPI)
  string(APPEND CPACK_DEBIAN_PACKAGE_RECOMMENDS ", libopenmpi-dev")
endif()
include(CPack)
