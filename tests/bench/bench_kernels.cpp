// Time and bandwidth of every elementwise and reduction kernel at the shapes of the 650M model (and some of its
// siblings), against a device copy measured in the same run. Kernels run from CUDA graphs: without launch gaps, and
// proof that they can be captured.   bench_kernels [part of a name]
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "base/philox.h"
#include "kernels/adamw.h"
#include "kernels/cast.h"
#include "kernels/clip.h"
#include "kernels/cross_entropy.h"
#include "kernels/embedding.h"
#include "kernels/gelu.h"
#include "kernels/layer_norm.h"
#include "kernels/reduce.h"
#include "kernels/rotary.h"
#include "kernels/rows.h"
#include "kernels/weights.h"

namespace {

using namespace esm;

#define CHECK_CUDA(expression)                                                                              \
  do {                                                                                                      \
    const cudaError_t error_ = (expression);                                                                \
    if (error_ != cudaSuccess) {                                                                            \
      std::fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #expression, cudaGetErrorString(error_)); \
      std::exit(2);                                                                                         \
    }                                                                                                       \
  } while (false)

class Bench {
 public:
  explicit Bench(std::string filter) : filter_(std::move(filter)) {
    CHECK_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    CHECK_CUDA(cudaEventCreate(&begin_));
    CHECK_CUDA(cudaEventCreate(&end_));
  }

  /// Median microseconds of one call.
  double time(const std::function<cudaError_t(cudaStream_t)>& body, int calls) {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK_CUDA(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < calls; ++i) CHECK_CUDA(body(stream_));
    CHECK_CUDA(cudaStreamEndCapture(stream_, &graph));
    CHECK_CUDA(cudaGraphInstantiate(&exec, graph, 0));
    std::vector<float> times;
    for (int round = -3; round < 15; ++round) {
      CHECK_CUDA(cudaEventRecord(begin_, stream_));
      CHECK_CUDA(cudaGraphLaunch(exec, stream_));
      CHECK_CUDA(cudaEventRecord(end_, stream_));
      CHECK_CUDA(cudaEventSynchronize(end_));
      float ms;
      CHECK_CUDA(cudaEventElapsedTime(&ms, begin_, end_));
      if (round >= 0) times.push_back(ms * 1000 / static_cast<float>(calls));
    }
    CHECK_CUDA(cudaGraphExecDestroy(exec));
    CHECK_CUDA(cudaGraphDestroy(graph));
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
  }

  void add(const std::string& name, double bytes, const std::function<cudaError_t(cudaStream_t)>& body) {
    if (name.find(filter_) == std::string::npos) return;
    const double us = time(body, bytes > 5e8 ? 2 : 8);
    rows_.push_back({name, us, bytes});
  }

  void print(double copy) const {
    std::printf("%-64s %10s %10s %9s %7s\n", "kernel", "us", "MB moved", "GB/s", "copy");
    for (const Row& r : rows_)
      std::printf("%-64s %10.1f %10.1f %9.0f %6.0f%%\n", r.name.c_str(), r.us, r.bytes / 1e6, r.bytes / r.us / 1e3,
                  100 * r.bytes / r.us / 1e3 / copy);
  }

 private:
  struct Row {
    std::string name;
    double us, bytes;
  };
  std::string filter_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
  std::vector<Row> rows_;
};

// Device memory that lives as long as the program.
template <class T = void>
T* allocate(size_t bytes) {
  void* p = nullptr;
  CHECK_CUDA(cudaMalloc(&p, bytes));
  CHECK_CUDA(cudaMemset(p, 0, bytes));
  return static_cast<T*>(p);
}
template <class T>
T* upload(const std::vector<T>& host) {
  T* p = allocate<T>(host.size() * sizeof(T));
  CHECK_CUDA(cudaMemcpy(p, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice));
  return p;
}

// Normal values, some millions of them drawn and then repeated.
class Values {
 public:
  Values() : host_(size_t{1} << 23) {
    for (size_t i = 0; i < host_.size(); i += 4) {
      const PhiloxResult r = philox(3, RandomStream::kSynthetic, i);
      for (size_t k = 0; k < 4; k += 2) {
        const float radius = std::sqrt(-2.0f * std::log((static_cast<float>(r.v[k] >> 8) + 0.5f) * 0x1p-24f));
        host_[i + k] = radius * std::cos(6.2831853f * uniform01(r.v[k + 1]));
        host_[i + k + 1] = radius * std::sin(6.2831853f * uniform01(r.v[k + 1]));
      }
    }
    block_ = upload(host_);
  }
  void* fresh(DType dtype, int64_t n) const {
    void* to = allocate(static_cast<size_t>(n * size_of(dtype)));
    fill(dtype, n, to);
    return to;
  }
  float* floats(int64_t n) const { return static_cast<float*>(fresh(DType::kF32, n)); }
  void fill(DType dtype, int64_t n, void* to) const {
    const int64_t block = static_cast<int64_t>(host_.size());
    for (int64_t at = 0; at < n; at += block)
      CHECK_CUDA(launch(kernels::CastArgs{.from_dtype = DType::kF32,
                                          .to_dtype = dtype,
                                          .n = std::min(block, n - at),
                                          .from = block_,
                                          .to = static_cast<char*>(to) + at * size_of(dtype)},
                        nullptr));
    CHECK_CUDA(cudaDeviceSynchronize());
  }

