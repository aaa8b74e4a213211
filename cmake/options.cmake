# The options of a build, and what they are if the caller says nothing.
option(FP4LAB_TESTS "Build the tests" ${PROJECT_IS_TOP_LEVEL})
option(FP4LAB_TOOLS "Build the program fp4lab" ${PROJECT_IS_TOP_LEVEL})
option(FP4LAB_WERROR "Treat warnings as errors (CI does)" OFF)
option(FP4LAB_FETCH_HIGHWAY "Download and build Highway 1.2.0 instead of using the system's" OFF)
set(FP4LAB_HIGHWAY_URL https://github.com/google/highway/archive/refs/tags/1.2.0.tar.gz CACHE STRING
    "Where FP4LAB_FETCH_HIGHWAY finds the archive; its SHA-256 is checked")
option(FP4LAB_PYTHON "Build the Python package and nothing else: its extension module and the program (lib/python)" OFF)
option(FP4LAB_PYTHON_PROGRAM "The Python package carries the program; OFF: it needs fewer libraries and minutes" ON)
# A build by the same compiler in place of the layers: the tests of the project need not compile them twice.
set(FP4LAB_PREBUILT "" CACHE FILEPATH "A libfp4lab.a that the extension module links, in place of compiling the layers")
set(FP4LAB_PREBUILT_PROGRAM "" CACHE FILEPATH "With it: the program that the package carries; none where it is empty")
set(fp4lab_core_alone OFF)  # the layers' core files, which need no OpenSSL, no libzip and no Eigen
if(FP4LAB_PYTHON AND (FP4LAB_PREBUILT OR NOT FP4LAB_PYTHON_PROGRAM))
  set(fp4lab_core_alone ON)
endif()
option(FP4LAB_SANITIZE "Build with AddressSanitizer and UBSan" OFF)
option(FP4LAB_FUZZ "Build the libFuzzer targets of tests/fuzz (Clang)" OFF)
set(fp4lab_is_ci OFF)
if("$ENV{CI}" STREQUAL "true")
  set(fp4lab_is_ci ON)
endif()
option(FP4LAB_HEADER_CHECKS "Compile each public header alone: a tenth of the tests' build" ${fp4lab_is_ci})
# Not for compiler launchers: ccache cannot serve what precompiled headers went into.
set(fp4lab_pch ON)
if(CMAKE_CXX_COMPILER_LAUNCHER OR DEFINED ENV{CMAKE_CXX_COMPILER_LAUNCHER})
  set(fp4lab_pch OFF)
endif()
option(FP4LAB_PCH "Precompile headers of the standard library, nlohmann/json and Catch2" ${fp4lab_pch})
set(FP4LAB_CUDA AUTO CACHE STRING "The CUDA backend: ON, OFF, or AUTO for where nvcc is found")
set_property(CACHE FP4LAB_CUDA PROPERTY STRINGS AUTO ON OFF)

option(FP4LAB_MPI "Training of one run on CPUs in several processes, by MPI" OFF)

if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
