# The cuda engine is optional: without a toolkit the library has its host engines and says so.
set(ATTNGRAPH_CUDA AUTO CACHE STRING "Build the cuda engine: AUTO (when a toolkit of 12.8 or newer is found), ON or OFF")
set_property(CACHE ATTNGRAPH_CUDA PROPERTY STRINGS AUTO ON OFF)
set(ATTNGRAPH_CUDA_ARCHITECTURES 80 90a-real CACHE STRING
  "Architectures of the cuda engine; one without -real also brings PTX, for every newer device; without 90a
  the kernels of sm_90a are missing, and 90 takes the general ones")

set(ATTNGRAPH_WITH_CUDA OFF)
if(NOT ATTNGRAPH_CUDA STREQUAL OFF)
  find_package(CUDAToolkit 12.8 QUIET)
  if(CUDAToolkit_FOUND)
    set(CMAKE_CUDA_ARCHITECTURES ${ATTNGRAPH_CUDA_ARCHITECTURES})
    if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
      set(CMAKE_CUDA_COMPILER ${CUDAToolkit_NVCC_EXECUTABLE})
    endif()
    enable_language(CUDA)
    set(ATTNGRAPH_WITH_CUDA ON)
  elseif(ATTNGRAPH_CUDA STREQUAL ON)
    message(FATAL_ERROR "ATTNGRAPH_CUDA is ON, but no CUDA toolkit of 12.8 or newer was found; set CUDAToolkit_ROOT")
  endif()
endif()
set(ATTNGRAPH_WITH_SM_90A OFF)
if("${ATTNGRAPH_CUDA_ARCHITECTURES}" MATCHES "(^|;)90a")
  set(ATTNGRAPH_WITH_SM_90A ${ATTNGRAPH_WITH_CUDA})
endif()
message(STATUS "attngraph: cuda engine ${ATTNGRAPH_WITH_CUDA}, kernels of sm_90a ${ATTNGRAPH_WITH_SM_90A}")

# Flags of the kernels. CMake 3.25 does not know which flag asks a CUDA 13 compiler for C++20.
function(attngraph_cuda_options target)
  set_target_properties(${target} PROPERTIES
    CUDA_ARCHITECTURES "${ATTNGRAPH_CUDA_ARCHITECTURES}" CUDA_RUNTIME_LIBRARY Static
    CUDA_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON POSITION_INDEPENDENT_CODE ON)
  # Device code shares constexpr functions of the host: bands, dropout, the cut of ragged rows.
  target_compile_options(${target} PRIVATE -std=c++20 --expt-relaxed-constexpr
    -Xcompiler=-Wall,-Wextra,-Wshadow $<$<BOOL:${ATTNGRAPH_WERROR}>:-Werror=all-warnings>)
endfunction()
