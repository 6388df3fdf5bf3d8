cmake_minimum_required(VERSION 3.25)

# A file that only includes attngraph.hpp compiles in under 1.0 s of processor time, which other work
# on the machine changes less than time on the wall; the best of several runs.
set(limit_ms 1000)
set(max_runs 10)

file(WRITE ${WORK_DIR}/umbrella.cpp "#include \"attngraph/attngraph.hpp\"\n")
set(compile "'${COMPILER}' -std=c++17 -c -I'${SOURCE_DIR}/include' -o '${WORK_DIR}/umbrella.o' '${WORK_DIR}/umbrella.cpp'")
set(best_ms "")
foreach(run RANGE 1 ${max_runs})
  # `times` prints user and system time of the shell, then of its children: 0m0.620s 0m0.070s
  execute_process(COMMAND sh -c "${compile} && times" OUTPUT_VARIABLE spent COMMAND_ERROR_IS_FATAL ANY)
  if(NOT spent MATCHES "([0-9]+)m([0-9]+)\\.([0-9]+)s ([0-9]+)m([0-9]+)\\.([0-9]+)s[ \n]*$")
    message(FATAL_ERROR "sh's times printed: ${spent}")
  endif()
  math(EXPR spent_s "(${CMAKE_MATCH_1} + ${CMAKE_MATCH_4}) * 60 + ${CMAKE_MATCH_2} + ${CMAKE_MATCH_5}")
  string(SUBSTRING "1${CMAKE_MATCH_3}00" 0 4 user_ms)  # the leading 1 keeps 050 from being octal
  string(SUBSTRING "1${CMAKE_MATCH_6}00" 0 4 system_ms)
  math(EXPR spent_ms "${spent_s} * 1000 + ${user_ms} - 1000 + ${system_ms} - 1000")
  if(best_ms STREQUAL "" OR spent_ms LESS best_ms)
    set(best_ms ${spent_ms})
  endif()
  if(best_ms LESS limit_ms)
    message(STATUS "attngraph.hpp compiles in ${best_ms} ms, run ${run}")
    return()
  endif()
endforeach()
message(FATAL_ERROR "attngraph.hpp compiles in ${best_ms} ms at best; must be below ${limit_ms}")
