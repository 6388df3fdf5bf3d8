cmake_minimum_required(VERSION 3.25)

# Each file of test/nocompile compiles, and with its fault does not: the compiler then says what the
# file's first line expects.
set(flags -std=c++17 -Wall -Wextra -Werror -fsyntax-only -I${SOURCE_DIR}/include)

file(GLOB files ${SOURCE_DIR}/test/nocompile/*.cpp)
foreach(file IN LISTS files)
  execute_process(COMMAND ${COMPILER} ${flags} ${file} RESULT_VARIABLE failed ERROR_VARIABLE errors)
  if(failed)
    message(SEND_ERROR "${file} without its fault:\n${errors}")
  endif()
  file(STRINGS ${file} expected REGEX "^// must say: " LIMIT_COUNT 1)
  string(REPLACE "// must say: " "" expected "${expected}")
  execute_process(COMMAND ${COMPILER} ${flags} -DFAULT ${file} RESULT_VARIABLE failed ERROR_VARIABLE errors)
  if(NOT failed)
    message(SEND_ERROR "${file} compiles with its fault")
  elseif(NOT errors MATCHES "${expected}")
    message(SEND_ERROR "${file} with its fault must say '${expected}':\n${errors}")
  endif()
endforeach()
if(NOT files)
  message(SEND_ERROR "no files in test/nocompile")
endif()
