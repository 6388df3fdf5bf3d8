cmake_minimum_required(VERSION 3.25)

# The shared library defines symbols of attngraph alone, beside what the compiler emits weakly for
# templates of the standard library, and none of the JSON library.
file(GLOB_RECURSE library ${PREFIX}/libattngraph.so)
execute_process(
  COMMAND ${NM} --dynamic --defined-only --demangle ${library}
  OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
string(REPLACE ";" " " symbols "${symbols}")
string(REPLACE "[" "(" symbols "${symbols}")
string(REPLACE "]" ")" symbols "${symbols}")
string(REPLACE "\n" ";" symbols "${symbols}")
set(num_own 0)
foreach(symbol IN LISTS symbols)
  if(symbol MATCHES "nlohmann")
    message(SEND_ERROR "exported: ${symbol}")
  elseif(symbol MATCHES "^[0-9a-f]+ [A-Z] " AND NOT symbol MATCHES "^[0-9a-f]+ [VWu] ")
    math(EXPR num_own "${num_own} + 1")
    if(NOT symbol MATCHES "attngraph")
      message(SEND_ERROR "exported: ${symbol}")
    endif()
  endif()
endforeach()
if(num_own LESS 5)
  message(SEND_ERROR "${num_own} symbols exported from ${library}")
endif()
