cmake_minimum_required(VERSION 3.25)

# Every ```cpp block of README.md and docs compiles: one with an #include stands alone, others are
# statements that see `graph`, `context`, `plan`, `bindings` and `workspace`.
set(flags -Wall -Wextra -Wno-unused -Werror -fsyntax-only)
set(prelude "#include <attngraph/attngraph.hpp>
using namespace attngraph;
Status snippet(Graph& graph, Context& context, Plan& plan, Bindings& bindings, Workspace workspace) {
")

# compile(name, code)
function(compile name code)
  if(NOT code MATCHES "#include")
    set(code "${prelude}${code}\nreturn {};\n}\n")
  endif()
  file(WRITE ${WORK_DIR}/${name}.cpp "${code}")
  execute_process(
    COMMAND ${COMPILER} -std=c++20 ${flags} -I${SOURCE_DIR}/include -I${SOURCE_DIR}/src ${WORK_DIR}/${name}.cpp
    RESULT_VARIABLE failed ERROR_VARIABLE errors)
  if(failed)
    message(SEND_ERROR "${name}:\n${errors}")
  endif()
endfunction()

file(GLOB pages RELATIVE ${SOURCE_DIR} ${SOURCE_DIR}/README.md ${SOURCE_DIR}/docs/*.md)
set(num_blocks 0)
foreach(page IN LISTS pages)
  file(READ ${SOURCE_DIR}/${page} rest)
  get_filename_component(page_name ${page} NAME_WE)
  string(FIND "${rest}" "```cpp\n" begin)
  while(begin GREATER_EQUAL 0)
    math(EXPR begin "${begin} + 7")
    string(SUBSTRING "${rest}" ${begin} -1 rest)
    string(FIND "${rest}" "```" end)
    string(SUBSTRING "${rest}" 0 ${end} code)
    math(EXPR num_blocks "${num_blocks} + 1")
    compile(${page_name}_${num_blocks} "${code}")
    string(SUBSTRING "${rest}" ${end} -1 rest)
    string(FIND "${rest}" "```cpp\n" begin)
  endwhile()
endforeach()
if(num_blocks EQUAL 0)
  message(SEND_ERROR "found no code block")
endif()
