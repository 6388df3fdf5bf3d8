cmake_minimum_required(VERSION 3.25)

# The PyTorch operator of samples/pytorch against the installed shared library.
if(NOT PYTHON)
  message("skipped: there is no Python")
  return()
endif()
file(GLOB_RECURSE library ${PREFIX}/libattngraph.so)
execute_process(
  COMMAND ${CMAKE_COMMAND} -E env ATTNGRAPH_LIBRARY=${library} PYTHONDONTWRITEBYTECODE=1
    ${PYTHON} ${CMAKE_CURRENT_LIST_DIR}/../../samples/pytorch/test_attngraph_torch.py
  COMMAND_ERROR_IS_FATAL ANY)
