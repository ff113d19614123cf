// Device side of checks of kernels that write FP8.
#pragma once
#include "checks/fp8_reference.h"
#include "checks/harness.h"
#include "kernels/fp8_out.h"

namespace esm::checks {

inline const char* name_of_fp8(DType dtype) { return dtype == DType::kF8E4M3 ? "e4m3" : "e5m2"; }

/// Room for a tensor in FP8, its scale and its amax.
class Fp8Buffers {
 public:
  Fp8Buffers(DType dtype, int64_t n, float scale)
      : dtype_(dtype),
        rows_(static_cast<size_t>(n)),
        transposed_(static_cast<size_t>(n)),
        scale_(std::vector<float>{scale}),
        amax_(std::vector<float>{0.0f}) {}
  kernels::Fp8Out out(bool rows, bool transposed) const {
    return {.dtype = dtype_,
            .rows = rows ? rows_.get() : nullptr,
            .transposed = transposed ? transposed_.get() : nullptr,
            .scale = scale_.get(),
            .amax = amax_.get()};
  }
  void reset(float amax = 0) {
    rows_.poison();
    transposed_.poison();
    amax_.upload({amax});
  }
  std::vector<uint8_t> rows() const { return rows_.download(); }
  std::vector<uint8_t> transposed() const { return transposed_.download(); }
  std::vector<float> amax() const { return amax_.download(); }

 private:
  DType dtype_;
  DeviceBuffer<uint8_t> rows_, transposed_;
  DeviceBuffer<float> scale_, amax_;
};

/// A row count in device memory, or none.
class RowCount {
 public:
  explicit RowCount(int64_t counted)
      : given_(counted >= 0), count_(std::vector<int32_t>{static_cast<int32_t>(counted)}) {}
  const int32_t* get() const { return given_ ? count_.get() : nullptr; }

 private:
  bool given_;
  DeviceBuffer<int32_t> count_;
};

inline int64_t counted_of(int64_t rows, int64_t counted) { return counted < 0 ? rows : std::min(rows, counted); }

}  // namespace esm::checks
