#include <cstring>
#include <unordered_map>

#include "base/check.h"
#include "base/log.h"
#include "base/units.h"
#include "device/cuda_check.h"
#include "device/gemm.h"
#include "device/gemm_plan_cuda.h"
#include "device/gemm_plan_file.h"
#include "device/gemm_tune_cuda.h"
#include "device/properties.h"
#include "device/stream.h"

namespace esm::device {

static_assert(sizeof(GemmAlgoBytes) == sizeof(cublasLtMatmulAlgo_t));

struct GemmContext::Impl {
  GemmOptions options;
  LtHandle handle;
  DeviceBuffer workspace;
  GemmPlanScope scope;
  GemmPlanRecords records;  // of this scope: from the file, and timed here
  std::unordered_map<GemmDesc, GemmPlan, GemmDescHash> plans;
  int64_t reused = 0, refused = 0;

  explicit Impl(const GemmOptions& given) : options(given), workspace("the GEMM workspace", given.workspace_bytes) {
    ESM_CHECK(options.candidates > 0 && options.workspace_bytes > 0, "GEMM options");
    cublasLtHandle_t raw = nullptr;
    ESM_CUBLASLT(cublasLtCreate(&raw));
    handle.reset(raw);
    int device = 0;
    ESM_CUDA(cudaGetDevice(&device));
    const Properties props = properties(device);
    scope = {.cublaslt_version = static_cast<int64_t>(cublasLtGetVersion()),
             .device = props.name,
             .sm_count = props.sm_count,
             .workspace_bytes = workspace.bytes()};
    read_records();
  }

  // A plan file only saves time: what is wrong with it costs a new search and no run.
  void read_records() {
    if (options.plan_file.empty()) return;
    int64_t damaged = 0;
    try {
      records = read_gemm_plans(options.plan_file, scope, &damaged);
    } catch (const DataError& error) {
      log::warn("GEMM plans are timed anew: {}", error.what());
    }
    if (damaged > 0)
      log::warn("{}: {} damaged lines left out; their plans are timed again", options.plan_file, damaged);
  }

  // At once, so that a run that is killed has not searched in vain.
  void keep_records() {
    if (options.plan_file.empty()) return;
    try {
      write_gemm_plans(options.plan_file, scope, records);
    } catch (const DataError& error) {
      log::warn("GEMM plans are not kept for the next start: {}", error.what());
      options.plan_file.clear();
    }
  }

  std::vector<cublasLtMatmulHeuristicResult_t> proposals(const GemmPlan& plan, int count) const {
    auto found = plan.proposals(handle.get(), workspace, count);
    if (found.empty())
      fail<DeviceError>("cuBLASLt {} has no kernel on {} for {}", scope.cublaslt_version, scope.device,
                        text(plan.desc()));
    return found;
  }

  void use_first(GemmPlan& plan) const {
    const auto found = proposals(plan, 1);
    plan.algo = found[0].algo;
    plan.info = {.workspace_bytes = static_cast<int64_t>(found[0].workspaceSize)};
  }

  void use_timed(GemmPlan& plan, StreamHandle stream) {
    ESM_CHECK(!is_capturing(stream), "a GEMM is first seen while a graph is captured, warm up before: {}",
              text(plan.desc()));
    const auto found = with_neighbours(handle.get(), plan, workspace, proposals(plan, options.candidates));
    std::vector<CandidateTime> times;
    try {
      times = time_candidates(handle.get(), plan, workspace, found, stream);
    } catch (const OutOfMemory& error) {
      log::warn("no memory to time a GEMM, cuBLASLt's first proposal is used: {}", error.what());
      return use_first(plan);
    }
    const int chosen = choose(times);
    const auto& best = found[static_cast<size_t>(chosen)];
    plan.algo = best.algo;
    plan.info = {.source = GemmPlanInfo::Source::kTimed,
                 .candidates = static_cast<int>(found.size()),
                 .chosen = chosen,
                 .first_us = times[0].alone_us,
                 .chosen_us = times[static_cast<size_t>(chosen)].alone_us,
                 .workspace_bytes = static_cast<int64_t>(best.workspaceSize)};
    GemmPlanRecord record{.microseconds = plan.info.chosen_us};
    std::memcpy(record.algo.data(), &plan.algo, sizeof plan.algo);
    records[text(plan.desc())] = record;
    keep_records();
  }

