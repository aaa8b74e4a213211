# Unity builds: headers and the inline functions of CLI11 and nlohmann/json are compiled once for several files,
# not once for each. Tests compile each file for itself, so that none leans on what another one includes.
option(FP4LAB_UNITY "Compile several files at a time: a faster build from nothing, a slower one after a change" OFF)
set(FP4LAB_UNITY_FILES 8 CACHE STRING "How many files FP4LAB_UNITY joins")

# fp4lab_unite(TARGET): joins its files in the order of their list. Compiled alone are files that Highway
# includes again for each SIMD target, and folders whose files use the same names for the same roles (the
# Forward of each part, the width of each figure).
function(fp4lab_unite target)
  if(NOT FP4LAB_UNITY)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${FP4LAB_UNITY_FILES})
  get_target_property(sources ${target} SOURCES)
  foreach(source ${sources})
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} OUTPUT_VARIABLE path)
    if(EXISTS ${path})
      file(STRINGS ${path} kernels REGEX "hwy/foreach_target.h" LIMIT_COUNT 1)
      if(kernels OR path MATCHES "/(rows|parts|optimizer|figures)/[^/]*$")
        set_source_files_properties(${source} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
      endif()
    endif()
  endforeach()
endfunction()
