cmake_minimum_required(VERSION 3.25)

# Every ```cpp and every ```c block of README.md and docs compiles: one with an #include stands alone,
# others are statements that see what their prelude declares.
set(flags -Wall -Wextra -Wno-unused -Werror -fsyntax-only)
set(cpp_prelude "#include <attngraph/attngraph.hpp>
using namespace attngraph;
Status snippet(Graph& graph, Context& context, Plan& plan, Bindings& bindings, Workspace workspace) {
")

set(cpp_end "return {};\n}\n")
set(cpp_options -x c++ -std=c++20)
set(c_prelude "#include <attngraph/attngraph.h>
#include <stdio.h>
void snippet(attngraph_context* context, attngraph_graph* graph, attngraph_plan* plan, attngraph_call call,
             attngraph_context_options options, attngraph_message* message, void* q_data, void* o_data,
             void* other_data, void* my_stream, void* my_pool, void* (*my_allocate)(size_t, size_t),
             void (*my_pool_run)(void*, int64_t, void (*)(void*, int64_t), void*)) {
  {
")
set(c_end "}\n}\n")
set(c_options -x c -std=c99)

# compile(language, name, code)
function(compile language name code)
  if(NOT code MATCHES "#include")
    set(code "${${language}_prelude}${code}\n${${language}_end}")
  endif()
  file(WRITE ${WORK_DIR}/${name}.${language} "${code}")
  execute_process(
    COMMAND ${COMPILER} ${${language}_options} ${flags} -I${SOURCE_DIR}/include -I${SOURCE_DIR}/src
      ${WORK_DIR}/${name}.${language}
    RESULT_VARIABLE failed ERROR_VARIABLE errors)
  if(failed)
    message(SEND_ERROR "${name}:\n${errors}")
  endif()
endfunction()

# compile_page(language, page): counts its blocks in num_blocks.
function(compile_page language page)
  file(READ ${SOURCE_DIR}/${page} rest)
  get_filename_component(page_name ${page} NAME_WE)
  set(fence "```${language}\n")
  string(LENGTH "${fence}" fence_length)
  string(FIND "${rest}" "${fence}" begin)
  while(begin GREATER_EQUAL 0)
    math(EXPR begin "${begin} + ${fence_length}")
    string(SUBSTRING "${rest}" ${begin} -1 rest)
    string(FIND "${rest}" "```" end)
    string(SUBSTRING "${rest}" 0 ${end} code)
    math(EXPR num_blocks "${num_blocks} + 1")
    compile(${language} ${page_name}_${num_blocks} "${code}")
    string(SUBSTRING "${rest}" ${end} -1 rest)
    string(FIND "${rest}" "${fence}" begin)
  endwhile()
  set(num_blocks ${num_blocks} PARENT_SCOPE)
endfunction()

file(GLOB pages RELATIVE ${SOURCE_DIR} ${SOURCE_DIR}/README.md ${SOURCE_DIR}/docs/*.md)
foreach(language cpp c)
  set(num_blocks 0)
  foreach(page IN LISTS pages)
    compile_page(${language} ${page})
  endforeach()
  if(num_blocks EQUAL 0)
    message(SEND_ERROR "found no ${language} block")
  endif()
endforeach()
