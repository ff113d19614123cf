// AdamW against its CPU twin, which is tested against FP64 and by statistics in tests/unit/ops: every bit is equal.
#include "kernels/adamw.h"

#include <algorithm>
#include <bit>
#include <type_traits>

#include "checks/cases/adamw.h"
#include "checks/harness.h"
#include "kernels/weights.h"
#include "ops/adamw_cpu.h"

namespace esm::checks {
namespace {

using kernels::AdamwArgs;
using kernels::AdamwDynamic;
using kernels::MasterFormat;
using kernels::MomentFormat;
using kernels::StateFormats;

constexpr double kBeta1 = 0.9, kBeta2 = 0.98, kEps = 1e-8, kLr = 1e-3, kGradScale = 1e-3;
constexpr AdamwArgs::Group kGroups[3] = {{1, 0.01}, {0.5, 0}, {2, 0.1}};
constexpr uint64_t kSeed = 1234;
constexpr int64_t kRandomOffset = 4096;

size_t moment_bytes(MomentFormat format) {
  return format == MomentFormat::kF32 ? 4 : format == MomentFormat::kBF16 ? 2 : 1;
}

/// Weights and moments of n elements in host memory.
struct State {
  StateFormats formats;
  size_t n;
  std::vector<float> master, m_scale, v_scale;
  std::vector<uint16_t> compute, remainder;
  std::vector<uint8_t> m, v;

  State(StateFormats f, size_t count) : formats(f), n(count), compute(n), m(n * moment_bytes(f.moments)), v(m.size()) {
    if (f.master == MasterFormat::kF32) master.resize(n);
    if (f.master == MasterFormat::kBF16Remainder) remainder.resize(n);
    if (f.moments != MomentFormat::kE4M3) return;
    m_scale.resize((n + 127) / 128);
    v_scale.resize(m_scale.size());
  }

  /// Random weights and moments; those from `padding` on are 0.
  void draw(Random& random, size_t padding) {
    std::vector<float> p = random.normals(static_cast<int64_t>(n), 0.02f);
    std::vector<float> first = random.normals(static_cast<int64_t>(n), 0.1f),
                       second = random.normals(static_cast<int64_t>(n), 0.1f);
    for (float& x : second) x *= x;
    for (std::vector<float>* x : {&p, &first, &second})
      std::fill(x->begin() + static_cast<int64_t>(padding), x->end(), 0.0f);
    if (!master.empty()) master = p;
    ops::cpu::split_weights(static_cast<int64_t>(n), p.data(), compute.data(),
                            remainder.empty() ? nullptr : remainder.data());
    for (float& s : m_scale) s = random.uniform(1e-5f, 1e-4f);
    for (float& s : v_scale) s = random.uniform(1e-5f, 1e-4f);
    set_moment(m, first, random, 255, padding);
    set_moment(v, second, random, 127, padding);
  }

  ops::cpu::Adamw on_host() {
    return {.formats = formats,
            .n = static_cast<int64_t>(n),
            .master = master.data(),
            .compute = compute.data(),
            .remainder = remainder.data(),
            .exp_avg = m.data(),
            .exp_avg_sq = v.data(),
            .exp_avg_scale = m_scale.data(),
            .exp_avg_sq_scale = v_scale.data()};
  }

 private:
  void set_moment(std::vector<uint8_t>& to, const std::vector<float>& x, Random& random, int64_t codes,
                  size_t padding) const {
    for (size_t i = 0; i < n; ++i) {
      const uint16_t bits = bf16_from_float(x[i]);
      if (formats.moments == MomentFormat::kF32)
        std::memcpy(&to[4 * i], &x[i], 4);
      else if (formats.moments == MomentFormat::kBF16)
        std::memcpy(&to[2 * i], &bits, 2);
      else if (const auto code = static_cast<uint8_t>(random.below(codes)); i < padding && code != 0x7f)  // no NaN
        to[i] = code;
    }
  }
};

/// The same on the device.
struct Device {
  StateFormats formats;
  DeviceBuffer<float> master, m_scale, v_scale;
  DeviceBuffer<uint16_t> compute, remainder;
  DeviceBuffer<uint8_t> m, v;

  explicit Device(const State& s)
      : formats(s.formats),
        master(s.master),
        m_scale(s.m_scale),
        v_scale(s.v_scale),
        compute(s.compute),
        remainder(s.remainder),
        m(s.m),
        v(s.v) {}

