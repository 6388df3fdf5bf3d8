cmake_minimum_required(VERSION 3.25)

# A file that only includes attngraph.hpp compiles in under 1.0 s: the best of several runs, since
# other work on the machine only ever adds time.
set(limit_us 1000000)
set(max_runs 15)

file(WRITE ${WORK_DIR}/umbrella.cpp "#include \"attngraph/attngraph.hpp\"\n")
set(best_us "")
foreach(run RANGE 1 ${max_runs})
  string(TIMESTAMP begin "%s%f")
  execute_process(
    COMMAND ${COMPILER} -std=c++17 -c -I${SOURCE_DIR}/include -o ${WORK_DIR}/umbrella.o ${WORK_DIR}/umbrella.cpp
    COMMAND_ERROR_IS_FATAL ANY)
  string(TIMESTAMP end "%s%f")
  math(EXPR elapsed_us "${end} - ${begin}")
  if(best_us STREQUAL "" OR elapsed_us LESS best_us)
    set(best_us ${elapsed_us})
  endif()
  if(best_us LESS limit_us)
    message(STATUS "attngraph.hpp compiles in ${best_us} us, run ${run}")
    return()
  endif()
endforeach()
message(FATAL_ERROR "attngraph.hpp compiles in ${best_us} us at best; must be below ${limit_us}")
