cmake_minimum_required(VERSION 3.25)

# Every public header is complete and warns of nothing, alone and included twice; that of the C interface
# as C, too.
set(flags -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror -fsyntax-only)

function(check_header header language standard)
  file(WRITE ${WORK_DIR}/header.inc "#include \"${header}\"\n#include \"${header}\"\n")
  execute_process(
    COMMAND ${COMPILER} -x ${language} -std=${standard} ${flags} ${ARGN} -I${SOURCE_DIR}/include
      ${WORK_DIR}/header.inc
    RESULT_VARIABLE failed ERROR_VARIABLE errors)
  if(failed)
    message(SEND_ERROR "${header} alone as ${standard}:\n${errors}")
  endif()
endfunction()

file(GLOB_RECURSE headers RELATIVE ${SOURCE_DIR}/include ${SOURCE_DIR}/include/*.hpp ${SOURCE_DIR}/include/*.h)
foreach(header IN LISTS headers)
  foreach(standard c++17 c++20)
    check_header(${header} c++ ${standard})
  endforeach()
endforeach()
foreach(standard c99 c17)
  check_header(attngraph/attngraph.h c ${standard} -Wstrict-prototypes -Wmissing-prototypes)
endforeach()

# Frameworks compile it where little else is installed.
file(STRINGS ${SOURCE_DIR}/include/attngraph/attngraph.h includes REGEX "^ *# *include")
if(NOT includes STREQUAL "#include <stddef.h>;#include <stdint.h>")
  message(SEND_ERROR "attngraph.h includes ${includes}; must be stddef.h and stdint.h alone")
endif()