 private:
  std::vector<float> host_;
  float* block_ = nullptr;
};

std::string text(const char* format, auto... arguments) {
  char buffer[160];
  std::snprintf(buffer, sizeof buffer, format, arguments...);
  return buffer;
}

const char* name_of(DType dtype) { return dtype == DType::kBF16 ? "bf16" : "fp32"; }

// Big buffers that all families share: four of `kBytes`.
constexpr size_t kBytes = size_t{65536} * 5120 * 4;
struct Shared {
  void *a, *b, *c, *d;
  void* workspace;
  float *sum1, *sum2, *sum3, *stats1, *stats2;
};

void layer_norm(Bench& bench, const Shared& s, DType dtype, int64_t rows, int64_t cols) {
  const double e = static_cast<double>(size_of(dtype)), n = static_cast<double>(rows * cols),
               r = static_cast<double>(rows);
  const std::string shape =
      text("%s %lldx%lld", name_of(dtype), static_cast<long long>(rows), static_cast<long long>(cols));
  kernels::LayerNormArgs args{.dtype = dtype,
                              .rows = rows,
                              .cols = cols,
                              .x = s.a,
                              .gamma = s.c,
                              .beta = s.d,
                              .y = s.b,
                              .mean = s.stats1,
                              .rstd = s.stats2};
  bench.add("layer_norm " + shape, n * 2 * e + 8 * r, [=](cudaStream_t stream) { return launch(args, stream); });
  // s.b is the gradient and receives y; s.d is the residual stream's gradient.
  kernels::LayerNormBackwardArgs back{.dtype = dtype,
                                      .rows = rows,
                                      .cols = cols,
                                      .x = s.a,
                                      .gamma = s.c,
                                      .beta = s.c,
                                      .mean = s.stats1,
                                      .rstd = s.stats2,
                                      .dy = s.b,
                                      .residual_gradient = s.d,
                                      .dx = s.d,
                                      .y = s.b,
                                      .dgamma = s.sum1,
                                      .dbeta = s.sum2,
                                      .workspace = s.workspace};
  bench.add("layer_norm_backward " + shape + " residual y", n * 5 * e + 8 * r,
            [=](cudaStream_t stream) { return launch(back, stream); });
  back.dx_sum = s.sum3;
  bench.add("layer_norm_backward " + shape + " residual y sum", n * 5 * e + 8 * r,
            [=](cudaStream_t stream) { return launch(back, stream); });
  back.dx_sum = nullptr;
  back.y = nullptr;
  bench.add("layer_norm_backward " + shape + " residual", n * 4 * e + 8 * r,
            [=](cudaStream_t stream) { return launch(back, stream); });
}

void gelu(Bench& bench, const Shared& s, DType dtype, kernels::GeluForm form, int64_t rows, int64_t cols) {
  const double e = static_cast<double>(size_of(dtype)), n = static_cast<double>(rows * cols);
  const std::string shape = text("%s %s %lldx%lld", form == kernels::GeluForm::kErf ? "erf" : "tanh", name_of(dtype),
                                 static_cast<long long>(rows), static_cast<long long>(cols));
  const kernels::GeluArgs args{.dtype = dtype, .form = form, .rows = rows, .cols = cols, .x = s.a, .y = s.b};
  bench.add("gelu " + shape, n * 2 * e, [=](cudaStream_t stream) { return launch(args, stream); });
  kernels::GeluBackwardArgs back{.dtype = dtype,
                                 .form = form,
                                 .rows = rows,
                                 .cols = cols,
                                 .x = s.a,
                                 .dy = s.c,
                                 .dx = s.d,
                                 .y = s.b,
                                 .dx_sum = s.sum1,
                                 .workspace = s.workspace};
  bench.add("gelu_backward " + shape + " y sum", n * 4 * e, [=](cudaStream_t stream) { return launch(back, stream); });
  back.dx_sum = nullptr;
  bench.add("gelu_backward " + shape + " y", n * 4 * e, [=](cudaStream_t stream) { return launch(back, stream); });
}

void rotary(Bench& bench, const Shared& s, DType dtype, int64_t tokens, int64_t heads, int64_t head_dim) {
  static const std::vector<int32_t> positions = [] {
    std::vector<int32_t> p;
    for (int32_t t = 0; t < 262144; ++t) p.push_back(t % 1024);
    return p;
  }();
  static const int32_t* device_positions = upload(positions);
  const kernels::RotaryArgs args{.dtype = dtype,
                                 .tokens = tokens,
                                 .heads = heads,
                                 .head_dim = head_dim,
                                 .qkv = s.a,
                                 .positions = device_positions,
                                 .cos = static_cast<const float*>(s.stats1),
                                 .sin = static_cast<const float*>(s.stats2)};
  bench.add(text("rotary %s %lld tokens %lldx%lld", name_of(dtype), static_cast<long long>(tokens),
                 static_cast<long long>(heads), static_cast<long long>(head_dim)),
            static_cast<double>(tokens * heads * head_dim * 4 * size_of(dtype)),
            [=](cudaStream_t stream) { return launch(args, stream); });
}

void embedding_and_head(Bench& bench, const Shared& s) {
  const int64_t rows = 65536, cols = 1280, segments = 512, capacity = 10496;
  std::vector<int32_t> cu{0}, scored;
  std::vector<uint8_t> tokens, is_dummy(static_cast<size_t>(segments), 0), targets;
  uint64_t counter = 0;
  const auto below = [&](uint32_t n) { return uniform_below(philox(5, RandomStream::kSynthetic, counter++).v[0], n); };
  while (cu.back() < rows)
    cu.push_back(std::min<int32_t>(cu.back() + 30 + static_cast<int32_t>(below(600)), static_cast<int32_t>(rows)));
  cu.resize(static_cast<size_t>(segments + 1), static_cast<int32_t>(rows));
  for (int64_t t = 0; t < rows; ++t) {
    const bool picked = below(100) < 15 && static_cast<int64_t>(scored.size()) < capacity - 500;
    tokens.push_back(picked && below(10) < 8 ? uint8_t{32} : static_cast<uint8_t>(4 + below(20)));
    if (picked) scored.push_back(static_cast<int32_t>(t));
  }
  const int32_t count = static_cast<int32_t>(scored.size());
  scored.resize(static_cast<size_t>(capacity));
  for (int64_t i = 0; i < capacity; ++i) targets.push_back(static_cast<uint8_t>(4 + below(20)));
  const int32_t *device_cu = upload(cu), *device_scored = upload(scored),
                *device_count = upload(std::vector<int32_t>{count});
  const uint8_t *device_tokens = upload(tokens), *device_dummy = upload(is_dummy), *device_targets = upload(targets);
  int32_t* positions = allocate<int32_t>(static_cast<size_t>(rows) * 4);
  int32_t* ids = allocate<int32_t>(static_cast<size_t>(rows) * 4);
  float* factors = allocate<float>(static_cast<size_t>(rows) * 4);
  const double r = static_cast<double>(rows), h = static_cast<double>(cols), e = 2;

  bench.add("pack_geometry 65536 tokens, 512 segments", r * 8, [=](cudaStream_t stream) {
    return launch(
        kernels::PackGeometryArgs{
            .tokens = rows, .segments = segments, .cu_seqlens = device_cu, .positions = positions, .segment_ids = ids},
        stream);
  });
  const kernels::EmbeddingFactorsArgs factor_args{.segments = segments,
                                                  .cu_seqlens = device_cu,
                                                  .is_dummy = device_dummy,
                                                  .tokens = device_tokens,
                                                  .factors = factors};
  CHECK_CUDA(launch(factor_args, nullptr));
  CHECK_CUDA(cudaDeviceSynchronize());
  bench.add("embedding_factors 65536 tokens, 512 segments", r * 6,
            [=](cudaStream_t stream) { return launch(factor_args, stream); });
  bench.add("embedding bf16 65536x1280", r * (h * e + 5), [=](cudaStream_t stream) {
    return launch(
        kernels::EmbeddingArgs{
            .rows = rows, .cols = cols, .tokens = device_tokens, .factors = factors, .weight = s.a, .y = s.b},
        stream);
  });
  bench.add("embedding_backward bf16 65536x1280", r * (h * e + 5), [=](cudaStream_t stream) {
    return launch(kernels::EmbeddingBackwardArgs{.rows = rows,
                                                 .cols = cols,
                                                 .tokens = device_tokens,
                                                 .factors = factors,
                                                 .dy = s.a,
                                                 .dweight = static_cast<float*>(s.sum1),
                                                 .workspace = s.workspace},
                  stream);
  });
  const int64_t row_bytes = cols * 2;
  bench.add(text("gather_rows bf16 %d of 65536x1280", count), static_cast<double>(row_bytes * (count + capacity)),
            [=](cudaStream_t stream) {
              return launch(kernels::GatherRowsArgs{.capacity = capacity,
                                                    .row_bytes = row_bytes,
                                                    .rows = device_scored,
                                                    .count = device_count,
                                                    .from = s.a,
                                                    .to = s.b},
                            stream);
            });
  bench.add(text("scatter_rows bf16 %d of 65536x1280", count), static_cast<double>(row_bytes * (rows + 2 * count)),
            [=](cudaStream_t stream) {
              return launch(kernels::ScatterRowsArgs{.capacity = capacity,
                                                     .total_rows = rows,
                                                     .row_bytes = row_bytes,
                                                     .rows = device_scored,
                                                     .count = device_count,
                                                     .from = s.a,
                                                     .to = s.b},
                            stream);
            });
  kernels::LossSums* sums = allocate<kernels::LossSums>(sizeof(kernels::LossSums));
  bench.add("cross_entropy fp32->bf16 10496x64", static_cast<double>(capacity) * 64 * 6, [=](cudaStream_t stream) {
    return launch(kernels::CrossEntropyArgs{.capacity = capacity,
                                            .logits = s.stats1,
                                            .targets = device_targets,
                                            .n_scored = device_count,
                                            .sums = sums,
                                            .dlogits = s.b,
                                            .dbias = s.sum1,
                                            .workspace = s.workspace},
                  stream);
  });
}

void optimizer(Bench& bench, const Shared& s, const Values& values) {
  const int64_t n = 12 * 1280 * 1280 + 13 * 1280;  // an encoder layer of the 650M model
  // Eight layers in turn, so that nothing stays in L2.
  constexpr int kLayers = 8;
  float* master = values.floats(n * kLayers);
  float* grad = values.floats(n * kLayers);
  float* m = values.floats(n * kLayers);
  float* v = allocate<float>(static_cast<size_t>(n) * kLayers * 4);
  uint16_t* compute = static_cast<uint16_t*>(values.fresh(DType::kBF16, n * kLayers));
  uint16_t* remainder = static_cast<uint16_t*>(values.fresh(DType::kBF16, n * kLayers));
  float* scales = allocate<float>(static_cast<size_t>(n) * kLayers / 32);
  std::vector<uint8_t> groups;
  for (int64_t i = 0; i < n / 64; ++i) groups.push_back(i % 300 < 3 ? 1 : 0);
  const uint8_t* device_groups = upload(groups);
  kernels::AdamwDynamic* dynamic = upload(std::vector<kernels::AdamwDynamic>{
      {.updates = 10, .lr = 1e-6, .step_lr = 1e-6, .inv_sqrt_bias2 = 1, .grad_scale = 1e-3f, .skip = 0}});

  using kernels::MasterFormat;
  using kernels::MomentFormat;
  const struct {
    const char* name;
    MasterFormat master;
    MomentFormat moment;
    bool groups;
    double bytes;
  } modes[] = {{"fp32 master, fp32 moments", MasterFormat::kF32, MomentFormat::kF32, false, 30},
               {"fp32 master, fp32 moments, groups", MasterFormat::kF32, MomentFormat::kF32, true, 30},
               {"bf16+16 master, fp32 moments", MasterFormat::kBF16Remainder, MomentFormat::kF32, true, 28},
               {"bf16+16 master, bf16 moments", MasterFormat::kBF16Remainder, MomentFormat::kBF16, true, 20},
               {"bf16 master, bf16 moments", MasterFormat::kBF16, MomentFormat::kBF16, true, 16},
               {"fp32 master, e4m3 moments", MasterFormat::kF32, MomentFormat::kE4M3, true, 18.125},
               {"bf16+16 master, e4m3 moments", MasterFormat::kBF16Remainder, MomentFormat::kE4M3, true, 16.125}};
  for (const auto& mode : modes) {
    CHECK_CUDA(cudaMemset(v, 0, static_cast<size_t>(n) * kLayers * 4));
    CHECK_CUDA(cudaMemset(m, 0, static_cast<size_t>(n) * kLayers * 4));
    CHECK_CUDA(cudaDeviceSynchronize());
    int layer = 0;
    bench.add(text("adamw %s, layer of 19.7M", mode.name), mode.bytes * static_cast<double>(n),
              [&](cudaStream_t stream) {
                const int64_t at = n * (layer++ % kLayers);
                return launch(kernels::AdamwArgs{.formats = {mode.master, mode.moment},
                                                 .master = master + at,
                                                 .compute = compute + at,
                                                 .remainder = remainder + at,
                                                 .exp_avg = m + at,
                                                 .exp_avg_sq = v + at,
                                                 .exp_avg_scale = scales,
                                                 .exp_avg_sq_scale = scales + n * kLayers / 256,
                                                 .grad = grad + at,
                                                 .n = n,
                                                 .groups = mode.groups ? device_groups : nullptr,
                                                 .dynamic = dynamic,
                                                 .random_offset = at},
                              stream);
              });
  }

  kernels::SumOfSquaresArgs squares{.n_buffers = 33, .sum = allocate<double>(8), .workspace = s.workspace};
  float* all = static_cast<float*>(s.a);  // 33 layers in the shared buffers' first 2.6 GB
  for (int b = 0; b < 33; ++b) {
    squares.buffers[b] = b < 16 ? all + n * b : static_cast<float*>(s.c) + n * (b - 16);
    squares.sizes[b] = n;
  }
  bench.add("sum_of_squares of 33 layers of 19.7M", 33.0 * 4 * static_cast<double>(n),
            [=](cudaStream_t stream) { return launch(squares, stream); });
  bench.add("cast fp32->bf16 157M", 6.0 * static_cast<double>(n) * kLayers, [=](cudaStream_t stream) {
    return launch(kernels::CastArgs{.n = n * kLayers, .from = master, .to = compute}, stream);
  });
  bench.add("split weights 157M", 8.0 * static_cast<double>(n) * kLayers, [=](cudaStream_t stream) {
    return launch(
        kernels::SplitWeightsArgs{.n = n * kLayers, .weights = master, .bf16 = compute, .remainder = remainder},
        stream);
  });
  bench.add("join weights 157M", 8.0 * static_cast<double>(n) * kLayers, [=](cudaStream_t stream) {
    return launch(
        kernels::JoinWeightsArgs{.n = n * kLayers, .bf16 = compute, .remainder = remainder, .weights = master}, stream);
  });
  bench.add("fill fp32 157M", 4.0 * static_cast<double>(n) * kLayers, [=](cudaStream_t stream) {
    return launch(kernels::FillArgs{.n = n * kLayers, .value = 1, .to = m}, stream);
  });
  const kernels::LossSums* losses = upload(std::vector<kernels::LossSums>{{1e4, 9000, 100}});
  kernels::ClipResult* clip = allocate<kernels::ClipResult>(sizeof(kernels::ClipResult));
  const double* lr = upload(std::vector<double>{1e-4});
  kernels::AdamwDynamic* scratch = allocate<kernels::AdamwDynamic>(sizeof(kernels::AdamwDynamic));
  bench.add("clip and adamw_prepare", 100, [=](cudaStream_t stream) {
    const cudaError_t error = launch(
        kernels::ClipArgs{.sums_of_squares = squares.sum, .losses = losses, .max_norm = 1, .result = clip}, stream);
    return error != cudaSuccess ? error
                                : launch(kernels::AdamwPrepareArgs{.lr = lr, .clip = clip, .dynamic = scratch}, stream);
  });
}

}  // namespace

