cmake_minimum_required(VERSION 3.25)

# What a user's compiler reads for attngraph.hpp: this library's public headers and the standard
# library's, no CUDA, cuDNN or JSON header.
file(WRITE ${WORK_DIR}/umbrella.cpp "#include \"attngraph/attngraph.hpp\"\n")
execute_process(
  COMMAND ${COMPILER} -std=c++17 -M -I${SOURCE_DIR}/include ${WORK_DIR}/umbrella.cpp
  OUTPUT_VARIABLE rule COMMAND_ERROR_IS_FATAL ANY)
# What the same compiler reads for the standard headers that our own headers name.
file(GLOB_RECURSE headers ${SOURCE_DIR}/include/*.hpp)
set(standard_only "")
foreach(header IN LISTS headers)
  file(STRINGS ${header} includes REGEX "^#include <")
  foreach(include IN LISTS includes)
    string(APPEND standard_only "${include}\n")
    if(NOT include MATCHES "^#include <[a-z_0-9]+>$")
      message(SEND_ERROR "${header}: ${include}: a public header includes the standard library alone")
    endif()
  endforeach()
endforeach()
file(WRITE ${WORK_DIR}/standard.cpp "${standard_only}")
execute_process(
  COMMAND ${COMPILER} -std=c++17 -M ${WORK_DIR}/standard.cpp
  OUTPUT_VARIABLE standard_rule COMMAND_ERROR_IS_FATAL ANY)

separate_arguments(files UNIX_COMMAND "${rule}")
separate_arguments(standard_files UNIX_COMMAND "${standard_rule}")
set(num_own 0)
foreach(file IN LISTS files)
  string(FIND "${file}" "${SOURCE_DIR}/include/attngraph/" own)
  if(own EQUAL 0)
    math(EXPR num_own "${num_own} + 1")
  elseif(file MATCHES "\\.(o:|cpp)$")
    continue()
  elseif(NOT file IN_LIST standard_files)
    message(SEND_ERROR "attngraph.hpp reads ${file}, which the standard headers do not")
  endif()
endforeach()
list(LENGTH headers num_headers)
if(num_own LESS 2)
  message(SEND_ERROR "attngraph.hpp reads ${num_own} of ${num_headers} public headers: the list was not understood")
endif()
