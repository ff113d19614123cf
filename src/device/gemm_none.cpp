#include "base/check.h"
#include "device/gemm.h"

namespace esm::device {
namespace {

[[noreturn]] void no_cuda() { fail<DeviceError>("this program was built without CUDA: it has no cuBLASLt"); }

}  // namespace

struct GemmContext::Impl {};

GemmContext::GemmContext(const GemmOptions&) { no_cuda(); }
GemmContext::~GemmContext() = default;
void GemmContext::run(const GemmDesc&, const GemmArgs&, StreamHandle) { no_cuda(); }
void GemmContext::run(const LinearForwardGemm&, const ForwardArgs&, StreamHandle) { no_cuda(); }
void GemmContext::run(const LinearDgradGemm&, const DgradArgs&, StreamHandle) { no_cuda(); }
void GemmContext::run(const LinearWgradGemm&, const WgradArgs&, StreamHandle) { no_cuda(); }
void GemmContext::run(const Fp8ForwardGemm&, const Fp8ForwardArgs&, StreamHandle) { no_cuda(); }
void GemmContext::run(const Fp8DgradGemm&, const Fp8DgradArgs&, StreamHandle) { no_cuda(); }
void GemmContext::run(const Fp8WgradGemm&, const Fp8WgradArgs&, StreamHandle) { no_cuda(); }
GemmPlanInfo GemmContext::prepare(const GemmDesc&, StreamHandle) { no_cuda(); }
GemmPlanInfo GemmContext::tune(const GemmDesc&, StreamHandle) { no_cuda(); }
bool GemmContext::supported(const GemmDesc&) { no_cuda(); }
int64_t GemmContext::plans_reused() const { no_cuda(); }
int64_t GemmContext::plans_refused() const { no_cuda(); }
int64_t GemmContext::workspace_bytes() const { no_cuda(); }

}  // namespace esm::device
