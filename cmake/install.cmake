# Installing: find_package(fp4lab), then link fp4lab::fp4lab.
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
