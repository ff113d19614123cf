#include "device/gemm_tune_cuda.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <set>

#include "base/half.h"
#include "base/narrow.h"
#include "base/philox.h"
#include "device/cuda_check.h"
#include "device/fp8_values.h"
#include "device/properties.h"
#include "device/stream.h"

namespace esm::device {
namespace {

constexpr int kMinRounds = 5, kMaxRounds = 25;
constexpr double kBudgetMs = 120;       // of timed rounds
constexpr double kOutOfTheRace = 1.15;  // times the best of the first round
constexpr double kRowMs = 80;           // of a long row; power limits act within some tens
constexpr float kFp8Spread = 64;        // standard deviation of FP8 operands: seven of them fit E4M3

/// Standard normal values over the whole buffer. Zeros would be multiplied up to 13 % faster than real data. A host
/// block of odd length is copied and then doubled on the device: no two rows are equal.
void fill_random(const DeviceBuffer& buffer, DType dtype, uint32_t which, StreamHandle stream) {
  const int64_t block = std::min<int64_t>((1 << 18) + 1, buffer.bytes() / size_of(dtype));
  std::vector<std::byte> host(static_cast<size_t>(block * size_of(dtype)));
  for (int64_t i = 0; i < block; ++i) {
    const PhiloxResult random = philox(0, RandomStream::kSynthetic, static_cast<uint64_t>(i), which);
    const auto value = static_cast<float>(normal_pair(random.v[0], random.v[1])[0]);
    if (dtype == DType::kF4E2M1x2) {
      host[static_cast<size_t>(i)] = static_cast<std::byte>(random.v[0]);  // every pair of codes is a pair of numbers
    } else if (is_fp8(dtype)) {
      host[static_cast<size_t>(i)] = std::byte{fp8_from_float(dtype, kFp8Spread * value)};
    } else if (dtype == DType::kBF16) {
      const uint16_t bits = bf16_from_float(value);
      std::memcpy(host.data() + i * 2, &bits, 2);
    } else {
      std::memcpy(host.data() + i * 4, &value, 4);
    }
  }
  ESM_CUDA(cudaMemcpyAsync(buffer.get(), host.data(), host.size(), cudaMemcpyHostToDevice, stream));
  ESM_CUDA(cudaStreamSynchronize(stream));
  for (int64_t done = static_cast<int64_t>(host.size()); done < buffer.bytes(); done *= 2)
    ESM_CUDA(cudaMemcpyAsync(buffer.as<std::byte>() + done, buffer.get(),
                             static_cast<size_t>(std::min(done, buffer.bytes() - done)), cudaMemcpyDeviceToDevice,
                             stream));
}

DeviceBuffer uploaded(const void* host, int64_t bytes, StreamHandle stream) {
  DeviceBuffer buffer("GEMM timing, scales", bytes);
  if (bytes == 0) return buffer;
  ESM_CUDA(cudaMemcpyAsync(buffer.get(), host, static_cast<size_t>(bytes), cudaMemcpyHostToDevice, stream));
  ESM_CUDA(cudaStreamSynchronize(stream));
  return buffer;
}

/// No memory for no scales.
DeviceBuffer scales_of_one(GemmScale scale, int64_t rows, int64_t k, StreamHandle stream) {
  const int64_t count = scale_count(scale, rows, k);
  if (scale == GemmScale::kMx32 || scale == GemmScale::kNv16) {
    const uint8_t one = scale == GemmScale::kMx32 ? 127 : 0x38;
    return uploaded(std::vector<uint8_t>(static_cast<size_t>(count), one).data(), count, stream);
  }
  return uploaded(std::vector<float>(static_cast<size_t>(count), 1.0f).data(),
                  count * static_cast<int64_t>(sizeof(float)), stream);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

template <class T>
T config(const cublasLtMatmulAlgo_t& algo, cublasLtMatmulAlgoConfigAttributes_t attribute) {
  T value{};
  size_t written = 0;
  ESM_CUBLASLT(cublasLtMatmulAlgoConfigGetAttribute(&algo, attribute, &value, sizeof value, &written));
  return value;
}

/// False when the algorithm has no such setting.
template <class T>
bool set_config(cublasLtMatmulAlgo_t& algo, cublasLtMatmulAlgoConfigAttributes_t attribute, T value) {
  return cublasLtMatmulAlgoConfigSetAttribute(&algo, attribute, &value, sizeof value) == CUBLAS_STATUS_SUCCESS;
}

/// What is varied, and what a proposal has to share with another one to be varied alike.
struct Settings {
  uint32_t tile, custom;
  uint16_t cluster;
};
struct Family {
  uint32_t id, stages, split;
  bool operator==(const Family&) const = default;
};

Settings settings_of(const cublasLtMatmulAlgo_t& algo) {
  return {.tile = config<uint32_t>(algo, CUBLASLT_ALGO_CONFIG_TILE_ID),
          .custom = config<uint32_t>(algo, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION),
          .cluster = config<uint16_t>(algo, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID)};
}
Family family_of(const cublasLtMatmulAlgo_t& algo) {
  return {.id = config<uint32_t>(algo, CUBLASLT_ALGO_CONFIG_ID),
          .stages = config<uint32_t>(algo, CUBLASLT_ALGO_CONFIG_STAGES_ID),
          .split = config<uint32_t>(algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM)};
}

/// Those that are worth a long row, fastest first.
std::vector<size_t> finalists(const std::vector<CandidateTime>& times) {
  constexpr size_t kMost = 8;
  constexpr double kLeastUs = 300, kNear = 1.08;
  std::vector<size_t> order(times.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return times[a].alone_us < times[b].alone_us; });
  const double best = times[order.front()].alone_us;
  if (best < kLeastUs) return {};
  std::erase_if(order, [&](size_t i) { return times[i].alone_us > kNear * best; });
  if (order.size() > kMost) order.resize(kMost);
  return order;
}

bool same(const cublasLtMatmulAlgo_t& a, const cublasLtMatmulAlgo_t& b) { return std::memcmp(&a, &b, sizeof a) == 0; }

}  // namespace

std::vector<cublasLtMatmulHeuristicResult_t> with_neighbours(cublasLtHandle_t handle, const GemmPlan& plan,
                                                             const DeviceBuffer& workspace,
                                                             std::vector<cublasLtMatmulHeuristicResult_t> found) {
  constexpr size_t kMost = 80;
  GemmDesc bare = plan.desc();
  bare.epilogue = GemmEpilogue::kNone;
  bare.accumulate = false;
  auto seeds = found;
  for (const auto& other : GemmPlan(bare).proposals(handle, workspace, narrow<int>(std::ssize(found)) + 8))
    seeds.push_back(other);
  std::set<uint32_t> tiles, customs;
  std::set<uint16_t> clusters;
  std::vector<std::pair<Family, cublasLtMatmulAlgo_t>> families;
  for (const auto& seed : seeds) {
    const Settings s = settings_of(seed.algo);
    tiles.insert(s.tile);
    customs.insert(s.custom);
    clusters.insert(s.cluster);
    const Family family = family_of(seed.algo);
    if (std::none_of(families.begin(), families.end(), [&](const auto& known) { return known.first == family; }))
      families.emplace_back(family, seed.algo);
  }
  for (const auto& [family, seed] : families)
    for (const uint32_t tile : tiles)
      for (const uint16_t cluster : clusters)
        for (const uint32_t custom : customs) {
          cublasLtMatmulHeuristicResult_t next{};
          next.algo = seed;
          int64_t needed = 0;
          if (found.size() >= kMost || !set_config(next.algo, CUBLASLT_ALGO_CONFIG_TILE_ID, tile) ||
              !set_config(next.algo, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, cluster) ||
              !set_config(next.algo, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, custom) ||
              std::any_of(found.begin(), found.end(), [&](const auto& k) { return same(k.algo, next.algo); }) ||
              !plan.accepts(handle, next.algo, workspace, &needed))
            continue;
          next.workspaceSize = static_cast<size_t>(needed);
          found.push_back(next);
        }
  return found;
}

std::vector<CandidateTime> time_candidates(cublasLtHandle_t handle, const GemmPlan& plan, const DeviceBuffer& workspace,
                                           const std::vector<cublasLtMatmulHeuristicResult_t>& candidates,
                                           StreamHandle stream) {
  const GemmDesc& desc = plan.desc();
  int device = 0;
  ESM_CUDA(cudaGetDevice(&device));
  const int64_t out = size_of(desc.d);
  const DeviceBuffer a("GEMM timing, operand A",
                       operand_bytes(desc.a, desc.lda * (desc.transpose_a ? desc.m : desc.k)));
  const DeviceBuffer b("GEMM timing, operand B",
                       operand_bytes(desc.b, desc.ldb * (desc.transpose_b ? desc.k : desc.n)));
  const DeviceBuffer d("GEMM timing, result", out * desc.ldd * desc.n);
  // A gradient accumulates in place; a residual is another matrix.
  const bool separate_c = desc.accumulate && desc.d == DType::kBF16;
  const DeviceBuffer c("GEMM timing, residual", separate_c ? d.bytes() : 0);
  const DeviceBuffer bias("GEMM timing, bias", out * std::max(desc.m, desc.n));
  const DeviceBuffer flush("GEMM timing, cache flush", std::max<int64_t>(2 * properties(device).l2_bytes, 1 << 20));
  const DeviceBuffer scale_a = scales_of_one(desc.scale_a, desc.m, desc.k, stream);
  const DeviceBuffer scale_b = scales_of_one(desc.scale_b, desc.n, desc.k, stream);
  const float alpha_beta[2] = {1.0f, desc.accumulate ? 1.0f : 0.0f};
  const DeviceBuffer factors = uploaded(alpha_beta, desc.device_factors ? int64_t{sizeof alpha_beta} : 0, stream);
  fill_random(a, desc.a, 1, stream);
  fill_random(b, desc.b, 2, stream);
  fill_random(d, desc.d, 3, stream);
  fill_random(bias, desc.bias_type(), 4, stream);
  if (separate_c) fill_random(c, desc.d, 5, stream);
  const bool has_bias = desc.epilogue == GemmEpilogue::kBias;
  const GemmArgs args{.a = a.get(),
                      .b = b.get(),
                      .c = c.get(),
                      .d = d.get(),
                      .bias = has_bias ? bias.get() : nullptr,
                      .scale_a = scale_a.get(),
                      .scale_b = scale_b.get(),
                      .factors = factors.as<float>()};

  std::vector<Event> begin, end;
  for (size_t i = 0; i < candidates.size(); ++i) {
    begin.emplace_back(Event::Timing::kOn);
    end.emplace_back(Event::Timing::kOn);
  }
  std::vector<std::vector<double>> us(candidates.size());
  std::vector<size_t> racing(candidates.size());
  std::iota(racing.begin(), racing.end(), size_t{0});
  const auto round = [&] {
    for (const size_t i : racing) {
      ESM_CUDA(cudaMemsetAsync(flush.get(), 0, static_cast<size_t>(flush.bytes()), stream));
      begin[i].record(stream);
      plan.launch(handle, candidates[i].algo, workspace, args, stream);
      end[i].record(stream);
    }
    end[racing.back()].synchronize();
    double total_ms = 0;
    for (const size_t i : racing) {
      const double ms = Event::milliseconds_between(begin[i], end[i]);
      us[i].push_back(1e3 * ms);
      total_ms += ms;
    }
    return total_ms;
  };
  // Loads the kernels, too.
  std::erase_if(racing,
                [&](size_t i) { return !plan.try_launch(handle, candidates[i].algo, workspace, args, stream); });
  if (racing.empty()) fail<DeviceError>("cuBLASLt refuses to run any of its own proposals for {}", text(desc));
  std::vector<CandidateTime> times(candidates.size());
  for (CandidateTime& time : times) time.alone_us = std::numeric_limits<double>::infinity();
  round();
  double best = us[racing.front()][0];
  for (const size_t i : racing) best = std::min(best, us[i][0]);
  for (const size_t i : racing) times[i].alone_us = us[i][0];
  std::erase_if(racing, [&](size_t i) { return i != 0 && us[i][0] > kOutOfTheRace * best; });
  for (const size_t i : racing) us[i].clear();
  const double round_ms = round();
  const int rounds = static_cast<int>(std::clamp(kBudgetMs / round_ms, double{kMinRounds}, double{kMaxRounds}));
  for (int i = 0; i < rounds; ++i) round();
  for (const size_t i : racing) times[i].alone_us = median(us[i]);
  for (const size_t i : finalists(times)) {
    const int runs = static_cast<int>(kRowMs * 1e3 / times[i].alone_us);
    const auto row = [&] {
      for (int k = 0; k < runs; ++k) plan.launch(handle, candidates[i].algo, workspace, args, stream);
    };
    row();  // until the clock has come down
    begin[i].record(stream);
    row();
    end[i].record(stream);
    end[i].synchronize();
    times[i].sustained_us = 1e3 * Event::milliseconds_between(begin[i], end[i]) / runs;
  }
  return times;
}

int choose(const std::vector<CandidateTime>& times) {
  const bool both = std::any_of(times.begin(), times.end(), [](const CandidateTime& t) { return t.sustained_us > 0; });
  const auto score = [&](const CandidateTime& t) {
    if (both && t.sustained_us == 0) return std::numeric_limits<double>::infinity();
    return t.alone_us + (both ? t.sustained_us : 0.0);
  };
  double best = std::numeric_limits<double>::infinity();
  for (const CandidateTime& t : times) best = std::min(best, score(t));
  const auto good =
      std::find_if(times.begin(), times.end(), [&](const CandidateTime& t) { return score(t) <= 1.005 * best; });
  return static_cast<int>(good - times.begin());
}

}  // namespace esm::device
