#include "ops/gelu.h"

#include "ops/dispatch.h"

namespace esm::ops {

void gelu(Gelu form, const at::Tensor& x, const at::Tensor& y) {
  require_cpu("gelu", {x, y});
  with_element(x, [&](auto element) {
    using T = decltype(element);
    cpu::gelu(form == Gelu::kTanh, x.numel(), data<T>(x), data<T>(y));
  });
}

void gelu_backward(Gelu form, const GeluBackward& a) {
  require_cpu("gelu_backward", {a.x, a.dy, a.dx, a.y});
  with_element(a.x, [&](auto element) {
    using T = decltype(element);
    cpu::gelu_backward(form == Gelu::kTanh, a.x.numel(), data<T>(a.x), data<T>(a.dy), data<T>(a.dx),
                       data_or_null<T>(a.y));
  });
}

}  // namespace esm::ops
