#include "base/check.h"
#include "device/stream.h"

namespace esm::device {
namespace {

[[noreturn]] void no_cuda() {
  fail<DeviceError>("this program was built without CUDA: it has no streams and no graphs");
}

}  // namespace

ForbidWaiting::ForbidWaiting() = default;
ForbidWaiting::~ForbidWaiting() = default;

Event::Event(Timing) { no_cuda(); }
Event::~Event() = default;
void Event::record(StreamHandle) { no_cuda(); }
void Event::synchronize() const { no_cuda(); }
bool Event::done() const { no_cuda(); }
double Event::milliseconds_between(const Event&, const Event&) { no_cuda(); }

Stream::Stream() { no_cuda(); }
Stream::~Stream() = default;
void Stream::synchronize() const { no_cuda(); }
void Stream::wait(const Event&) const { no_cuda(); }

bool is_capturing(StreamHandle) { return false; }

Graph Graph::capture(StreamHandle, const std::function<void()>&) { no_cuda(); }
Graph::~Graph() = default;
void Graph::launch(StreamHandle) const { no_cuda(); }

}  // namespace esm::device
