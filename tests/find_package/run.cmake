# Installs the build in BUILD below it. Then a project and a single command are users of it: the project in
# SOURCE is configured (with GENERATOR and MAKE_PROGRAM), built and run, and CXX compiles its main.cc with the
# options of pkg-config.
set(prefix ${BUILD}/find_package/prefix)
set(consumer ${BUILD}/find_package/build)
file(REMOVE_RECURSE ${BUILD}/find_package)
if(SANITIZE)
  set(sanitize -fsanitize=address,undefined)
  set(flags -DCMAKE_CXX_FLAGS=${sanitize})
endif()
foreach(step
    "--install;${BUILD};--prefix;${prefix}"
    "-S;${SOURCE};-B;${consumer};-G;${GENERATOR};-DCMAKE_MAKE_PROGRAM=${MAKE_PROGRAM};-DCMAKE_PREFIX_PATH=${prefix};${flags}"
    "--build;${consumer}")
  execute_process(COMMAND ${CMAKE_COMMAND} ${step} COMMAND_ERROR_IS_FATAL ANY)
endforeach()

# Each installed header is public, or another one includes it; none includes what is missing.
file(GLOB_RECURSE installed RELATIVE ${prefix}/include ${prefix}/include/fp4lab/*)
file(STRINGS ${BUILD}/layers/public.txt reached)
foreach(header ${installed})
  file(STRINGS ${prefix}/include/${header} included REGEX "^#include \"fp4lab/")
  list(TRANSFORM included REPLACE "^#include \"([^\"]+)\".*" "\\1")
  list(APPEND reached ${included})
endforeach()
list(REMOVE_DUPLICATES reached)
list(SORT reached)
list(SORT installed)
if(NOT installed STREQUAL reached)
  message(FATAL_ERROR "installed: ${installed}\npublic or included: ${reached}")
endif()
execute_process(COMMAND ${consumer}/consumer COMMAND_ERROR_IS_FATAL ANY)

# The package file looks for what the library's line links, and for nothing else.
file(READ ${prefix}/lib/cmake/fp4lab/fp4labConfig.cmake config)
string(REGEX MATCHALL "find_dependency\\([A-Za-z_0-9]+" found "${config}")
list(TRANSFORM found REPLACE "find_dependency\\(" "")
file(GLOB targets ${prefix}/lib/cmake/fp4lab/fp4labTargets*.cmake)
foreach(file ${targets})
  file(STRINGS ${file} lines REGEX "INTERFACE_LINK_LIBRARIES")
  string(REGEX MATCHALL "[A-Za-z_0-9]+::" names "${lines}")
  list(APPEND linked ${names})
endforeach()
list(TRANSFORM linked REPLACE "::" "")
list(REMOVE_ITEM linked fp4lab)
list(REMOVE_DUPLICATES linked)
list(SORT linked)
list(SORT found)
if(NOT linked STREQUAL found)
  message(FATAL_ERROR "fp4labConfig.cmake finds \"${found}\", and the library links \"${linked}\"")
endif()

find_program(pkg_config pkg-config REQUIRED)
set(ENV{PKG_CONFIG_PATH} ${prefix}/lib/pkgconfig:$ENV{PKG_CONFIG_PATH})
execute_process(COMMAND ${pkg_config} --cflags --libs fp4lab OUTPUT_VARIABLE options
                OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
separate_arguments(options UNIX_COMMAND "${options}")
execute_process(COMMAND ${CXX} -std=c++20 ${sanitize} ${SOURCE}/main.cc -o ${consumer}/with_pkg_config ${options}
                COMMAND_ERROR_IS_FATAL ANY)
set(ENV{LD_LIBRARY_PATH} ${prefix}/lib)
execute_process(COMMAND ${consumer}/with_pkg_config COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${pkg_config} --modversion fp4lab OUTPUT_VARIABLE version
                OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
if(NOT version STREQUAL VERSION)
  message(FATAL_ERROR "pkg-config says version ${version}, and the build is ${VERSION}")
endif()
