# Flags of this project's own targets; none of them reaches a consumer.
function(attngraph_options target)
  target_compile_features(${target} PRIVATE cxx_std_20)
  set_target_properties(${target} PROPERTIES
    CXX_EXTENSIONS OFF CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
    POSITION_INDEPENDENT_CODE ON)
  target_compile_options(${target} PRIVATE
    -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual
    $<$<BOOL:${ATTNGRAPH_WERROR}>:-Werror>)
  if(ATTNGRAPH_SANITIZE)
    target_compile_options(${target} PRIVATE
      -fsanitize=${ATTNGRAPH_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer -g)
    target_link_options(${target} PUBLIC -fsanitize=${ATTNGRAPH_SANITIZE})
  endif()
endfunction()
