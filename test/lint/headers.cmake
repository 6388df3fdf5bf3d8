cmake_minimum_required(VERSION 3.25)

# Every public header is complete and warns of nothing, alone and included twice.
set(flags -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror -fsyntax-only)

file(GLOB_RECURSE headers RELATIVE ${SOURCE_DIR}/include ${SOURCE_DIR}/include/*.hpp)
foreach(header IN LISTS headers)
  file(WRITE ${WORK_DIR}/header.cpp "#include \"${header}\"\n#include \"${header}\"\n")
  foreach(standard 17 20)
    execute_process(
      COMMAND ${COMPILER} -std=c++${standard} ${flags} -I${SOURCE_DIR}/include ${WORK_DIR}/header.cpp
      RESULT_VARIABLE failed ERROR_VARIABLE errors)
    if(failed)
      message(SEND_ERROR "${header} alone as C++${standard}:\n${errors}")
    endif()
  endforeach()
endforeach()
