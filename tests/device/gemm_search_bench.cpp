// What bounds the products of a 650M encoder layer: which of cuBLASLt's rules for proposals cost something (number
// asked for, workspace, reductions, alignment, algorithm numbers), what a search beyond its proposals finds, and how
// much is the clock's: epilogue, token count, data, pauses. About half a minute.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <thread>

#include "base/check.h"
#include "bench/median_us_cuda.h"
#include "device/properties.h"
#include "device/versions.h"
#include "tests/device/device_array.h"
#include "tests/device/gemm_search.h"
#include "tests/device/isolated.h"
#include "tests/device/sm_clock.h"

using namespace esm;
using namespace esm::test;
using device::GemmDesc;

namespace {

constexpr int64_t kHidden = 1280, kFfn = 5120, kWorkspace = int64_t{256} << 20;
constexpr double kSearchSeconds = 2;
constexpr double kFlopsPerClock = 4096;  // BF16 with FP32 sums, a multiprocessor of sm_90
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

struct Product {
  std::string name;
  GemmDesc desc;
  bool separate_c = false;
  double rate(double us) const { return desc.flops() / us * 1e-6; }
};

struct Linear {
  const char* name;
  int64_t out, in;
  bool residual;
};
constexpr Linear kQkv{"qkv", 3 * kHidden, kHidden, false}, kProj{"proj", kHidden, kHidden, true},
    kFc1{"fc1", kFfn, kHidden, false}, kFc2{"fc2", kHidden, kFfn, true};

enum class Epilogue { kPlain, kBias, kBiasResidual };
Product forward(const Linear& l, int64_t tokens, Epilogue epilogue) {
  const bool bias = epilogue != Epilogue::kPlain, residual = epilogue == Epilogue::kBiasResidual;
  const device::LinearForwardGemm gemm{.tokens = tokens, .out = l.out, .in = l.in, .bias = bias, .residual = residual};
  return {fmt::format("{} fwd{}{}", l.name, bias ? " bias" : "", residual ? " +C" : ""), gemm.desc(), residual};
}
Product forward(const Linear& l, int64_t tokens) {
  return forward(l, tokens, l.residual ? Epilogue::kBiasResidual : Epilogue::kBias);
}
Product dgrad(const Linear& l, int64_t tokens) {
  return {fmt::format("{} dgrad", l.name), device::LinearDgradGemm{.tokens = tokens, .out = l.out, .in = l.in}.desc()};
}
Product wgrad(const Linear& l, int64_t tokens) {
  return {fmt::format("{} wgrad", l.name), device::LinearWgradGemm{.tokens = tokens, .out = l.out, .in = l.in}.desc()};
}

/// One product's operands and the algorithms that run on them.
class Bench {
 public:
  Bench(const Product& product, uint64_t seed, cudaStream_t stream)
      : stream_(stream),
        product_(product),
        search_(product.desc),
        a_(DType::kBF16, product.desc.lda * (product.desc.transpose_a ? product.desc.m : product.desc.k)),
        b_(DType::kBF16, product.desc.ldb * (product.desc.transpose_b ? product.desc.k : product.desc.n)),
        c_(product.desc.d, product.separate_c ? product.desc.ldd * product.desc.n : 0),
        d_(product.desc.d, product.desc.ldd * product.desc.n),
        bias_(DType::kBF16, product.desc.m),
        workspace_("GEMM workspace", kWorkspace),
        flush_("cache flush", 2 * device::properties(0).l2_bytes) {
    fill(seed);
  }

  const GemmSearch& search() const { return search_; }

  void fill(uint64_t seed) {
    for (const DeviceArray* x : {&a_, &b_, &c_, &d_, &bias_}) x->fill_normal(++seed, 1.0f, stream_);
  }
  void fill_zeros() {
    for (const DeviceArray* x : {&a_, &b_})
      ESM_CUDA(cudaMemsetAsync(x->get(), 0, static_cast<size_t>(x->bytes()), stream_));
  }

