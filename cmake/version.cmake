# version_generated.h with the commit of the working tree, renewed at every build (written only when it changes).
set(ESM_GENERATED_DIR "${PROJECT_BINARY_DIR}/generated")
add_custom_target(esm_version_header
  COMMAND ${CMAKE_COMMAND} -DSOURCE=${PROJECT_SOURCE_DIR} -DOUTPUT=${ESM_GENERATED_DIR}/version_generated.h
          -DVERSION=${PROJECT_VERSION} -DPRESET=${ESM_PRESET} -P ${PROJECT_SOURCE_DIR}/cmake/write_version.cmake
  BYPRODUCTS ${ESM_GENERATED_DIR}/version_generated.h)
add_library(esm_version INTERFACE)
target_include_directories(esm_version INTERFACE ${ESM_GENERATED_DIR})
add_dependencies(esm_version esm_version_header)