int main(int argc, char** argv) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::puts("skipped: no CUDA device");
    return 77;
  }
  cudaDeviceProp properties;
  CHECK_CUDA(cudaGetDeviceProperties(&properties, 0));
  Bench bench(argc > 1 ? argv[1] : "");
  const Values values;
  Shared s{};
  for (void** buffer : {&s.a, &s.b, &s.c, &s.d}) {
    *buffer = allocate(kBytes);
    values.fill(DType::kF32, static_cast<int64_t>(kBytes / 4), *buffer);
  }
  s.workspace = allocate(size_t{256} << 20);
  s.sum1 = allocate<float>(1 << 20);
  s.sum2 = allocate<float>(1 << 20);
  s.sum3 = allocate<float>(1 << 20);
  s.stats1 = values.floats(1 << 20);
  s.stats2 = values.floats(1 << 20);

  const auto copy = [&](cudaStream_t stream) {
    return cudaMemcpyAsync(s.a, s.b, size_t{1} << 30, cudaMemcpyDeviceToDevice, stream);
  };
  const double copy_rate = 2.0 * static_cast<double>(size_t{1} << 30) / bench.time(copy, 2) / 1e3;  // GB/s

  const auto fill_bf16 = [&] {
    for (void* buffer : {s.a, s.b, s.c, s.d}) values.fill(DType::kBF16, static_cast<int64_t>(kBytes / 4), buffer);
  };
  const auto fill_fp32 = [&] {
    for (void* buffer : {s.a, s.b, s.c, s.d}) values.fill(DType::kF32, static_cast<int64_t>(kBytes / 4), buffer);
  };
  fill_bf16();
  const int64_t shapes[][2] = {{65536, 1280}, {262144, 320}, {131072, 480},
                               {131072, 640}, {32768, 2560}, {16384, 5120}};
  for (const auto& shape : shapes) layer_norm(bench, s, DType::kBF16, shape[0], shape[1]);
  fill_bf16();
  gelu(bench, s, DType::kBF16, kernels::GeluForm::kErf, 65536, 5120);
  gelu(bench, s, DType::kBF16, kernels::GeluForm::kTanh, 65536, 5120);
  gelu(bench, s, DType::kBF16, kernels::GeluForm::kErf, 262144, 1280);
  gelu(bench, s, DType::kBF16, kernels::GeluForm::kErf, 10496, 1280);
  rotary(bench, s, DType::kBF16, 65536, 20, 64);
  rotary(bench, s, DType::kBF16, 262144, 20, 16);
  rotary(bench, s, DType::kBF16, 131072, 20, 24);
  rotary(bench, s, DType::kBF16, 131072, 20, 32);
  rotary(bench, s, DType::kBF16, 32768, 40, 64);
  rotary(bench, s, DType::kBF16, 16384, 40, 128);
  fill_bf16();
  embedding_and_head(bench, s);
  for (const int64_t cols : {int64_t{1280}, int64_t{3840}, int64_t{5120}})
    bench.add(
        text("column_sum bf16 65536x%lld", static_cast<long long>(cols)), 65536.0 * static_cast<double>(cols) * 2,
        [=, &s](cudaStream_t stream) {
          return launch(
              kernels::ColumnSumArgs{.rows = 65536, .cols = cols, .x = s.a, .sum = s.sum1, .workspace = s.workspace},
              stream);
        });
  fill_fp32();
  layer_norm(bench, s, DType::kF32, 65536, 1280);
  fill_fp32();
  gelu(bench, s, DType::kF32, kernels::GeluForm::kErf, 65536, 5120);
  rotary(bench, s, DType::kF32, 65536, 20, 64);
  fill_fp32();
  optimizer(bench, s, values);

  CHECK_CUDA(cudaDeviceSynchronize());
  bench.print(copy_rate);
  std::printf("%s, %d multiprocessors; device copy %.0f GB/s (read + write)\n", properties.name,
              properties.multiProcessorCount, copy_rate);
  return 0;
}