  AdamwArgs args() const {
    return AdamwArgs{.formats = formats,
                     .master = master.get(),
                     .compute = compute.get(),
                     .remainder = remainder.get(),
                     .exp_avg = m.get(),
                     .exp_avg_sq = v.get(),
                     .exp_avg_scale = m_scale.get(),
                     .exp_avg_sq_scale = v_scale.get()};
  }
};

template <class T>
void append(std::vector<uint8_t>& all, const std::vector<T>& values) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(values.data());
  all.insert(all.end(), bytes, bytes + values.size() * sizeof(T));
}
std::vector<uint8_t> all_bytes(const State& s) {
  std::vector<uint8_t> all;
  for (const auto* x : {&s.master, &s.m_scale, &s.v_scale}) append(all, *x);
  for (const auto* x : {&s.compute, &s.remainder}) append(all, *x);
  for (const auto* x : {&s.m, &s.v}) append(all, *x);
  return all;
}
std::vector<uint8_t> all_bytes(const Device& d) {
  std::vector<uint8_t> all;
  for (const auto* x : {&d.master, &d.m_scale, &d.v_scale}) append(all, x->download());
  for (const auto* x : {&d.compute, &d.remainder}) append(all, x->download());
  for (const auto* x : {&d.m, &d.v}) append(all, x->download());
  return all;
}

// One step's scalars by the kernel that prepares them.
void prepare(DeviceBuffer<AdamwDynamic>& dynamic, bool skip) {
  DeviceBuffer<double> lr(std::vector<double>{kLr});
  DeviceBuffer<kernels::ClipResult> clip(std::vector<kernels::ClipResult>{
      {.grad_norm = 1, .grad_scale = static_cast<float>(kGradScale), .skip = skip ? 1 : 0}});
  CHECK_CUDA(launch(
      kernels::AdamwPrepareArgs{
          .lr = lr.get(), .clip = clip.get(), .beta1 = kBeta1, .beta2 = kBeta2, .dynamic = dynamic.get()},
      nullptr));
  CHECK_CUDA(cudaDeviceSynchronize());
}
AdamwDynamic prepared_on_host(int64_t updates) {
  AdamwDynamic d{.updates = updates, .lr = kLr, .grad_scale = static_cast<float>(kGradScale), .skip = 0};
  kernels::set_bias_correction(d, kBeta1, kBeta2);
  return d;
}
bool same(const AdamwDynamic& a, const AdamwDynamic& b) {
  return a.updates == b.updates && a.lr == b.lr && a.step_lr == b.step_lr && a.inv_sqrt_bias2 == b.inv_sqrt_bias2 &&
         a.grad_scale == b.grad_scale && a.skip == b.skip;
}

/// Elements from `cut` on.
AdamwArgs right_of(AdamwArgs a, int64_t cut) {
  const auto shift = [cut](auto*& pointer, size_t bytes, int64_t elements = 1) {
    if (pointer != nullptr)
      pointer = reinterpret_cast<std::remove_reference_t<decltype(pointer)>>(
          reinterpret_cast<uintptr_t>(pointer) + static_cast<size_t>(cut / elements) * bytes);
  };
  const bool coded = a.formats.moments == MomentFormat::kE4M3;
  if (a.formats.master == MasterFormat::kF32) shift(a.master, 4);
  if (a.formats.master == MasterFormat::kBF16Remainder) shift(a.remainder, 2);
  shift(a.compute, 2);
  shift(a.exp_avg, moment_bytes(a.formats.moments));
  shift(a.exp_avg_sq, moment_bytes(a.formats.moments));
  if (coded) shift(a.exp_avg_scale, 4, 128);
  if (coded) shift(a.exp_avg_sq_scale, 4, 128);
  shift(a.grad, 4);
  shift(a.groups, 1, 64);
  a.n -= cut;
  a.random_offset += cut;
  return a;
}

void adamw(const cases::AdamwCase& c, StateFormats formats, Random& random, Report& report) {
  const auto n = static_cast<size_t>(c.n);
  State host(formats, n);
  const size_t padding = n - 32;
  host.draw(random, padding);
  std::vector<float> grad = random.normals(c.n, 30.0f);
  std::fill(grad.begin() + static_cast<int64_t>(padding), grad.end(), 0.0f);
  std::vector<uint8_t> groups;
  for (size_t i = 0; i < n / 64; ++i) groups.push_back(c.groups ? static_cast<uint8_t>(random.below(3)) : uint8_t{0});
  const std::string name =
      text("adamw %s, moments %s, n %zu%s step %lld", enum_names(formats.master)[static_cast<size_t>(formats.master)],
           enum_names(formats.moments)[static_cast<size_t>(formats.moments)], n, c.groups ? " groups" : "",
           static_cast<long long>(c.step));

  const DeviceBuffer<float> device_grad(grad);
  const DeviceBuffer<uint8_t> device_groups(groups);
  AdamwDynamic first{};
  first.updates = c.step - 1;
  DeviceBuffer<AdamwDynamic> dynamic(std::vector<AdamwDynamic>{first});
  const bool compute = formats.master != MasterFormat::kF32 || c.compute;
  const auto args_for = [&](const Device& device) {
    AdamwArgs args = device.args();
    if (!compute) args.compute = nullptr;
    args.grad = device_grad.get();
    args.n = c.n;
    args.groups = c.groups ? device_groups.get() : nullptr;
    std::copy(std::begin(kGroups), std::end(kGroups), args.group);
    args.beta1 = static_cast<float>(kBeta1);
    args.beta2 = static_cast<float>(kBeta2);
    args.one_minus_beta1 = static_cast<float>(1 - kBeta1);
    args.one_minus_beta2 = static_cast<float>(1 - kBeta2);
    args.eps = static_cast<float>(kEps);
    args.dynamic = dynamic.get();
    args.seed = kSeed;
    args.random_offset = kRandomOffset;
    return args;
  };

  // A skipped step changes nothing.
  const Device device(host), parts(host);
  prepare(dynamic, true);
  CHECK_CUDA(launch(args_for(device), nullptr));
  report.same(name + " skipped", all_bytes(host), all_bytes(device));
  report.equal(name + " skipped, updates", dynamic.download()[0].updates != c.step - 1);

  prepare(dynamic, false);
  const AdamwDynamic now = prepared_on_host(c.step);
  report.equal(name + " numbers of the update", same(dynamic.download()[0], now) ? 0 : 1);
  CHECK_CUDA(launch(args_for(device), nullptr));
  ops::cpu::Adamw twin = host.on_host();
  if (!compute) twin.compute = nullptr;
  twin.grad = grad.data();
  twin.groups = c.groups ? groups.data() : nullptr;
  twin.seed = kSeed;
  twin.updates = now.updates;
  twin.random_offset = kRandomOffset;
  for (size_t g = 0; g < 3; ++g)
    twin.scalars[g] = {.beta1 = static_cast<float>(kBeta1),
                       .one_minus_beta1 = static_cast<float>(1 - kBeta1),
                       .beta2 = static_cast<float>(kBeta2),
                       .one_minus_beta2 = static_cast<float>(1 - kBeta2),
                       .eps = static_cast<float>(kEps),
                       .grad_scale = now.grad_scale,
                       .inv_sqrt_bias2 = now.inv_sqrt_bias2,
                       .decay = kernels::group_decay(now.lr, kGroups[g].lr_factor, kGroups[g].weight_decay),
                       .step_size = kernels::group_step_size(now.step_lr, kGroups[g].lr_factor)};
  const std::vector<uint8_t> before = all_bytes(host);
  ops::cpu::adamw(twin, 0, c.n);
  const std::vector<uint8_t> after = all_bytes(host);
  report.same(name, after, all_bytes(device));
  report.equal(name + " moves", after == before ? 1 : 0);

  // The same in two parts, as two ranks would have them.
  const int64_t cut = c.n / 2 / 128 * 128;
  AdamwArgs left = args_for(parts);
  const AdamwArgs right = right_of(left, cut);
  left.n = cut;
  CHECK_CUDA(launch(left, nullptr));
  CHECK_CUDA(launch(right, nullptr));
  report.same(name + " in two parts", after, all_bytes(parts));
}

void halves(Random& random, Report& report) {
  for (const size_t n : {size_t{1}, size_t{33}, size_t{1'000'003}}) {
    std::vector<float> weights;  // any bits, NaN and infinities too
    for (size_t i = 0; i < n; ++i) weights.push_back(std::bit_cast<float>(random.word()));
    std::vector<uint16_t> high(n), low(n);
    std::vector<float> back(n);
    const auto count = static_cast<int64_t>(n);
    ops::cpu::split_weights(count, weights.data(), high.data(), low.data());
    ops::cpu::join_weights(count, high.data(), low.data(), back.data());
    const DeviceBuffer<float> from(weights), to(n), wide(n);
    const DeviceBuffer<uint16_t> device_high(n), device_low(n), alone(n);
    CHECK_CUDA(launch(
        kernels::SplitWeightsArgs{
            .n = count, .weights = from.get(), .bf16 = device_high.get(), .remainder = device_low.get()},
        nullptr));
    CHECK_CUDA(launch(kernels::SplitWeightsArgs{.n = count, .weights = from.get(), .bf16 = alone.get()}, nullptr));
    CHECK_CUDA(launch(
        kernels::JoinWeightsArgs{
            .n = count, .bf16 = device_high.get(), .remainder = device_low.get(), .weights = to.get()},
        nullptr));
    CHECK_CUDA(launch(kernels::JoinWeightsArgs{.n = count, .bf16 = device_high.get(), .weights = wide.get()}, nullptr));
    const std::string name = text("halves of weights, n %zu", n);
    report.same(name + ", high", high, device_high.download());
    report.same(name + ", high alone", high, alone.download());
    report.same(name + ", low", low, device_low.download());
    report.same(name + ", joined", back, to.download());
    std::vector<float> widened;
    for (const uint16_t bits : high) widened.push_back(float_from_bf16(bits));
    report.same(name + ", widened", widened, wide.download());
  }
}

}  // namespace

void adamw_checks(Random& random, Report& report) {
  for (const cases::AdamwCase& c : cases::adamw_cases())
    for (const MasterFormat master : {MasterFormat::kF32, MasterFormat::kBF16Remainder, MasterFormat::kBF16})
      for (const MomentFormat moments : {MomentFormat::kF32, MomentFormat::kBF16, MomentFormat::kE4M3})
        adamw(c, {master, moments}, random, report);
  halves(random, report);
}

}  // namespace esm::checks
