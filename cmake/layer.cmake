# fp4lab_layer(NAME [NOT_INSTALLED] [JSON] [COLD] [PUBLIC_HEADERS ...] [CORE_SOURCES ...] [SOURCES ...]
# LINKS ...): a layer of the library: an object library, of which lib/fp4lab/CMakeLists.txt makes one with the others. Files are
# named one by one: most folders hold some that only certain builds have.
#   PUBLIC_HEADERS  what a user's program includes; they are installed with the headers that they
#                  include, which may change, and without all others
#   CORE_SOURCES   files that the Python package has, too: they need no OpenSSL, no libzip and no Eigen
#   SOURCES        all others
#   LINKS          the layers right below that it includes, and packages
#   JSON           much JSON and no kernels: it is compiled with precompiled headers
#   COLD           code that runs seldom: it is compiled with less optimization, in two thirds of the time
#   NOT_INSTALLED  for our program and tests only: a library of its own
function(fp4lab_layer name)
  cmake_parse_arguments(LAYER "NOT_INSTALLED;JSON;COLD" "" "PUBLIC_HEADERS;CORE_SOURCES;SOURCES;LINKS" ${ARGN})
  if(LAYER_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "fp4lab_layer(${name}): what is ${LAYER_UNPARSED_ARGUMENTS}?")
  endif()
  fp4lab_note_layer(${name} ${LAYER_LINKS})
  foreach(file ${LAYER_PUBLIC_HEADERS})
    set_property(GLOBAL APPEND_STRING PROPERTY FP4LAB_PUBLIC "fp4lab/${name}/${file}\n")
  endforeach()
  foreach(file ${LAYER_CORE_SOURCES})
    set_property(GLOBAL APPEND_STRING PROPERTY FP4LAB_CORE "${name}/${file}\n")
  endforeach()
  if(fp4lab_core_alone)
    if(NOT LAYER_CORE_SOURCES)
      return()
    endif()
    set(LAYER_SOURCES)
    list(REMOVE_ITEM LAYER_LINKS OpenSSL::Crypto PkgConfig::libzip Eigen3::Eigen)
  endif()
  list(TRANSFORM LAYER_LINKS REPLACE "^hwy::hwy$" ${fp4lab_highway})
  fp4lab_present(LAYER_LINKS)
  set(sources ${LAYER_CORE_SOURCES} ${LAYER_SOURCES})
  list(TRANSFORM sources PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)  # tests/fuzz compiles them, too
  if(LAYER_NOT_INSTALLED)
    add_library(fp4lab_${name} STATIC EXCLUDE_FROM_ALL ${sources})
    list(FILTER LAYER_LINKS EXCLUDE REGEX "^fp4lab_")
    list(APPEND LAYER_LINKS fp4lab)
  else()
    add_library(fp4lab_${name} OBJECT ${sources})
    target_sources(${fp4lab_library} PRIVATE $<TARGET_OBJECTS:fp4lab_${name}>)
  endif()
  set_target_properties(fp4lab_${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_link_libraries(fp4lab_${name} PUBLIC fp4lab_flags ${LAYER_LINKS}
                                       PRIVATE $<BUILD_INTERFACE:fp4lab_private>)
  fp4lab_unite(fp4lab_${name})
  set(pch json)
  if(LAYER_COLD)
    fp4lab_cold(fp4lab_${name})
    set(pch cold)
  endif()
  if(LAYER_JSON)
    set_property(GLOBAL APPEND PROPERTY FP4LAB_JSON_LAYERS ${name})
    fp4lab_use_pch(fp4lab_${name} REUSE_FROM fp4lab_${pch}_pch)
  endif()
endfunction()

# Notes which layers a layer links, for tests/layering and the picture in lib/fp4lab/README.md.
function(fp4lab_note_layer name)
  set(layers ${ARGN})
  list(FILTER layers INCLUDE REGEX "^fp4lab_")
  list(TRANSFORM layers REPLACE "^fp4lab_" " ")
  string(CONCAT links ${layers})
  set_property(GLOBAL APPEND PROPERTY FP4LAB_LAYERS ${name})
  set_property(GLOBAL APPEND_STRING PROPERTY FP4LAB_LINKS "${name}:${links}\n")
endfunction()

# Takes the layers that this build lacks (gpu without CUDA) out of the list named LINKS, and stops at
# one that no build has.
function(fp4lab_present links)
  get_property(layers GLOBAL PROPERTY FP4LAB_LAYERS)
  foreach(link ${${links}})
    if(link MATCHES "^fp4lab_(.*)" AND NOT TARGET ${link})
      if(NOT CMAKE_MATCH_1 IN_LIST layers)
        message(FATAL_ERROR "${link} stands above this layer, or is none (lib/fp4lab/CMakeLists.txt)")
      endif()
      list(REMOVE_ITEM ${links} ${link})
    endif()
  endforeach()
  set(${links} ${${links}} PARENT_SCOPE)
endfunction()

# fp4lab_embed(LAYER TEMPLATE OUTPUT): compiles TEMPLATE, filled in, into LAYER.
function(fp4lab_embed layer template output)
  configure_file(${template} ${PROJECT_BINARY_DIR}/${output} @ONLY)
  target_sources(fp4lab_${layer} PRIVATE ${PROJECT_BINARY_DIR}/${output})
endfunction()
