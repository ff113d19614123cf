// The kernel against the CPU operation, random inputs, poisoned surroundings.
#include "kernels/adamw.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "base/philox.h"
#include "ops/adamw.h"
#include "support/catch.h"
#include "tests/kernels/cases/adamw.h"

using namespace esm;

namespace {

void check(cudaError_t error) {
  INFO(cudaGetErrorString(error));
  REQUIRE(error == cudaSuccess);
}

// Device copy of host values with a poisoned guard behind them.
template <class T>
class DeviceBuffer {
 public:
  static constexpr size_t kGuard = 64;
  explicit DeviceBuffer(const std::vector<T>& host) : n_(host.size()) {
    check(cudaMalloc(reinterpret_cast<void**>(&data_), (n_ + kGuard) * sizeof(T)));
    check(cudaMemset(data_, 0xff, (n_ + kGuard) * sizeof(T)));
    check(cudaMemcpy(data_, host.data(), n_ * sizeof(T), cudaMemcpyHostToDevice));
  }
  ~DeviceBuffer() { cudaFree(data_); }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
  T* get() { return data_; }
  std::vector<T> to_host() {
    std::vector<T> all(n_ + kGuard);
    check(cudaMemcpy(all.data(), data_, all.size() * sizeof(T), cudaMemcpyDeviceToHost));
    for (size_t i = n_; i < all.size(); ++i) {
      unsigned char bytes[sizeof(T)];
      std::memcpy(bytes, &all[i], sizeof(T));
      for (const unsigned char byte : bytes) REQUIRE(byte == 0xff);
    }
    all.resize(n_);
    return all;
  }

 private:
  size_t n_;
  T* data_ = nullptr;
};

std::vector<float> random_values(int64_t n, uint64_t which, float scale, bool positive) {
  std::vector<float> values(static_cast<size_t>(n));
  for (size_t i = 0; i < values.size(); ++i) {
    const auto r = philox(11, RandomStream::kSynthetic, i, static_cast<uint32_t>(which));
    const float z = static_cast<float>(normal_pair(r.v[0], r.v[1])[0]) * scale;
    values[i] = positive ? z * z : z;
  }
  return values;
}

at::Tensor as_tensor(std::vector<float>& values) {
  return at::from_blob(values.data(), {static_cast<int64_t>(values.size())}, at::kFloat);
}

}  // namespace

TEST_CASE("adamw kernel equals the CPU operation") {
  for (const cases::AdamwCase& c : cases::adamw_cases()) {
    CAPTURE(c.n, c.step, c.weight_decay, c.compute);
    std::vector<float> p = random_values(c.n, 1, 0.02f, false), m = random_values(c.n, 2, 0.1f, false);
    std::vector<float> v = random_values(c.n, 3, 0.1f, true), g = random_values(c.n, 4, 30.0f, false);
    DeviceBuffer<float> dp(p), dm(m), dv(v), dg(g);
    DeviceBuffer<uint16_t> dc(std::vector<uint16_t>(p.size(), 0x7fc0));

    const ops::AdamWArgs host{.master = as_tensor(p),
                              .grad = as_tensor(g),
                              .exp_avg = as_tensor(m),
                              .exp_avg_sq = as_tensor(v),
                              .lr = 1e-3,
                              .weight_decay = c.weight_decay,
                              .grad_scale = 1e-3,
                              .step = c.step};
    ops::adamw(Context{.threads = 2}, host);
    const kernels::AdamwArgs args{.master = dp.get(),
                                  .exp_avg = dm.get(),
                                  .exp_avg_sq = dv.get(),
                                  .grad = dg.get(),
                                  .compute = c.compute ? dc.get() : nullptr,
                                  .n = c.n,
                                  .decay = static_cast<float>(1 - host.lr * host.weight_decay),
                                  .step_size = static_cast<float>(host.lr / (1 - std::pow(host.beta1, c.step))),
                                  .beta1 = static_cast<float>(host.beta1),
                                  .beta2 = static_cast<float>(host.beta2),
                                  .one_minus_beta1 = static_cast<float>(1 - host.beta1),
                                  .one_minus_beta2 = static_cast<float>(1 - host.beta2),
                                  .inv_sqrt_bias2 = static_cast<float>(1 / std::sqrt(1 - std::pow(host.beta2, c.step))),
                                  .eps = static_cast<float>(host.eps),
                                  .grad_scale = static_cast<float>(host.grad_scale)};
    check(kernels::launch(args, nullptr));
    check(cudaDeviceSynchronize());

    const auto hp = dp.to_host(), hm = dm.to_host(), hv = dv.to_host();
    const auto hc = dc.to_host();
    double worst = 0;
    for (size_t i = 0; i < p.size(); ++i) {
      worst = std::max(worst, static_cast<double>(std::abs(hp[i] - p[i])));
      REQUIRE(hm[i] == Approx(m[i]).epsilon(4e-7).margin(1e-9));
      REQUIRE(hv[i] == Approx(v[i]).epsilon(4e-7).margin(1e-12));
      if (c.compute) {
        const float rounded = hp[i];
        uint32_t bits;
        std::memcpy(&bits, &rounded, 4);
        REQUIRE(hc[i] == static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16));
      } else {
        REQUIRE(hc[i] == 0x7fc0);
      }
    }
    // A few roundings of values up to 0.1 and of an update up to lr.
    CHECK(worst < 2e-8);
  }
}
