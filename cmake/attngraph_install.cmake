# Package files: CMake config with version, pkg-config. All paths in them are relative to where they lie.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/attngraph)

install(TARGETS attngraph EXPORT attngraph_targets
  RUNTIME COMPONENT attngraph_runtime
  LIBRARY COMPONENT attngraph_runtime NAMELINK_COMPONENT attngraph_development
  ARCHIVE COMPONENT attngraph_development
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS attngraph_cudnn_frontend EXPORT attngraph_targets
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/attngraph/compat/drop_in)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/attngraph TYPE INCLUDE
  COMPONENT attngraph_development)
if(TARGET attngraph_cli)
  install(TARGETS attngraph_cli RUNTIME COMPONENT attngraph_program)
endif()

install(EXPORT attngraph_targets NAMESPACE attngraph:: FILE attngraph-targets.cmake
  DESTINATION ${package_dir} COMPONENT attngraph_development)
configure_package_config_file(
  ${PROJECT_SOURCE_DIR}/cmake/attngraph-config.cmake.in attngraph-config.cmake
  INSTALL_DESTINATION ${package_dir})
# Before 1.0 a minor version may break its users.
write_basic_package_version_file(attngraph-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES
  ${CMAKE_CURRENT_BINARY_DIR}/attngraph-config.cmake
  ${CMAKE_CURRENT_BINARY_DIR}/attngraph-config-version.cmake
  DESTINATION ${package_dir} COMPONENT attngraph_development)

set(pkgconfig_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH prefix_from_pkgconfig /prefix/${pkgconfig_dir} /prefix)
# What a C linker does not add for a static C++ library.
set(cxx_runtime "")
if(NOT BUILD_SHARED_LIBS)
  foreach(library stdc++ c++ m)
    if(library IN_LIST CMAKE_CXX_IMPLICIT_LINK_LIBRARIES)
      string(APPEND cxx_runtime " -l${library}")
    endif()
  endforeach()
endif()
if(ATTNGRAPH_WITH_CUDA AND NOT BUILD_SHARED_LIBS)  # a static library leaves cudart to its user
  string(APPEND cxx_runtime " -lcudart_static -ldl -lrt")
endif()
configure_file(${PROJECT_SOURCE_DIR}/cmake/attngraph.pc.in attngraph.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/attngraph.pc
  DESTINATION ${pkgconfig_dir} COMPONENT attngraph_development)
