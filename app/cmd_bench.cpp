// esmtrain bench step | forward | data | gemm | kernels
#include <array>
#include <cstdio>
#include <string>
#include <vector>

#include "app/args.h"
#include "app/commands.h"
#include "app/environment.h"
#include "app/subcommands.h"
#include "base/check.h"
#include "base/units.h"
#include "bench/ceilings.h"
#include "bench/gemm_accuracy.h"
#include "bench/gemms.h"
#include "bench/kernels.h"
#include "config/config.h"
#include "device/gemm_fp8.h"
#include "device/properties.h"
#include "device/versions.h"
#include "precision/recipe.h"
#include "train/bench_data.h"
#include "train/bench_step.h"

namespace esm::app {
namespace {

void line(const char* name, const std::string& value) { std::printf("%-22s %s\n", name, value.c_str()); }

std::string rate_text(double tflops) {
  return tflops >= 1 ? fmt::format("{:.1f} TFLOP/s", tflops) : fmt::format("{:.1f} GFLOP/s", 1e3 * tflops);
}

/// `what`: "step".
void print_speed(const char* what, const train::BenchSpeed& s) {
  line(what, fmt::format("{:.2f} ms (fastest {:.2f}, slowest {:.2f})", s.median_ms, s.fastest_ms, s.slowest_ms));
  line(fmt::format("tokens a {}", what).c_str(),
       fmt::format("{} real, {} slots", with_thousands(s.real_tokens), with_thousands(s.padded_tokens)));
  line("tokens/s", fmt::format("{} real, {} slots", with_thousands(static_cast<int64_t>(s.real_tokens_per_s())),
                               with_thousands(static_cast<int64_t>(s.padded_tokens_per_s()))));
  line("arithmetic", fmt::format("{} ({:.4g} FLOP a token, effective length {:.0f})", rate_text(s.tflops()),
                                 s.flops_per_token, s.effective_seqlen));
  double sum = 0;
  for (const device::PhaseTime& phase : s.phases) {
    sum += phase.milliseconds;
    line(("  " + phase.name).c_str(), fmt::format("{:8.2f} ms {:5.1f} % {:5} times", phase.milliseconds,
                                                  100 * phase.milliseconds / s.clocked_ms, phase.count));
  }
  line("  the rest", fmt::format("{:8.2f} ms {:5.1f} %", s.clocked_ms - sum, 100 * (1 - sum / s.clocked_ms)));
  if (s.product_gflops == 0) return;
  line("share of the product", fmt::format("{:.1f} % of {:.0f} GFLOP/s, FP32 product of 2048^3",
                                           1e5 * s.tflops() / s.product_gflops, s.product_gflops));
  line("processor time", fmt::format("{:.2f} ms (least {:.2f}): {:.2f} cores at work", s.processor_ms,
                                     s.least_processor_ms, s.processor_ms / s.median_ms));
  line("peak memory", human_bytes(s.peak_bytes));
}

void print_result(const train::BenchStepResult& r) {
  line("deterministic", r.deterministic ? "yes" : "no");
  line("attention", r.attention);
  for (const std::string& products : r.products) line("products", products);
  print_speed("step", r.speed);
  line("loss", fmt::format("{:.4f} at first, {:.4f} at last", r.first_loss, r.last_loss));
  if (r.device_bytes > 0)
    line("device memory", fmt::format("{} in use, {} predicted (ratio {:.3f})", human_bytes(r.device_bytes),
                                      human_bytes(r.predicted_bytes),
                                      static_cast<double>(r.device_bytes) / static_cast<double>(r.predicted_bytes)));
}

/// What `bench step` and `bench forward` share. False: help was asked for.
bool parse_steps(Args& args, int argc, char** argv, train::RunConfig& config, train::BenchStepOptions& options) {
  std::string path;
  std::vector<config::Override> overrides;
  args.option(path, "--config", "CONFIG", "YAML file.", Args::kRequired)
      .option(options.batches.seqlen, "--seqlen", "N",
              "Tokens of every synthetic sequence; 0: lengths as proteins have them.")
      .flag(options.batches.real_data, "--real-data",
            "The training data of the config, packed and masked as in training, instead of synthetic proteins.")
      .option(options.warmup_steps, "--warmup", "N", "Steps before the measured ones.")
      .option(options.steps, "--steps", "N", "Measured steps; the median is reported.")
      .settings<train::RunConfig>(overrides);
  if (!args.parse(argc, argv)) return false;
  if (options.steps < 1 || options.warmup_steps < 0)
    fail<ConfigError>("--steps {} --warmup {}: at least 1 and 0 are wanted", options.steps, options.warmup_steps);
  config::load(config, path, overrides);
  options.kernel_cache = kernel_cache_folder();
  options.batches.data_cache = data_cache_folder();
  return true;
}

int step(int argc, char** argv) {
  Args args("bench step",
            "Times the training step of a config, on synthetic proteins or its own data; without checkpoints.");
  args.example("esmtrain bench step --config configs/esm2_650m.yaml --train.micro_batches 1", "one micro-batch a step")
      .example("esmtrain bench step --config configs/esm2_650m.yaml --deterministic true",
               "what equal bits from run to run cost: the step is timed with and without");
  train::RunConfig config;
  train::BenchStepOptions options;
  if (!parse_steps(args, argc, argv, config, options)) return 0;
  const train::BenchStepResult result = train::bench_step(config, options);
  print_result(result);
  if (config.deterministic && result.device_bytes > 0) {
    config.deterministic = false;
    const train::BenchStepResult free = train::bench_step(config, options);
    line("cost of determinism",
         fmt::format("{:+.1f} %: {:.2f} ms without, attention {}",
                     100 * (result.speed.median_ms / free.speed.median_ms - 1), free.speed.median_ms, free.attention));
  }
  return 0;
}

int forward(int argc, char** argv) {
  Args args(
      "bench forward",
      "Times the forward pass to embeddings (last layer, after its LayerNorm) a micro-batch at a time, with random "
      "weights and without what training keeps.");
  args.example("esmtrain bench forward --config configs/esm2_8m.yaml --precision fp32 --device cpu", "on the CPU");
  train::RunConfig config;
  train::BenchStepOptions options;
  if (!parse_steps(args, argc, argv, config, options)) return 0;
  print_speed("batch", train::bench_forward(config, options));
  return 0;
}

int data(int argc, char** argv) {
  std::string path;
  int64_t tokens = 20'000'000;
  std::vector<config::Override> overrides;
  Args args("bench data",
            "Times drawing, packing and masking of a config's training data on one core, as loader threads do it.");
  args.option(path, "--config", "CONFIG", "YAML file.", Args::kRequired)
      .option(tokens, "--tokens", "N", "Tokens to make; as many are made before, unmeasured.")
      .settings<train::RunConfig>(overrides)
      .example("esmtrain bench data --config configs/quickstart.yaml", "tokens a second of one core");
  if (!args.parse(argc, argv)) return 0;
  if (tokens < 1) fail<ConfigError>("--tokens {}: at least 1 is wanted", tokens);
  train::RunConfig config;
  config::load(config, path, overrides);
  const train::BenchDataResult r = train::bench_data(config, tokens, data_cache_folder());
  line("batches", fmt::format("{} of {} slots, {:.2f} % full", with_thousands(r.batches),
                              with_thousands(r.padded_tokens / r.batches),
                              100 * static_cast<double>(r.real_tokens) / static_cast<double>(r.padded_tokens)));
  line("scored tokens",
       fmt::format("{:.2f} %", 100 * static_cast<double>(r.scored_tokens) / static_cast<double>(r.real_tokens)));
  line("tokens/s of a core",
       fmt::format("{} real ({} in {:.2f} s of processor time)", with_thousands(static_cast<int64_t>(r.tokens_per_s())),
                   with_thousands(r.real_tokens), 1e-3 * r.processor_ms));
  return 0;
}

/// Throws DeviceError where there is no GPU to measure.
void require_device(const char* command) {
  if (device::cuda_device_count() == 0)
    fail<DeviceError>(
        "{} measures a GPU, and there is none that this program can use (no GPU, no driver, or a build without CUDA: "
        "see `esmtrain doctor`); run a build of the preset cuda on a machine with a GPU",
        command);
}

bench::ModelShape shape_of(const train::RunConfig& config) {
  bench::ModelShape shape{.layers = config.model.layers,
                          .hidden = config.model.hidden,
                          .heads = config.model.heads,
                          .ffn = config.model.ffn_size(),
                          .tokens = config.data.tokens_per_batch,
                          .max_tokens = config.data.max_tokens,
                          .head_rows = models::head_chunk_rows(config.data.tokens_per_batch),
                          .dtype = precision::find_recipe(config.precision).compute,
                          .tanh_gelu = config.model.activation == models::Activation::kGeluTanh};
  bench::check(shape);
  return shape;
}

/// "650M"-like: what the lines that follow are about.
std::string shape_text(const bench::ModelShape& s) {
  return fmt::format("{} layers, hidden {}, feed-forward {}, {} heads of {}, {} tokens a micro-batch, {}", s.layers,
                     s.hidden, s.ffn, s.heads, s.head_dim(), with_thousands(s.tokens),
                     s.dtype == DType::kBF16 ? "bf16" : "fp32");
}

std::string epilogue_text(const bench::NamedGemm& gemm) {
  std::string text = gemm.desc.epilogue == device::GemmEpilogue::kBias ? "bias" : "";
  if (gemm.separate_c) text += " +C";
  if (gemm.desc.accumulate && !gemm.separate_c) text += "+=";
  if (gemm.desc.d == DType::kF32 && gemm.desc.a != DType::kF32) text += " fp32";
  return text;
}

/// Returns the time of an encoder layer's products; 0 when some of them were not timed.
double print_gemms(const std::vector<bench::GemmTime>& times, double ceiling_tflops) {
  fmt::print("{:<18} {:>6} {:>6} {:>6}  {:<10} {:>9} {:>8} {:>9} {:>8} {:>8}  {}\n", "product", "m", "n", "k",
             "epilogue", "first us", "TFLOP/s", "chosen us", "TFLOP/s", "ceiling", "choice");
  double flops = 0, first_us = 0, chosen_us = 0;
  bool all = true;
  const auto share = [&](double tflops) { return fmt::format("{:.0f} %", 100 * tflops / ceiling_tflops); };
  for (const bench::GemmTime& t : times) {
    const device::GemmDesc& g = t.gemm.desc;
    const std::string head =
        fmt::format("{:<18} {:>6} {:>6} {:>6}  {:<10}", t.gemm.name, g.m, g.n, g.k, epilogue_text(t.gemm));
    if (!t.lacking.empty()) {
      fmt::print("{} not timed: {}\n", head, t.lacking);
      all = false;
      continue;
    }
    fmt::print("{} {:>9.1f} {:>8.0f} {:>9.1f} {:>8.0f} {:>8}  {} of {}\n", head, t.first_us, t.first_tflops(),
               t.chosen_us, t.chosen_tflops(), share(t.chosen_tflops()), t.chosen, t.candidates);
    if (!t.gemm.in_layer) continue;
    flops += g.flops();
    first_us += t.first_us;
    chosen_us += t.chosen_us;
  }
  if (!all) return 0;
  const double first = flops / first_us * 1e-6, chosen = flops / chosen_us * 1e-6;
  fmt::print("{:<18} {:>6} {:>6} {:>6}  {:<10} {:>9.1f} {:>8.0f} {:>9.1f} {:>8.0f} {:>8}\n", "encoder layer", "", "",
             "", "", first_us, first, chosen_us, chosen, share(chosen));
  return chosen_us;
}

void print_fp8_gemms(const bench::ModelShape& shape, double plain_us) {
  const bench::Fp8GemmCeiling ceiling = bench::measure_fp8_gemm();
  fmt::print("\nceiling in FP8: {:.0f} TFLOP/s with fast, {:.0f} with split accumulation, product of {}^3\n",
             ceiling.fast_tflops, ceiling.split_tflops, bench::GemmCeiling::kSize);
  for (const bench::Fp8Mode& mode : bench::fp8_modes()) {
    fmt::print("\nFP8, {}\n", mode.name);
    const double us = print_gemms(bench::time_gemms(bench::model_fp8_gemms(shape, mode)),
                                  mode.fast_accumulation ? ceiling.fast_tflops : ceiling.split_tflops);
    if (us > 0 && plain_us > 0) fmt::print("{:.2f} times as fast as without FP8\n", plain_us / us);
  }
}

void print_accuracy(const bench::ModelShape& shape) {
  fmt::print(
      "weight gradients of {} x {} over k tokens, E4M3 x E5M2 -> FP32, against exact sums over the same FP8 values\n"
      "(relative L2; worst element over the root mean square; mean loss towards zero; and what quantizing costs)\n",
      4 * shape.hidden, shape.hidden);
  fmt::print("{:<24} {:>7}  {:>9} {:>9} {:>9}  {:>9} {:>9} {:>9}  {:>9}\n", "inputs", "k", "fast L2", "worst",
             "to zero", "split L2", "worst", "to zero", "quantized");
  for (const bench::GemmAccuracy& a : bench::measure_gemm_accuracy(shape.hidden, shape.tokens))
    fmt::print("{:<24} {:>7}  {:>9.2e} {:>9.2e} {:>9.1e}  {:>9.2e} {:>9.2e} {:>9.1e}  {:>9.2e}\n", a.inputs, a.k,
               a.fast.relative_l2, a.fast.worst, a.fast.toward_zero, a.split.relative_l2, a.split.worst,
               a.split.toward_zero, a.quantization);
}

int gemm(int argc, char** argv) {
  std::string path, formats = "all";
  bool accuracy = false;
  std::vector<config::Override> overrides;
  Args args("bench gemm",
            "Times the matrix products of a config's encoder layer and head: cuBLASLt's first proposal against the one "
            "that timing chooses, as in a run, and both against a square product of 8192. Then those of the encoder "
            "layer in FP8: modes of scales, fast and split accumulation.");
  args.option(path, "--config", "CONFIG", "YAML file.", Args::kRequired)
      .choice(formats, "--formats", {"all", "plain", "fp8"}, "plain: without FP8; fp8: only that.")
      .flag(accuracy, "--accuracy",
            "Instead of times: what FP8 sums over all tokens of a micro-batch lose with fast and split accumulation.")
      .settings<train::RunConfig>(overrides)
      .example("esmtrain bench gemm --config configs/esm2_650m.yaml", "the products of 650M")
      .example("esmtrain bench gemm --config configs/esm2_650m.yaml --accuracy --data.tokens_per_batch 65536",
               "sums of 65,536");
  if (!args.parse(argc, argv)) return 0;

  train::RunConfig config;
  config::load(config, path, overrides);
  const bench::ModelShape shape = shape_of(config);
  require_device("bench gemm");
  if (accuracy) {
    fmt::print("{}\n", shape_text(shape));
    print_accuracy(shape);
    return 0;
  }
  double plain_us = 0;
  fmt::print("{}\n", shape_text(shape));
  if (formats != "fp8") {
    const double ceiling = bench::measure_gemm().tflops;
    fmt::print("ceiling: {:.0f} TFLOP/s, bf16 product of {}^3\n", ceiling, bench::GemmCeiling::kSize);
    plain_us = print_gemms(bench::time_gemms(bench::model_gemms(shape)), ceiling);
  }
  if (formats == "plain") return 0;
  const device::Properties device = device::properties(0);
  if (device.compute_capability < device::kLeastFp8Capability)
    fmt::print("\n{} has no FP8 tensor cores\n", device.name);
  else
    print_fp8_gemms(shape, plain_us);
  return 0;
}

/// The 650M model, for `bench kernels` without a config.
const std::vector<config::Override> k650M = {
    {.key = "model.layers", .value = "33", .written = "the default"},
    {.key = "model.hidden", .value = "1280", .written = "the default"},
    {.key = "model.heads", .value = "20", .written = "the default"},
    {.key = "data.tokens_per_batch", .value = "65536", .written = "the default"},
    {.key = "data.train", .value = "none", .written = "the default"}};

int kernels(int argc, char** argv) {
  std::string path, filter;
  std::vector<config::Override> overrides;
  Args args("bench kernels",
            "Times the elementwise and reduction kernels at the sizes of a config, against the rate at which the GPU "
            "copies. The bytes are those that have to move, as the kernels' headers state them.");
  args.option(path, "--config", "CONFIG", "YAML file; without it the 650M model with 65,536 tokens.")
      .option(filter, "--filter", "TEXT", "Only kernels with this in their name.")
      .settings<train::RunConfig>(overrides)
      .example("esmtrain bench kernels --filter layer_norm", "one family at the sizes of the 650M model");
  if (!args.parse(argc, argv)) return 0;

  if (path.empty()) overrides.insert(overrides.begin(), k650M.begin(), k650M.end());
  train::RunConfig config;
  config::load(config, path, overrides);
  const bench::ModelShape shape = shape_of(config);
  require_device("bench kernels");
  const bench::CopyRates copy = bench::measure_copy();
  fmt::print(
      "{}\ncopy: {:.0f} GB/s read + written (cudaMemcpyAsync {:.0f}, in a CUDA graph {:.0f}, our kernel {:.0f}; {} "
      "a buffer)\n",
      shape_text(shape), copy.best(), copy.library, copy.library_in_graph, copy.kernel, human_bytes(copy.bytes));
  const std::vector<bench::KernelTime> times = bench::time_kernels(shape, filter);
  if (times.empty()) fail<ConfigError>("--filter {}: no kernel has this in its name", filter);
  fmt::print("{:<60} {:>10} {:>10} {:>8} {:>8}\n", "kernel", "us", "MB", "GB/s", "of copy");
  for (const bench::KernelTime& t : times)
    fmt::print("{:<60} {:>10.1f} {:>10.1f} {:>8.0f} {:>8}\n", t.name, t.us, t.bytes * 1e-6, t.gb_per_s(),
               fmt::format("{:.0f} %", 100 * t.gb_per_s() / copy.best()));
  return 0;
}

constexpr std::array kCommands{
    Subcommand{"step", "time the training step", step},
    Subcommand{"forward", "time the forward pass to embeddings", forward},
    Subcommand{"data", "time drawing, packing and masking on one core", data},
    Subcommand{"gemm", "time the matrix products of a config", gemm},
    Subcommand{"kernels", "time the kernels at the sizes of a config", kernels},
};

}  // namespace

int cmd_bench(int argc, char** argv) {
  return run_subcommand("esmtrain bench", "Measures speed on this machine.", kCommands, argc, argv);
}

}  // namespace esm::app
