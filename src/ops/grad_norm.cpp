#include "ops/grad_norm.h"

#include "ops/dispatch.h"

namespace esm::ops {

double sum_of_squares(const Context&, const at::Tensor& flat) {
  require_cpu("sum_of_squares", {flat});
  return cpu::sum_of_squares(flat.numel(), data<float>(flat));
}

}  // namespace esm::ops
