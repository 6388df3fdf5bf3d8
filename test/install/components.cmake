cmake_minimum_required(VERSION 3.25)

# Each component installs its own files and no others.
file(REMOVE_RECURSE ${PREFIX})

# component(NAME PATTERN...): every installed file matches a pattern, and every pattern has a file.
function(component name)
  set(place ${PREFIX}/${name})
  execute_process(COMMAND ${CMAKE_COMMAND} --install ${BUILD_DIR} --component ${name} --prefix ${place}
    OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
  file(GLOB_RECURSE files RELATIVE ${place} ${place}/*)
  foreach(pattern IN LISTS ARGN)
    set(matching ${files})
    list(FILTER matching INCLUDE REGEX "${pattern}")
    list(LENGTH matching count)
    if(count EQUAL 0)
      message(SEND_ERROR "${name} has ${files}; must have ${pattern}")
    endif()
    list(FILTER files EXCLUDE REGEX "${pattern}")
  endforeach()
  if(files)
    message(SEND_ERROR "${name} has ${files} besides ${ARGN}")
  endif()
endfunction()

component(attngraph_program "^bin/attngraph$")
set(development "^include/attngraph/.*[.]hp*$" "cmake/attngraph/.*[.]cmake$" "pkgconfig/attngraph[.]pc$")
if(SHARED)
  component(attngraph_runtime "libattngraph[.]so[.]")
  component(attngraph_development ${development} "libattngraph[.]so$")
else()
  component(attngraph_development ${development} "libattngraph[.]a$")
endif()
