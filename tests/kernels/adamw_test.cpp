#include "kernels/adamw.h"

#include <algorithm>
#include <bit>

#include "tests/kernels/cases/adamw.h"
#include "tests/kernels/harness.h"

namespace esm::kernel_tests {
namespace {

using kernels::AdamwArgs;
using kernels::AdamwDynamic;
using kernels::MasterFormat;
using kernels::MomentFormat;

constexpr double kBeta1 = 0.9, kBeta2 = 0.98, kEps = 1e-8, kLr = 1e-3, kGradScale = 1e-3;
constexpr AdamwArgs::Group kGroups[3] = {{1, 0.01}, {0.5, 0}, {2, 0.1}};
constexpr uint64_t kSeed = 1234;
constexpr int64_t kRandomOffset = 4096;

uint16_t upper_ties_up(float x) { return static_cast<uint16_t>((std::bit_cast<uint32_t>(x) + 0x8000u) >> 16); }
uint16_t lower(float x) { return static_cast<uint16_t>(std::bit_cast<uint32_t>(x)); }

float e4m3(uint8_t byte) {
  const int exponent = byte >> 3 & 15, mantissa = byte & 7;
  const double m = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return static_cast<float>(byte & 0x80 ? -m : m);
}

// State as FP32 values on the host, whatever the format on the device.
struct State {
  std::vector<float> p, m, v;
};

// The device side of a state in its formats.
struct Device {
  MasterFormat master_format;
  MomentFormat moment_format;
  size_t n;
  DeviceBuffer<float> master, m_scale, v_scale;
  DeviceBuffer<uint16_t> compute, remainder;
  DeviceBuffer<uint8_t> m, v;

  static size_t moment_bytes(MomentFormat format) {
    return format == MomentFormat::kF32 ? 4 : format == MomentFormat::kBF16 ? 2 : 1;
  }
  Device(MasterFormat master_f, MomentFormat moment_f, size_t count)
      : master_format(master_f),
        moment_format(moment_f),
        n(count),
        master(master_f == MasterFormat::kF32 ? n : 0),
        m_scale((n + 127) / 128),
        v_scale((n + 127) / 128),
        compute(n),
        remainder(master_f == MasterFormat::kBF16Remainder ? n : 0),
        m(n * moment_bytes(moment_f)),
        v(n * moment_bytes(moment_f)) {}

  // Rounds `s` to what the formats hold, and uploads it.
  void set(State& s, Random& random) {
    std::vector<uint16_t> high(n), low(n);
    for (size_t i = 0; i < n; ++i) {
      if (master_format == MasterFormat::kBF16) s.p[i] = float_from_bf16(bf16_from_float(s.p[i]));
      high[i] = master_format == MasterFormat::kF32 ? uint16_t{0x7fc0} : upper_ties_up(s.p[i]);
      low[i] = lower(s.p[i]);
    }
    if (master_format == MasterFormat::kF32) master.upload(s.p);
    compute.upload(high);
    if (master_format == MasterFormat::kBF16Remainder) remainder.upload(low);
    upload_moment(s.m, m, m_scale, false, random);
    upload_moment(s.v, v, v_scale, true, random);
  }
  State get() const {
    State s;
    const auto high = compute.download();
    if (master_format == MasterFormat::kF32)
      s.p = master.download();
    else if (master_format == MasterFormat::kBF16)
      for (const uint16_t h : high) s.p.push_back(float_from_bf16(h));
    else {
      const auto low = remainder.download();
      for (size_t i = 0; i < n; ++i)
        s.p.push_back(std::bit_cast<float>(((static_cast<uint32_t>(high[i]) - (low[i] >> 15)) << 16) | low[i]));
    }
    s.m = download_moment(m, m_scale, false);
    s.v = download_moment(v, v_scale, true);
    return s;
  }

