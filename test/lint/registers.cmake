cmake_minimum_required(VERSION 3.25)

# The fast kernels must keep everything in registers: reads ptxas's report, which the object
# files of OBJECTS (separated by |) carry, for sm_90a. Kernels with extras may use a stack frame, the others
# written for sm_90a or for float32 nothing at all.
#
# Two words are let pass: ptxas spills them once an iteration, among about a thousand instructions, where dk
# and dv of head dim 128 fill all 255 registers.
set(max_stack_bytes 8)
string(REPLACE "|" ";" OBJECTS "${OBJECTS}")
set(num_fast 0)
foreach(object IN LISTS OBJECTS)
  execute_process(COMMAND ${CUOBJDUMP} -arch sm_90a --dump-resource-usage ${object}
    OUTPUT_VARIABLE report ERROR_VARIABLE error)
  # " Function NAME:\n  REG:255 STACK:8 SHARED:2304 ..."; Lb0E is extras = false.
  string(REGEX MATCHALL "Function [^\n]+\n[^\n]+" kernels "${report}")
  foreach(kernel IN LISTS kernels)
    if(kernel MATCHES "hopper_(forward|backward|dq|dkdv|decode)" OR
        kernel MATCHES "float_(forward|backward)ILi[0-9]+E(Lb0E)?E")
      set(most_bytes 0)
    elseif(kernel MATCHES "Instance[^ \n]*Li[0-9]+ELb0E")
      set(most_bytes ${max_stack_bytes})
    else()
      continue()
    endif()
    math(EXPR num_fast "${num_fast} + 1")
    if(NOT kernel MATCHES "STACK:([0-9]+)" OR CMAKE_MATCH_1 GREATER most_bytes)
      message(SEND_ERROR "${kernel}: spills; a fast kernel must not")
    endif()
  endforeach()
endforeach()
message(STATUS "${num_fast} fast kernels")
if(num_fast LESS 78)
  message(SEND_ERROR "only ${num_fast} fast kernels for sm_90a in ${OBJECTS}; 78 are expected")
endif()
