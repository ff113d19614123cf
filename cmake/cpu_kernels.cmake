# Flags of the CPU kernels (src/ops/*_cpu.cpp). They hold no torch, hence no precompiled header, and are the only files that
# need x86-64-v3 (AVX2, FMA: every server since 2013); attention and GELU have an AVX-512 build beside it, chosen at run time.
# Not -ffast-math: NaN must stay NaN, and sums keep their order.
function(esm_cpu_kernel_flags)
  set(vector_flags -O3 -fopenmp-simd -ffp-contract=fast -fno-math-errno -fno-trapping-math)
  file(GLOB kernels CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/ops/*_cpu.cpp")
  set(v3 "")
  set(v4 "")
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    set(v3 -march=x86-64-v3)
    set(v4 -march=x86-64-v4 -mprefer-vector-width=512)
  endif()
  foreach(kernel IN LISTS kernels)
    set(arch ${v3})
    if(kernel MATCHES "_avx512_cpu")
      set(arch ${v4})
    endif()
    set_source_files_properties("${kernel}" PROPERTIES SKIP_PRECOMPILE_HEADERS ON
      COMPILE_OPTIONS "${vector_flags};${arch}")
  endforeach()
  set_source_files_properties("${PROJECT_SOURCE_DIR}/src/ops/parallel.cpp" PROPERTIES SKIP_PRECOMPILE_HEADERS ON
    COMPILE_OPTIONS -fopenmp)
endfunction()
