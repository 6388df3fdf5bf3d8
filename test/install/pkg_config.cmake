cmake_minimum_required(VERSION 3.25)

# Builds a C++ and a C consumer, each with one compiler line from pkg-config's answer, and runs them.
if(NOT PKG_CONFIG)
  message("skipped: there is no pkg-config")
  return()
endif()
file(GLOB_RECURSE pc_file ${PREFIX}/attngraph.pc)
get_filename_component(pkgconfig_dir ${pc_file} DIRECTORY)
get_filename_component(library_dir ${pkgconfig_dir} DIRECTORY)
set(ENV{PKG_CONFIG_PATH} ${pkgconfig_dir})

set(link_kind "")
if(NOT SHARED)
  set(link_kind --static)
endif()
execute_process(
  COMMAND ${PKG_CONFIG} --cflags --libs ${link_kind} "attngraph >= 0.1"
  OUTPUT_VARIABLE flags OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
separate_arguments(flags UNIX_COMMAND "${flags}")

# build_and_run(COMPILER SOURCE OPTION...)
function(build_and_run compiler source)
  set(program ${PREFIX}/../pkg_config_consumer)
  execute_process(
    COMMAND ${compiler} ${ARGN} ${CMAKE_CURRENT_LIST_DIR}/${source} -o ${program} ${flags} -Wl,-rpath,${library_dir}
    COMMAND_ERROR_IS_FATAL ANY)
  execute_process(COMMAND ${program} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

build_and_run(${COMPILER} consumer.cpp -std=c++17)
build_and_run(${C_COMPILER} ../../samples/c/embed.c -std=c99)
