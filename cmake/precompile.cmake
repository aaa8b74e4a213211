# fp4lab_precompile(NAME HEADERS...): a target whose precompiled headers others reuse; they have its
# compiler options. Half of the time of a file without kernels goes into these headers.
function(fp4lab_precompile name)
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/${name}.cc CONTENT "")
  add_library(${name} OBJECT EXCLUDE_FROM_ALL ${PROJECT_BINARY_DIR}/${name}.cc)
  target_precompile_headers(${name} PRIVATE ${ARGN})
endfunction()

# fp4lab_use_pch(TARGET REUSE_FROM NAME | PRIVATE HEADERS...): GCC 12 forgets there which functions are
# the standard library's, and sees overflows in std::string that cannot be.
function(fp4lab_use_pch target)
  if(FP4LAB_PCH)
    target_precompile_headers(${target} ${ARGN})
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-array-bounds>)
  endif()
endfunction()

if(FP4LAB_PCH)  # of layers that say JSON; those that say COLD have options of their own
  foreach(kind json cold)
    fp4lab_precompile(fp4lab_${kind}_pch <algorithm> <array> <cmath> <cstdint> <filesystem> <functional>
      <map> <optional> <set> <span> <sstream> <string> <string_view> <vector> <nlohmann/json.hpp>)
    set_target_properties(fp4lab_${kind}_pch PROPERTIES POSITION_INDEPENDENT_CODE ON)
    target_link_libraries(fp4lab_${kind}_pch PRIVATE fp4lab_flags fp4lab_private OpenMP::OpenMP_CXX
      nlohmann_json::nlohmann_json)
  endforeach()
  fp4lab_cold(fp4lab_cold_pch)
endif()
