#include "device/cuda_check.h"
#include "kernels/fp8_counts.h"
#include "ops/cuda_halves.h"
#include "ops/cuda_operand.h"

namespace esm::ops::cuda {

void count_codes(const Context& context, const GemmOperand& x, const at::Tensor& counts) {
  at::Tensor(counts).zero_();
  ESM_CUDA(kernels::launch(kernels::Fp8CountsArgs{.dtype = fp8_type(x.format.format),
                                                  .rows = x.codes.size(0),
                                                  .cols = x.codes.size(1),
                                                  .x = pointer<uint8_t>(x.codes),
                                                  .row_count = pointer<int32_t>(x.counted),
                                                  .counts = reinterpret_cast<uint64_t*>(pointer<int64_t>(counts))},
                           context.stream()));
}

void moments(const Context& context, const at::Tensor& x, const at::Tensor& counted, const at::Tensor& result) {
  ESM_CHECK(x.scalar_type() == at::kBFloat16, "moments of BF16 only");
  const at::Tensor workspace =
      at::empty({static_cast<int64_t>(kernels::moments_workspace())}, x.options().dtype(at::kByte));
  ESM_CUDA(kernels::launch(kernels::MomentsArgs{.rows = x.size(0),
                                                .cols = x.size(1),
                                                .x = raw(x),
                                                .row_count = pointer<int32_t>(counted),
                                                .moments = pointer<double>(result),
                                                .workspace = raw(workspace)},
                           context.stream()));
}

}  // namespace esm::ops::cuda
