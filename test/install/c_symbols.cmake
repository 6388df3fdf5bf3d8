cmake_minimum_required(VERSION 3.25)

# The C symbols that the shared library exports are those that attngraph.h declares, and a C program that
# uses one of them alone links and runs, whichever it is.
file(GLOB_RECURSE library ${PREFIX}/libattngraph.so)
get_filename_component(library_dir ${library} DIRECTORY)
file(READ ${PREFIX}/include/attngraph/attngraph.h header)
string(REGEX REPLACE "/\\*[^*]*\\*+([^/*][^*]*\\*+)*/" "" header "${header}")
set(declared "")
string(REGEX MATCHALL "ATTNGRAPH_C_API[^(]*" declarations "${header}")
foreach(declaration IN LISTS declarations)
  if(declaration MATCHES "(attngraph_[a-z_]+)$")
    list(APPEND declared ${CMAKE_MATCH_1})
  endif()
endforeach()
list(SORT declared)

execute_process(COMMAND ${NM} --dynamic --defined-only ${library}
  OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL " T attngraph_[a-z_]+" exported "${symbols}")
list(TRANSFORM exported REPLACE " T " "")
list(SORT exported)
if(NOT declared STREQUAL exported)
  message(SEND_ERROR "attngraph.h declares ${declared}; the library exports ${exported}")
endif()

set(work ${PREFIX}/../c_symbols)
file(MAKE_DIRECTORY ${work})
foreach(symbol IN LISTS declared)
  file(WRITE ${work}/symbol.c "#include <attngraph/attngraph.h>
int main(void) { return (void (*)(void))${symbol} == (void (*)(void))0; }
")
  execute_process(
    COMMAND ${COMPILER} -x c -std=c99 -Wall -Wextra -Wpedantic -Werror -I${PREFIX}/include ${work}/symbol.c
      -x none ${library} -Wl,-rpath,${library_dir} -o ${work}/symbol
    RESULT_VARIABLE failed ERROR_VARIABLE errors)
  if(NOT failed)
    execute_process(COMMAND ${work}/symbol RESULT_VARIABLE failed ERROR_VARIABLE errors)
  endif()
  if(failed)
    message(SEND_ERROR "${symbol}: ${errors}")
  endif()
endforeach()
list(LENGTH declared num_declared)
if(num_declared LESS 30)
  message(SEND_ERROR "${num_declared} functions found in attngraph.h")
endif()