  bool use_record(GemmPlan& plan) {
    const auto record = records.find(text(plan.desc()));
    if (record == records.end()) return false;
    cublasLtMatmulAlgo_t algo{};
    std::memcpy(&algo, record->second.algo.data(), sizeof algo);
    int64_t needed = 0;
    if (!plan.accepts(handle.get(), algo, workspace, &needed)) {
      ++refused;
      records.erase(record);
      return false;
    }
    ++reused;
    plan.algo = algo;
    plan.info = {
        .source = GemmPlanInfo::Source::kPlanFile, .chosen_us = record->second.microseconds, .workspace_bytes = needed};
    return true;
  }

  const GemmPlan& plan_of(const GemmDesc& desc, StreamHandle stream) {
    const auto known = plans.find(desc);
    if (known != plans.end()) return known->second;
    GemmPlan plan(desc);
    if (!use_record(plan)) {
      if (options.tuning == GemmTuning::kTimed)
        use_timed(plan, stream);
      else
        use_first(plan);
    }
    return plans.emplace(desc, std::move(plan)).first->second;
  }
};

GemmContext::GemmContext(const GemmOptions& options) : impl_(std::make_unique<Impl>(options)) {}
GemmContext::~GemmContext() = default;

void GemmContext::run(const GemmDesc& desc, const GemmArgs& args, StreamHandle stream) {
  const GemmPlan& plan = impl_->plan_of(desc, stream);
  plan.launch(impl_->handle.get(), plan.algo, impl_->workspace, args, stream);
}

void GemmContext::run(const LinearForwardGemm& gemm, const ForwardArgs& args, StreamHandle stream) {
  run(gemm.desc(), {.a = args.weight, .b = args.x, .c = args.residual, .d = args.y, .bias = args.bias}, stream);
}

void GemmContext::run(const LinearDgradGemm& gemm, const DgradArgs& args, StreamHandle stream) {
  run(gemm.desc(), {.a = args.weight, .b = args.dy, .d = args.dx}, stream);
}

void GemmContext::run(const LinearWgradGemm& gemm, const WgradArgs& args, StreamHandle stream) {
  run(gemm.desc(), {.a = args.x, .b = args.dy, .d = args.dweight}, stream);
}

void GemmContext::run(const Fp8ForwardGemm& gemm, const Fp8ForwardArgs& args, StreamHandle stream) {
  run(gemm.desc(),
      {.a = args.weight.values,
       .b = args.x.values,
       .c = args.residual,
       .d = args.y,
       .bias = args.bias,
       .scale_a = args.weight.scale,
       .scale_b = args.x.scale,
       .factors = args.factors},
      stream);
}

void GemmContext::run(const Fp8DgradGemm& gemm, const Fp8DgradArgs& args, StreamHandle stream) {
  run(gemm.desc(),
      {.a = args.weight_t.values,
       .b = args.dy.values,
       .d = args.dx,
       .scale_a = args.weight_t.scale,
       .scale_b = args.dy.scale,
       .factors = args.factors},
      stream);
}

void GemmContext::run(const Fp8WgradGemm& gemm, const Fp8WgradArgs& args, StreamHandle stream) {
  run(gemm.desc(),
      {.a = args.x_t.values,
       .b = args.dy_t.values,
       .d = args.dweight,
       .scale_a = args.x_t.scale,
       .scale_b = args.dy_t.scale,
       .factors = args.factors},
      stream);
}

GemmPlanInfo GemmContext::prepare(const GemmDesc& desc, StreamHandle stream) {
  return impl_->plan_of(desc, stream).info;
}

GemmPlanInfo GemmContext::tune(const GemmDesc& desc, StreamHandle stream) {
  GemmPlan plan(desc);
  impl_->use_timed(plan, stream);
  impl_->plans.erase(desc);
  return impl_->plans.emplace(desc, std::move(plan)).first->second.info;
}

bool GemmContext::supported(const GemmDesc& desc) {
  return fp8_obstacle(desc).empty() && !GemmPlan(desc).proposals(impl_->handle.get(), impl_->workspace, 1).empty();
}

int64_t GemmContext::plans_reused() const { return impl_->reused; }
int64_t GemmContext::plans_refused() const { return impl_->refused; }
int64_t GemmContext::workspace_bytes() const { return impl_->workspace.bytes(); }

}  // namespace esm::device
