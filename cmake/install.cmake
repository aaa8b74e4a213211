# Installing: find_package(fp4lab), then link fp4lab::fp4lab; or pkg-config fp4lab.
include(CMakePackageConfigHelpers)
set(FP4LAB_CMAKE_FOLDER lib/cmake/fp4lab)
install(TARGETS fp4lab fp4lab_flags EXPORT fp4labTargets ARCHIVE DESTINATION lib LIBRARY DESTINATION lib)
install(CODE "
  set(PUBLIC ${PROJECT_BINARY_DIR}/layers/public.txt)
  set(SOURCE ${PROJECT_SOURCE_DIR}/lib)
  set(DESTINATION \${CMAKE_INSTALL_PREFIX}/include)
  include(${PROJECT_SOURCE_DIR}/cmake/install_headers.cmake)")
install(EXPORT fp4labTargets NAMESPACE fp4lab:: DESTINATION ${FP4LAB_CMAKE_FOLDER})
configure_package_config_file(cmake/fp4labConfig.cmake.in fp4labConfig.cmake
                              INSTALL_DESTINATION ${FP4LAB_CMAKE_FOLDER})
write_basic_package_version_file(fp4labConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/fp4labConfig.cmake ${PROJECT_BINARY_DIR}/fp4labConfigVersion.cmake
        DESTINATION ${FP4LAB_CMAKE_FOLDER})

# pkg-config: what the library is made of stands on the line of a user of the static library only.
set(fp4lab_pc_requires " libcrypto libhwy libzip zlib")
list(TRANSFORM CMAKE_DL_LIBS PREPEND " -l" OUTPUT_VARIABLE fp4lab_pc_libs)
if(fp4lab_cuda_on)
  list(APPEND fp4lab_pc_libs " ${FP4LAB_CUDART} -lrt")
endif()
string(REPLACE ";" "" fp4lab_pc_libs "${fp4lab_pc_libs}")
if(NOT BUILD_SHARED_LIBS)
  set(fp4lab_pc_static_requires "${fp4lab_pc_requires}")
  set(fp4lab_pc_static_libs "${fp4lab_pc_libs}")
endif()
configure_file(cmake/fp4lab.pc.in fp4lab.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/fp4lab.pc DESTINATION lib/pkgconfig)
