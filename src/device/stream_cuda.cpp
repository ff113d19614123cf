#include "device/stream.h"

#include "base/check.h"
#include "device/cuda_check.h"

namespace esm::device {
namespace {

thread_local int waiting_forbidden = 0;

void about_to_wait(const char* what) {
  ESM_CHECK(waiting_forbidden == 0, "the host waits for {} where it must not", what);
}

}  // namespace

ForbidWaiting::ForbidWaiting() { ++waiting_forbidden; }
ForbidWaiting::~ForbidWaiting() { --waiting_forbidden; }

Event::Event(Timing timing) {
  ESM_CUDA(cudaEventCreateWithFlags(&event_, timing == Timing::kOn ? cudaEventDefault : cudaEventDisableTiming));
}

Event::~Event() {
  if (event_ != nullptr) cudaEventDestroy(event_);
}

void Event::record(StreamHandle stream) { ESM_CUDA(cudaEventRecord(event_, stream)); }

void Event::synchronize() const {
  if (done()) return;
  about_to_wait("an event");
  ESM_CUDA(cudaEventSynchronize(event_));
}

bool Event::done() const {
  const cudaError_t status = cudaEventQuery(event_);
  if (status == cudaErrorNotReady) {
    cudaGetLastError();
    return false;
  }
  ESM_CUDA(status);
  return true;
}

double Event::milliseconds_between(const Event& begin, const Event& end) {
  float ms = 0;
  ESM_CUDA(cudaEventElapsedTime(&ms, begin.event_, end.event_));
  return ms;
}

Stream::Stream() { ESM_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }

Stream::~Stream() {
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

void Stream::synchronize() const {
  about_to_wait("a stream");
  ESM_CUDA(cudaStreamSynchronize(stream_));
}

void Stream::wait(const Event& event) const { ESM_CUDA(cudaStreamWaitEvent(stream_, event.get(), 0)); }

bool is_capturing(StreamHandle stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  ESM_CUDA(cudaStreamIsCapturing(stream, &status));
  return status != cudaStreamCaptureStatusNone;
}

namespace {

struct GraphOwner {
  cudaGraph_t graph = nullptr;
  ~GraphOwner() {
    if (graph != nullptr) cudaGraphDestroy(graph);
  }
};

}  // namespace

Graph Graph::capture(StreamHandle stream, const std::function<void()>& record) {
  ESM_CHECK(stream != nullptr, "the default stream cannot be captured");
  GraphOwner owner;
  ESM_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  try {
    record();
  } catch (...) {
    // Ends the capture, so that the stream is usable again; its own error would hide the first one.
    cudaStreamEndCapture(stream, &owner.graph);
    cudaGetLastError();
    throw;
  }
  ESM_CUDA(cudaStreamEndCapture(stream, &owner.graph));
  Graph result;
  size_t nodes = 0;
  ESM_CUDA(cudaGraphGetNodes(owner.graph, nullptr, &nodes));
  result.nodes_ = static_cast<int64_t>(nodes);
  ESM_CUDA(cudaGraphInstantiate(&result.exec_, owner.graph, 0));
  return result;
}

Graph::~Graph() {
  if (exec_ != nullptr) cudaGraphExecDestroy(exec_);
}

void Graph::launch(StreamHandle stream) const { ESM_CUDA(cudaGraphLaunch(exec_, stream)); }

}  // namespace esm::device
