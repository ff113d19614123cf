# Language level, warnings as errors on our own targets, ccache, mold, sanitizers.
# -Wno-restrict, -Wno-array-bounds: g++ 12 reports false findings inside std::string (GCC bugs 105651, 105329).
# -Wno-missing-field-initializers: designated initializers leave members at their defaults on purpose.
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  # The sloppiness lets ccache serve files that use the precompiled header; with the base folder a second clone shares
  # the cache of the first.
  set(esm_launcher ${CMAKE_COMMAND} -E env "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}" CCACHE_NOHASHDIR=1
      "CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime" ${CCACHE_PROGRAM})
  set(CMAKE_C_COMPILER_LAUNCHER ${esm_launcher})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${esm_launcher})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${esm_launcher})
endif()

add_library(esm_options INTERFACE)
target_compile_options(esm_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wconversion;-Wno-sign-conversion;-Wno-restrict;-Wno-array-bounds;-Wno-missing-field-initializers;-Werror;-fpch-preprocess>)
target_include_directories(esm_options INTERFACE "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}")

if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  # Only for fuzzing: g++ is the compiler whose warnings count.
  target_compile_options(esm_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-w>)
endif()

find_program(MOLD_PROGRAM mold)
if(MOLD_PROGRAM)
  target_link_options(esm_options INTERFACE -fuse-ld=mold)
endif()

if(ESM_SANITIZE)
  # A finding ends the program. -Wno-maybe-uninitialized: with sanitizers g++ finds it in std::regex and Catch2 (GCC manual).
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
                      -Wno-maybe-uninitialized)
  add_link_options(-fsanitize=address,undefined)
endif()

if(ESM_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "ESM_FUZZ wants clang++ (libFuzzer); the compiler is ${CMAKE_CXX_COMPILER_ID}. "
      "Use the preset fuzz, or scripts/check.sh fuzz, which installs it.")
  endif()
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
