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
execute_process(COMMAND ${consumer}/consumer COMMAND_ERROR_IS_FATAL ANY)
