# Flags that every target of ours gets. No contraction: it changes results (lib/fp4lab/README.md).
add_library(fp4lab_flags INTERFACE)
target_compile_features(fp4lab_flags INTERFACE cxx_std_20)
target_compile_options(fp4lab_flags INTERFACE -ffp-contract=off)
target_include_directories(fp4lab_flags INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/lib> $<INSTALL_INTERFACE:include>)

add_library(fp4lab_private INTERFACE)  # flags for our own sources only
# GCC's own garbage collector waits for 1.5 GB: a tenth of a file's time, for a tenth more memory.
target_compile_options(fp4lab_private INTERFACE -Wall -Wextra -Wno-psabi
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:--param=ggc-min-heapsize=1500000>
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict;-Wno-stringop-overflow>  # false alarms on std::string (GCC 12)
  # False alarms of GCC 13 and 14: on functions that take a name and give a reference into a list, and on copies of fewer
  # elements than one vector has, where a vector has one.
  $<$<AND:$<COMPILE_LANG_AND_ID:CXX,GNU>,$<VERSION_GREATER_EQUAL:$<CXX_COMPILER_VERSION>,13>>:-Wno-dangling-reference;-Wno-array-bounds;-Wno-stringop-overread>
  $<$<BOOL:${FP4LAB_WERROR}>:-Werror>
  $<$<BOOL:${FP4LAB_SANITIZE}>:-fsanitize=address,undefined;-fno-sanitize-recover=undefined;-g1>)
target_link_options(fp4lab_private INTERFACE
  $<$<BOOL:${FP4LAB_SANITIZE}>:-fsanitize=address,undefined>)
# fp4lab_cold(TARGET): options for code that runs seldom and takes long to compile (JSON, command lines, reports).
# The results are the same: no option here changes arithmetic.
# FP4LAB_UNITY joins twice as many of its files: another quarter.
function(fp4lab_cold target)
  if(FP4LAB_UNITY)
    math(EXPR files "2 * ${FP4LAB_UNITY_FILES}")
    set_target_properties(${target} PROPERTIES UNITY_BUILD_BATCH_SIZE ${files})
  endif()
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>
    $<$<AND:$<CONFIG:Release>,$<CXX_COMPILER_ID:GNU>>:-finline-small-functions>)
endfunction()
target_compile_definitions(fp4lab_private INTERFACE ${fp4lab_targets})
target_compile_options(fp4lab_private INTERFACE ${fp4lab_target_options})
