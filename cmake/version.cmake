# version_generated.h with the commit of the working tree, renewed at every build (written only when it changes).
set(esm_compiler "${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}")
set(esm_cuda "none")
if(ESM_CUDA)
  set(esm_compiler "${esm_compiler}, nvcc ${CMAKE_CUDA_COMPILER_VERSION}")
  string(REPLACE ";" "," esm_cuda "${CMAKE_CUDA_ARCHITECTURES}")
endif()
set(ESM_GENERATED_DIR "${PROJECT_BINARY_DIR}/generated")
add_custom_target(esm_version_header
  COMMAND ${CMAKE_COMMAND} -DSOURCE=${PROJECT_SOURCE_DIR} -DOUTPUT=${ESM_GENERATED_DIR}/version_generated.h
          -DVERSION=${PROJECT_VERSION} -DPRESET=${ESM_PRESET} "-DCOMPILER=${esm_compiler}"
          -DBUILD_TYPE=${CMAKE_BUILD_TYPE} -DCUDA_ARCHITECTURES=${esm_cuda} -P ${PROJECT_SOURCE_DIR}/cmake/write_version.cmake
  BYPRODUCTS ${ESM_GENERATED_DIR}/version_generated.h VERBATIM)
add_library(esm_version INTERFACE)
target_include_directories(esm_version INTERFACE ${ESM_GENERATED_DIR})
add_dependencies(esm_version esm_version_header)