  bool run(const cublasLtMatmulAlgo_t& algo) const {
    return search_.run(algo,
                       {.a = a_.get(),
                        .b = b_.get(),
                        .c = product_.separate_c ? c_.get() : nullptr,
                        .bias = product_.desc.epilogue == device::GemmEpilogue::kBias ? bias_.get() : nullptr,
                        .d = d_.get(),
                        .workspace = workspace_.get(),
                        .workspace_bytes = workspace_.bytes()},
                       stream_);
  }

  /// The better of two runs with cold caches, us; infinite when it does not run.
  double screen(const cublasLtMatmulAlgo_t& algo) const {
    if (!run(algo)) return INFINITY;
    double best = INFINITY;
    for (int i = 0; i < 2; ++i) best = std::min(best, timed(algo, 1, true));
    return best;
  }
  std::vector<double> medians(const std::vector<cublasLtMatmulAlgo_t>& algos, int rounds) const {
    std::vector<std::function<void()>> bodies;
    for (const auto& algo : algos) bodies.push_back([this, &algo] { run(algo); });
    return bench::median_us(stream_, rounds, flush_, bodies);
  }
  /// us a run of `count` in a row.
  double timed(const cublasLtMatmulAlgo_t& algo, int count, bool cold) const {
    device::Event begin(device::Event::Timing::kOn), end(device::Event::Timing::kOn);
    if (cold) ESM_CUDA(cudaMemsetAsync(flush_.get(), 0, static_cast<size_t>(flush_.bytes()), stream_));
    begin.record(stream_);
    for (int i = 0; i < count; ++i) run(algo);
    end.record(stream_);
    end.synchronize();
    return 1e3 * device::Event::milliseconds_between(begin, end) / count;
  }
  /// MHz behind `count` runs in a row.
  double clock_behind(const cublasLtMatmulAlgo_t& algo, int count) const {
    for (int i = 0; i < count; ++i) run(algo);
    queue_sm_clock(flush_, stream_);
    return sm_clock_mhz(flush_, stream_);
  }
  /// The first results of a run that starts from equal contents of D.
  std::vector<double> sample(const cublasLtMatmulAlgo_t& algo) const {
    ESM_CUDA(cudaMemsetAsync(d_.get(), 0, static_cast<size_t>(d_.bytes()), stream_));
    run(algo);
    std::vector<double> values = d_.values(stream_);
    values.resize(std::min<size_t>(values.size(), size_t{1} << 20));
    return values;
  }

