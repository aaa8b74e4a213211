# What the rooms of tests/ say about their tests. Tests run in the build folder, where programs stand.
find_package(Catch2 REQUIRED)
find_package(Python3 COMPONENTS Interpreter QUIET)

set(fp4lab_test_program)  # the path that tests of the program get
if(TARGET fp4lab_program)
  set(fp4lab_test_program $<TARGET_FILE:fp4lab_program>)
  if(CMAKE_CROSSCOMPILING)  # tests start the program by its path or name: a script calls the emulator
    set(fp4lab_test_program ${PROJECT_BINARY_DIR}/emulated/fp4lab)
    string(REPLACE ";" " " emulator "${CMAKE_CROSSCOMPILING_EMULATOR}")
    file(GENERATE OUTPUT ${fp4lab_test_program}
         CONTENT "#!/bin/sh\nexec ${emulator} $<TARGET_FILE:fp4lab_program> \"$@\"\n"
         FILE_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
  endif()
endif()

set(fp4lab_catch_main Catch2::Catch2WithMain)
if(CMAKE_CROSSCOMPILING AND Catch2_VERSION VERSION_LESS 3)  # Debian installs one architecture's at a time
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/catch_main.cc
       CONTENT "#define CATCH_CONFIG_MAIN\n#include <catch2/catch.hpp>\n")
  add_library(fp4lab_catch_main STATIC EXCLUDE_FROM_ALL ${PROJECT_BINARY_DIR}/catch_main.cc)
  target_link_libraries(fp4lab_catch_main PUBLIC Catch2::Catch2)
  set(fp4lab_catch_main fp4lab_catch_main)
endif()

# Tests compile in three quarters of the time with -O1 and run as fast: kernels are the library's.
add_library(fp4lab_test_flags INTERFACE)
target_include_directories(fp4lab_test_flags INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_definitions(fp4lab_test_flags INTERFACE FP4LAB_TEST_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
target_compile_options(fp4lab_test_flags INTERFACE $<$<CONFIG:Release>:-O1>)
target_link_libraries(fp4lab_test_flags INTERFACE fp4lab_oracle fp4lab_measure fp4lab fp4lab_private
  Catch2::Catch2)
if(FP4LAB_PCH)
  fp4lab_precompile(fp4lab_test_pch <algorithm> <cmath> <cstdint> <filesystem> <functional> <map>
    <optional> <string> <vector> ${PROJECT_SOURCE_DIR}/tests/support/catch.h <nlohmann/json.hpp>)
  target_link_libraries(fp4lab_test_pch PRIVATE fp4lab_test_flags)
endif()

# fp4lab_command_test(NAME [EXHAUSTIVE] [SKIPS] COMMAND ARGUMENTS...): a ctest entry. EXHAUSTIVE: takes
# minutes and is run by `ctest -C Exhaustive -L exhaustive` only. SKIPS: where something is missing it
# prints SKIPPED and what, and ctest lists it as skipped.
function(fp4lab_command_test name)
  cmake_parse_arguments(TEST "EXHAUSTIVE;SKIPS" "" "COMMAND" ${ARGN})
  if(TEST_EXHAUSTIVE)
    add_test(NAME ${name} COMMAND ${TEST_COMMAND} CONFIGURATIONS Exhaustive
             WORKING_DIRECTORY ${PROJECT_BINARY_DIR})
    set_tests_properties(${name} PROPERTIES LABELS exhaustive TIMEOUT 3600)
  else()
    add_test(NAME ${name} COMMAND ${TEST_COMMAND} WORKING_DIRECTORY ${PROJECT_BINARY_DIR})
  endif()
  if(TEST_SKIPS)
    set_tests_properties(${name} PROPERTIES SKIP_REGULAR_EXPRESSION "SKIPPED")
  endif()
endfunction()

# fp4lab_test(NAME [EXHAUSTIVE] [SKIPS] SOURCES...): one executable and one ctest entry.
function(fp4lab_test name)
  cmake_parse_arguments(TEST "EXHAUSTIVE;SKIPS" "" "" ${ARGN})
  add_executable(${name} ${TEST_UNPARSED_ARGUMENTS})
  target_link_libraries(${name} PRIVATE fp4lab_test_flags ${fp4lab_catch_main})
  fp4lab_use_pch(${name} REUSE_FROM fp4lab_test_pch)
  set(options)
  foreach(option EXHAUSTIVE SKIPS)
    if(TEST_${option})
      list(APPEND options ${option})
    endif()
  endforeach()
  fp4lab_command_test(${name} ${options} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES ENVIRONMENT
    "OMP_WAIT_POLICY=passive;FP4LAB_SOURCE_DIR=${PROJECT_SOURCE_DIR};FP4LAB_PROGRAM=${fp4lab_test_program}")
endfunction()

# fp4lab_skipped_test(NAME TEXT): a test that this build cannot have; ctest lists it as skipped.
function(fp4lab_skipped_test name text)
  fp4lab_command_test(${name} SKIPS COMMAND ${CMAKE_COMMAND} -E echo "SKIPPED: ${text}")
endfunction()

# fp4lab_wheel_test(ROOM [NAME] [ARGUMENTS...]): builds a wheel, installs it and runs the Python tests of tests/ROOM,
# with ARGUMENTS for pytest. They take longest, so ctest starts them first, one after the other, with other tests
# beside them. NAME: of the test, or ROOM_test.
function(fp4lab_wheel_test room)
  set(name ${room}_test)
  if(ARGC GREATER 1)
    list(POP_FRONT ARGN name)
  endif()
  fp4lab_command_test(${name} COMMAND bash ${PROJECT_SOURCE_DIR}/tests/${room}/run
    $<TARGET_FILE:fp4lab> $<TARGET_FILE:fp4lab_program> ${PROJECT_BINARY_DIR}/${room} ${ARGN})
  set_tests_properties(${name} PROPERTIES LABELS python TIMEOUT 2700 COST 1000 RESOURCE_LOCK wheel
                       SKIP_REGULAR_EXPRESSION "^SKIPPED: ")
endfunction()
