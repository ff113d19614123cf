#include "ops/place.h"

namespace esm::ops {

void bind_torch(const Context& context) {
  if (context.sketch) return;
  if (at::get_num_threads() != context.threads) at::set_num_threads(context.threads);
}

}  // namespace esm::ops