 private:
  void upload_moment(std::vector<float>& x, DeviceBuffer<uint8_t>& to, DeviceBuffer<float>& scale, bool second,
                     Random& random) {
    std::vector<uint8_t> raw(to.size());
    std::vector<float> scales((n + 127) / 128);
    for (float& s : scales) s = random.uniform(1e-5f, 1e-4f);
    for (size_t i = 0; i < n; ++i) {
      if (moment_format == MomentFormat::kF32)
        std::memcpy(&raw[4 * i], &x[i], 4);
      else if (moment_format == MomentFormat::kBF16) {
        const uint16_t bits = bf16_from_float(x[i]);
        std::memcpy(&raw[2 * i], &bits, 2);
        x[i] = float_from_bf16(bits);
      } else {
        raw[i] = static_cast<uint8_t>(second ? random.below(127) : random.below(127) | random.below(2) << 7);
        const float root = e4m3(raw[i]) * scales[i / 128];
        x[i] = second ? root * root : root;
      }
    }
    to.upload(raw);
    if (moment_format == MomentFormat::kE4M3) scale.upload(scales);
  }
  std::vector<float> download_moment(const DeviceBuffer<uint8_t>& from, const DeviceBuffer<float>& scale,
                                     bool second) const {
    const auto raw = from.download();
    const auto scales = scale.download();
    std::vector<float> x(n);
    for (size_t i = 0; i < n; ++i) {
      if (moment_format == MomentFormat::kF32)
        std::memcpy(&x[i], &raw[4 * i], 4);
      else if (moment_format == MomentFormat::kBF16) {
        uint16_t bits;
        std::memcpy(&bits, &raw[2 * i], 2);
        x[i] = float_from_bf16(bits);
      } else {
        const float root = e4m3(raw[i]) * scales[i / 128];
        x[i] = second ? root * root : root;
      }
    }
    return x;
  }
};

const char* name_of(MasterFormat f) {
  return f == MasterFormat::kF32 ? "fp32" : f == MasterFormat::kBF16 ? "bf16" : "bf16+16";
}
const char* name_of(MomentFormat f) {
  return f == MomentFormat::kF32 ? "fp32" : f == MomentFormat::kBF16 ? "bf16" : "e4m3";
}

std::vector<uint8_t> all_bytes(const Device& d) {
  std::vector<uint8_t> all;
  const auto append = [&](const auto& buffer) {
    const auto values = buffer.download();
    const auto* bytes = reinterpret_cast<const uint8_t*>(values.data());
    all.insert(all.end(), bytes, bytes + values.size() * sizeof(values[0]));
  };
  append(d.master);
  append(d.compute);
  append(d.remainder);
  append(d.m);
  append(d.v);
  append(d.m_scale);
  append(d.v_scale);
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

void adamw(const cases::AdamwCase& c, MasterFormat master_format, MomentFormat moment_format, Random& random,
           Report& report) {
  const size_t n = static_cast<size_t>(c.n);
  State s{random.normals(c.n, 0.02f), random.normals(c.n, 0.1f), random.normals(c.n, 0.1f)};
  for (float& v : s.v) v *= v;
  std::vector<float> grad = random.normals(c.n, 30.0f);
  // The last 32 elements are padding; with E4M3 moments the codes are drawn, so there is none.
  const size_t padding = moment_format == MomentFormat::kE4M3 ? n : n - 32;
  for (size_t i = padding; i < n; ++i) s.p[i] = s.m[i] = s.v[i] = grad[i] = 0;
  std::vector<uint8_t> groups;
  for (size_t i = 0; i < n / 64; ++i) groups.push_back(c.groups ? static_cast<uint8_t>(random.below(3)) : uint8_t{0});

  Device device(master_format, moment_format, n);
  device.set(s, random);
  DeviceBuffer<float> device_grad(grad);
  DeviceBuffer<uint8_t> device_groups(groups);
  AdamwDynamic first{};
  first.updates = c.step - 1;
  DeviceBuffer<AdamwDynamic> dynamic(std::vector<AdamwDynamic>{first});
  const bool compute = master_format != MasterFormat::kF32 || c.compute;
  AdamwArgs args{.master_format = master_format,
                 .moment_format = moment_format,
                 .master = device.master.get(),
                 .compute = compute ? device.compute.get() : nullptr,
                 .remainder = device.remainder.get(),
                 .exp_avg = device.m.get(),
                 .exp_avg_sq = device.v.get(),
                 .exp_avg_scale = device.m_scale.get(),
                 .exp_avg_sq_scale = device.v_scale.get(),
                 .grad = device_grad.get(),
                 .n = c.n,
                 .groups = c.groups ? device_groups.get() : nullptr,
                 .beta1 = static_cast<float>(kBeta1),
                 .beta2 = static_cast<float>(kBeta2),
                 .one_minus_beta1 = static_cast<float>(1 - kBeta1),
                 .one_minus_beta2 = static_cast<float>(1 - kBeta2),
                 .eps = static_cast<float>(kEps),
                 .dynamic = dynamic.get(),
                 .seed = kSeed,
                 .random_offset = kRandomOffset};
  for (size_t g = 0; g < 3; ++g) args.group[g] = kGroups[g];
  const std::string name = text("adamw %s, moments %s, n %zu%s step %lld", name_of(master_format),
                                name_of(moment_format), n, c.groups ? " groups" : "", static_cast<long long>(c.step));

  // A skipped step changes nothing.
  const auto before = all_bytes(device);
  prepare(dynamic, true);
  CHECK_CUDA(launch(args, nullptr));
  report.same(name + " skipped", before, all_bytes(device));
  report.equal(name + " skipped, updates", dynamic.download()[0].updates != c.step - 1);

  prepare(dynamic, false);
  report.equal(name + " updates", dynamic.download()[0].updates != c.step);
  CHECK_CUDA(launch(args, nullptr));
  const State got = device.get();
  const auto after = all_bytes(device);

  std::vector<double> p(n), m(n), v(n), step_error(n);  // of the subtracted step, from the FP32 roundings of m and v
  for (size_t i = 0; i < n; ++i) {
    const AdamwArgs::Group group = kGroups[groups[i / 64]];
    const double g = grad[i] * kGradScale, lr = kLr * group.lr_factor, t = static_cast<double>(c.step);
    m[i] = kBeta1 * s.m[i] + (1 - kBeta1) * g;
    v[i] = kBeta2 * s.v[i] + (1 - kBeta2) * g * g;
    const double rate = lr / (1 - std::pow(kBeta1, t)) / (std::sqrt(v[i]) / std::sqrt(1 - std::pow(kBeta2, t)) + kEps);
    p[i] = s.p[i] * (1 - lr * group.weight_decay) - rate * m[i];
    step_error[i] = 1e-6 * rate * (std::abs(s.m[i]) + std::abs((1 - kBeta1) * g));
  }
  // What rounding of the stored form allows. Stochastic rounding: a whole unit.
  const auto bf16_unit = [](double x) { return std::abs(x) * 0x1p-7 + 1e-38; };
  std::vector<double> m_top((n + 127) / 128), v_top((n + 127) / 128);
  for (size_t i = 0; i < n; ++i) {
    m_top[i / 128] = std::max(m_top[i / 128], std::abs(m[i]));
    v_top[i / 128] = std::max(v_top[i / 128], std::sqrt(v[i]));
  }
  const auto e4m3_unit = [](double x, double top) { return std::max(std::abs(x) / 8, top / 448 * 0x1p-9) * 1.001; };
  report.close(name + " m", got.m, m, [&](size_t i) {
    const double fp32 = 5e-7 * (std::abs(s.m[i]) + std::abs(grad[i] * 1e-4));
    return fp32 + (moment_format == MomentFormat::kF32    ? 0
                   : moment_format == MomentFormat::kBF16 ? bf16_unit(m[i])
                                                          : e4m3_unit(m[i], m_top[i / 128]));
  });
  report.close(name + " v", got.v, v, [&](size_t i) {
    const double fp32 = 1e-6 * v[i];
    if (moment_format == MomentFormat::kF32) return fp32;
    if (moment_format == MomentFormat::kBF16) return fp32 + bf16_unit(v[i]);
    const double root = std::sqrt(v[i]), unit = e4m3_unit(root, v_top[i / 128]);
    return fp32 + 2 * root * unit + unit * unit;
  });
  report.close(name + " p", got.p, p, [&](size_t i) {
    const double fp32 = 1.3e-7 * (std::abs(p[i]) + std::abs(s.p[i])) + step_error[i] + 1e-12;
    return fp32 + (master_format == MasterFormat::kBF16 ? bf16_unit(p[i]) : 0);
  });
  size_t wrong = 0;
  const auto bits = device.compute.download();
  if (master_format == MasterFormat::kF32)
    for (size_t i = 0; i < n; ++i) wrong += bits[i] != (compute ? bf16_from_float(got.p[i]) : 0x7fc0);
  if (master_format == MasterFormat::kBF16Remainder)
    for (size_t i = 0; i < n; ++i) wrong += bits[i] != upper_ties_up(got.p[i]);
  for (size_t i = padding; i < n; ++i) wrong += got.p[i] != 0 || got.m[i] != 0 || got.v[i] != 0;
  if (moment_format == MomentFormat::kE4M3)  // a second moment must not vanish
    for (size_t i = 0; i < n; ++i) wrong += v[i] > 0 && got.v[i] == 0;
  report.equal(name + " compute copy, padding", wrong);

  // Stochastic rounding has no bias: the mean of (stored - exact) / unit over many elements.
  if (n > 100000) {
    const auto mean_error = [&](const char* what, auto unit, const std::vector<float>& stored,
                                const std::vector<double>& exact) {
      double sum = 0, count = 0;
      for (size_t i = 0; i < n; ++i) {
        const double u = unit(i);
        if (u <= 0) continue;
        sum += (stored[i] - exact[i]) / u;
        ++count;
      }
      report.close(name + what, {static_cast<float>(sum / count)}, {0.0}, [&](size_t) { return 3 / std::sqrt(count); });
    };
    const auto unit_of = [](double x) { return x == 0 ? 0 : std::ldexp(1.0, std::ilogb(x) - 7); };
    if (moment_format == MomentFormat::kBF16) {
      mean_error(
          " m unbiased", [&](size_t i) { return unit_of(m[i]); }, got.m, m);
      mean_error(
          " v unbiased", [&](size_t i) { return unit_of(v[i]); }, got.v, v);
    }
    if (master_format == MasterFormat::kBF16)
      mean_error(
          " p unbiased", [&](size_t i) { return unit_of(p[i]); }, got.p, p);
    if (moment_format == MomentFormat::kE4M3)
      mean_error(
          " m unbiased",
          [&](size_t i) {
            return std::max(std::ldexp(1.0, std::ilogb(m[i] / m_top[i / 128] * 448) - 3), 0x1p-9) * m_top[i / 128] /
                   448;
          },
          got.m, m);
  }

  // The same again, in two halves as two ranks would have them.
  device.set(s, random);
  if (moment_format == MomentFormat::kE4M3) return;  // set() draws new codes
  const int64_t cut = c.n / 2 / 128 * 128;
  AdamwArgs left = args, right = args;
  left.n = cut;
  right.n = c.n - cut;
  const auto shift = [&](auto*& pointer, size_t bytes) {
    if (pointer != nullptr)
      pointer = reinterpret_cast<std::remove_reference_t<decltype(pointer)>>(reinterpret_cast<uintptr_t>(pointer) +
                                                                             static_cast<size_t>(cut) * bytes);
  };
  if (master_format == MasterFormat::kF32) shift(right.master, 4);
  shift(right.compute, 2);
  if (master_format == MasterFormat::kBF16Remainder) shift(right.remainder, 2);
  shift(right.exp_avg, Device::moment_bytes(moment_format));
  shift(right.exp_avg_sq, Device::moment_bytes(moment_format));
  shift(right.grad, 4);
  if (right.groups != nullptr) right.groups += cut / 64;
  right.random_offset += cut;
  CHECK_CUDA(launch(left, nullptr));
  CHECK_CUDA(launch(right, nullptr));
  report.same(name + " in two halves", after, all_bytes(device));
}

// FP32 in two halves takes the same steps as FP32 in one piece.
void remainder_is_exact(Random& random, Report& report) {
  const int64_t n = 64 * 1000;
  State s{random.normals(n, 0.02f), std::vector<float>(n), std::vector<float>(n)};
  State copy = s;
  Device whole(MasterFormat::kF32, MomentFormat::kF32, static_cast<size_t>(n));
  Device halves(MasterFormat::kBF16Remainder, MomentFormat::kF32, static_cast<size_t>(n));
  whole.set(s, random);
  halves.set(copy, random);
  DeviceBuffer<AdamwDynamic> dynamic(std::vector<AdamwDynamic>{AdamwDynamic{}});
  for (int step = 0; step < 20; ++step) {
    DeviceBuffer<float> grad(random.normals(n, 30.0f));
    prepare(dynamic, false);
    for (Device* d : {&whole, &halves}) {
      AdamwArgs args{.master_format = d->master_format,
                     .master = d->master.get(),
                     .compute = d->compute.get(),
                     .remainder = d->remainder.get(),
                     .exp_avg = d->m.get(),
                     .exp_avg_sq = d->v.get(),
                     .grad = grad.get(),
                     .n = n,
                     .dynamic = dynamic.get()};
      args.group[0].weight_decay = 0.01;
      CHECK_CUDA(launch(args, nullptr));
    }
    CHECK_CUDA(cudaDeviceSynchronize());
  }
  report.same("adamw bf16+16 equals fp32 after 20 steps", whole.get().p, halves.get().p);
}

}  // namespace

void adamw_tests(Random& random, Report& report) {
  for (const cases::AdamwCase& c : cases::adamw_cases())
    for (const MasterFormat master : {MasterFormat::kF32, MasterFormat::kBF16Remainder, MasterFormat::kBF16})
      for (const MomentFormat moment : {MomentFormat::kF32, MomentFormat::kBF16, MomentFormat::kE4M3})
        adamw(c, master, moment, random, report);
  remainder_is_exact(random, report);
}

}  // namespace esm::kernel_tests
