cmake_minimum_required(VERSION 3.25)

# Two copies of the library in one process, as two plugins that each bring one have them.
file(GLOB_RECURSE library ${PREFIX}/libattngraph.so)
set(work ${PREFIX}/../two_copies)
file(MAKE_DIRECTORY ${work})
file(REAL_PATH ${library} library)
foreach(copy one two)
  configure_file(${library} ${work}/${copy}.so COPYONLY)
endforeach()
execute_process(
  COMMAND ${COMPILER} -x c -std=c99 -D_DEFAULT_SOURCE -Wall -Wextra -Wpedantic -Werror -I${PREFIX}/include
    ${CMAKE_CURRENT_LIST_DIR}/two_copies.c -x none -ldl -o ${work}/two_copies
  COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${work}/two_copies ${work}/one.so ${work}/two.so COMMAND_ERROR_IS_FATAL ANY)