 private:
  cudaStream_t stream_;
  Product product_;
  GemmSearch search_;
  DeviceArray a_, b_, c_, d_, bias_;
  device::DeviceBuffer workspace_, flush_;
};

const std::vector<SearchRule> kRules = {
    {.name = "16 asked"},
    {.name = "64 asked", .asked = 64},
    {.name = "64 MiB", .workspace_bytes = int64_t{64} << 20},
    {.name = "256 MiB", .workspace_bytes = int64_t{256} << 20},
    {.name = "any reduction", .reductions = CUBLASLT_REDUCTION_SCHEME_MASK},
    {.name = "align 256", .alignment_bytes = 256},
    {.name = "each id", .each_id = true},
};

struct Candidate {
  cublasLtMatmulAlgo_t algo{};
  unsigned rules = 0;  // bit i: proposed under kRules[i]; the bit behind the last rule: found by the search
  double screened = INFINITY, us = INFINITY;
};
constexpr unsigned bit(size_t i) { return 1u << i; }

/// Merges what all rules propose, times it, and looks around the best.
void bench_rules(const Product& product, uint64_t seed, cudaStream_t stream) {
  const Bench bench(product, seed, stream);
  std::vector<Candidate> all;
  std::vector<int> proposed;
  for (size_t r = 0; r < kRules.size(); ++r) {
    const auto found = bench.search().proposals(kRules[r]);
    proposed.push_back(static_cast<int>(found.size()));
    for (const auto& algo : found) {
      auto known = std::find_if(all.begin(), all.end(), [&](const Candidate& c) { return same(c.algo, algo); });
      if (known == all.end()) known = all.insert(all.end(), Candidate{.algo = algo});
      known->rules |= bit(r);
    }
  }
  for (Candidate& c : all) c.screened = bench.screen(c.algo);
  const auto by_screen = [](const Candidate& a, const Candidate& b) { return a.screened < b.screened; };
  std::sort(all.begin(), all.end(), by_screen);

  const size_t proposals = all.size();
  std::vector<cublasLtMatmulAlgo_t> seeds;
  for (size_t i = 0; i < all.size() && i < 6; ++i) seeds.push_back(all[i].algo);
  const auto around = bench.search().neighbours(seeds, int64_t{32} << 20);
  const auto start = Clock::now();
  for (const auto& algo : around) {
    if (seconds_since(start) > kSearchSeconds) break;
    if (std::any_of(all.begin(), all.end(), [&](const Candidate& c) { return same(c.algo, algo); })) continue;
    all.push_back({.algo = algo, .rules = bit(kRules.size()), .screened = bench.screen(algo)});
  }
  const size_t searched = all.size() - proposals;
  std::sort(all.begin(), all.end(), by_screen);

  // The three best of each rule, measured again in turn.
  std::vector<size_t> finalists;
  for (size_t r = 0; r <= kRules.size(); ++r) {
    int taken = 0;
    for (size_t i = 0; i < all.size() && taken < 3; ++i)
      if ((all[i].rules & bit(r)) != 0 && std::isfinite(all[i].screened)) {
        finalists.push_back(i);
        ++taken;
      }
  }
  std::sort(finalists.begin(), finalists.end());
  finalists.erase(std::unique(finalists.begin(), finalists.end()), finalists.end());
  std::vector<cublasLtMatmulAlgo_t> algos;
  for (const size_t i : finalists) algos.push_back(all[i].algo);
  const std::vector<double> us = bench.medians(algos, 9);
  for (size_t i = 0; i < finalists.size(); ++i) all[finalists[i]].us = us[i];

  const auto best_of = [&](unsigned rules) {
    const Candidate* best = nullptr;
    for (const Candidate& c : all)
      if ((c.rules & rules) != 0 && std::isfinite(c.us) && (best == nullptr || c.us < best->us)) best = &c;
    return best;
  };
  const Candidate *now = best_of(bit(0)), *best = best_of(~0u);
  fmt::print("{:<15} {:>5}x{:>6}x{:>5}", product.name, product.desc.m, product.desc.n, product.desc.k);
  for (size_t r = 0; r < kRules.size(); ++r) {
    const Candidate* of_rule = best_of(bit(r));
    fmt::print(" {:>4} {:>8}", proposed[r],
               of_rule == nullptr ? "-" : fmt::format("{:.0f}", product.rate(of_rule->us)));
  }
  const Candidate* found = best_of(bit(kRules.size()));
  fmt::print(" {:>4} {:>8}\n", searched, found == nullptr ? "-" : fmt::format("{:.0f}", product.rate(found->us)));
  if (now == nullptr) return;
  fmt::print("    now  {:>7.1f} us  {}\n", now->us, describe(now->algo));
  if (best != now) {
    const std::vector<double> x = bench.sample(now->algo), y = bench.sample(best->algo);
    double off = 0, norm = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      off += (x[i] - y[i]) * (x[i] - y[i]);
      norm += x[i] * x[i];
    }
    fmt::print("    best {:>7.1f} us  {}; {:+.1f} %, rel L2 of the difference {:.1e}\n", best->us, describe(best->algo),
               100 * (now->us / best->us - 1), std::sqrt(off / norm));
  }
  std::fflush(stdout);
}

