# Installs the build in BUILD below it, then configures (with GENERATOR and MAKE_PROGRAM), builds and
# runs the project in SOURCE.
set(prefix ${BUILD}/find_package/prefix)
set(consumer ${BUILD}/find_package/build)
file(REMOVE_RECURSE ${BUILD}/find_package)
if(SANITIZE)
  set(flags -DCMAKE_CXX_FLAGS=-fsanitize=address,undefined)
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
