# Flags of this project's own targets; none of them reaches a consumer. A project that adds this one
# keeps its own warning level.
function(attngraph_options target)
  target_compile_features(${target} PRIVATE cxx_std_20)
  set_target_properties(${target} PROPERTIES
    CXX_EXTENSIONS OFF CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
    POSITION_INDEPENDENT_CODE ON)
  if(PROJECT_IS_TOP_LEVEL OR ATTNGRAPH_WERROR)
    target_compile_options(${target} PRIVATE
      -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual
      $<$<BOOL:${ATTNGRAPH_WERROR}>:-Werror>)
  endif()
  if(ATTNGRAPH_FUZZ)
    target_compile_options(${target} PRIVATE -fsanitize=fuzzer-no-link)
  endif()
  if(ATTNGRAPH_SANITIZE)
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")  # its manual: sanitizers make this warning say wrong things
      target_compile_options(${target} PRIVATE -Wno-maybe-uninitialized)
    endif()
    target_compile_options(${target} PRIVATE
      -fsanitize=${ATTNGRAPH_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer -g1)
    target_link_options(${target} PUBLIC -fsanitize=${ATTNGRAPH_SANITIZE})
  endif()
endfunction()