/// The best proposal under other circumstances.
void bench_circumstances(const Product& product, uint64_t seed, cudaStream_t stream) {
  Bench bench(product, seed, stream);
  const auto found = bench.search().proposals(kRules[0]);
  const cublasLtMatmulAlgo_t* best = nullptr;
  double screened = INFINITY;
  for (const auto& algo : found)
    if (const double us = bench.screen(algo); us < screened) {
      screened = us;
      best = &algo;
    }
  if (best == nullptr) fail<DeviceError>("no proposal runs");
  // Pauses first, while the device is coolest; 40 in a row is about what a layer of a step is.
  double rested = INFINITY;
  for (int i = 0; i < 3; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
    rested = std::min(rested, bench.timed(*best, 1, true));
  }
  const double cold = bench.medians({*best}, 9)[0], row = bench.timed(*best, 40, false);
  const double mhz = bench.clock_behind(*best, 20);
  bench.fill_zeros();
  const double zeros = bench.timed(*best, 40, false), zeros_mhz = bench.clock_behind(*best, 20);
  const auto share = [&](double us, double clock) {
    return 100 * product.rate(us) * 1e6 / (kFlopsPerClock * device::properties(0).sm_count * clock);
  };
  fmt::print("{:<15} {:>6} {:>8.0f} {:>8.0f} {:>8.0f} {:>6.0f} {:>5.0f} % {:>8.0f} {:>6.0f} {:>5.0f} %\n", product.name,
             std::max(product.desc.n, product.desc.k), product.rate(rested), product.rate(cold), product.rate(row), mhz,
             share(row, mhz), product.rate(zeros), zeros_mhz, share(zeros, zeros_mhz));
  std::fflush(stdout);
}

void print_circumstances_heading() {
  fmt::print(
      "\nbest of 16 asked, TFLOP/s: after a pause of 60 ms; caches flushed between; 40 in a row, with the clock behind "
      "them and the\nshare of the matrix units' rate at that clock; the same on zeros\n");
  fmt::print("{:<15} {:>6} {:>8} {:>8} {:>8} {:>6} {:>7} {:>8} {:>6} {:>7}\n", "product", "T", "rested", "flushed",
             "in a row", "MHz", "share", "zeros", "MHz", "share");
  std::fflush(stdout);
}

void print_rules_heading() {
  fmt::print("\nproposals and the best one's TFLOP/s under each rule; then the search ({} s a product)\n",
             kSearchSeconds);
  fmt::print("{:<15} {:>18}", "product", "m x n x k");
  for (const SearchRule& rule : kRules) fmt::print(" {:>13}", rule.name);
  fmt::print(" {:>13}\n", "search");
  std::fflush(stdout);
}

std::vector<Part> make_parts(uint64_t seed) {
  std::vector<Part> parts;
  parts.push_back({"heading", [](Report&, cudaStream_t) { print_circumstances_heading(); }});
  for (const int64_t tokens : {int64_t{32768}, int64_t{65536}})
    for (const Product& p : {forward(kFc1, tokens, Epilogue::kPlain), forward(kFc1, tokens, Epilogue::kBias),
                             forward(kFc2, tokens, Epilogue::kPlain), forward(kFc2, tokens, Epilogue::kBias),
                             forward(kFc2, tokens, Epilogue::kBiasResidual), dgrad(kFc2, tokens), wgrad(kFc1, tokens)})
      parts.push_back({fmt::format("{} at {} tokens", p.name, tokens),
                       [=](Report&, cudaStream_t stream) { bench_circumstances(p, seed, stream); }});
  parts.push_back({"heading", [](Report&, cudaStream_t) { print_rules_heading(); }});
  constexpr int64_t kTokens = 65536;
  for (const Product& p :
       {forward(kQkv, kTokens), forward(kProj, kTokens), forward(kFc1, kTokens), forward(kFc2, kTokens),
        dgrad(kFc1, kTokens), dgrad(kFc2, kTokens), wgrad(kFc1, kTokens), wgrad(kFc2, kTokens)})
    parts.push_back({p.name, [=](Report&, cudaStream_t stream) { bench_rules(p, seed, stream); }});
  return parts;
}

}  // namespace

int main(int, char** argv) {
  if (device::cuda_device_count() == 0) {
    fmt::print("skipped: no CUDA device\n");
    return 77;
  }
  const uint64_t seed = run_seed();
  if (!in_child()) {
    const device::Properties props = device::properties(0);
    fmt::print("{} {} SMs, cuBLASLt {}, seed {}\n", props.name, props.sm_count, cublasLtGetVersion(), seed);
  }
  const auto start = Clock::now();
  try {
    const int code = run_isolated("bench_gemm_search", argv, make_parts(seed), seed);
    if (!in_child()) fmt::print("all in {:.1f} s\n", seconds_since(start));
    return code;
  } catch (const std::exception& error) {
    fmt::print("bench_gemm_search: {}\n", error.what());
    return 1;
  }
}
