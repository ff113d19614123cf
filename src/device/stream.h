// Owners of CUDA streams, events and executable graphs. In a build without CUDA their constructors throw DeviceError.
#pragma once
#include <cstdint>
#include <functional>

#include "device/handles.h"

namespace esm::device {

/// While one lives, Event::synchronize() and Stream::synchronize() of this thread are InternalErrors: for tests that a
/// step queues all its work without waiting for the device.
class ForbidWaiting {
 public:
  ForbidWaiting();
  ~ForbidWaiting();
  ForbidWaiting(const ForbidWaiting&) = delete;
  ForbidWaiting& operator=(const ForbidWaiting&) = delete;
};

/// A point in a stream's work. Move-only.
class Event {
 public:
  enum class Timing { kOff, kOn };
  explicit Event(Timing timing = Timing::kOff);
  ~Event();
  Event(Event&& other) noexcept : event_(other.event_) { other.event_ = nullptr; }
  Event& operator=(Event&&) = delete;

  EventHandle get() const { return event_; }
  void record(StreamHandle stream);
  /// Blocks the host until the recorded work is done.
  void synchronize() const;
  /// True when the recorded work is done; never blocks.
  bool done() const;
  /// Device time between two events made with Timing::kOn, both done.
  static double milliseconds_between(const Event& begin, const Event& end);

 private:
  EventHandle event_ = nullptr;
};

/// A queue of device work on the current device that does not wait for the default stream. Move-only.
class Stream {
 public:
  Stream();
  ~Stream();
  Stream(Stream&& other) noexcept : stream_(other.stream_) { other.stream_ = nullptr; }
  Stream& operator=(Stream&&) = delete;

  StreamHandle get() const { return stream_; }
  /// Blocks the host until all queued work is done.
  void synchronize() const;
  /// Work queued from now on waits for `event`.
  void wait(const Event& event) const;

 private:
  StreamHandle stream_ = nullptr;
};

/// True while calls on `stream` are recorded into a graph and not run.
bool is_capturing(StreamHandle stream);

/// Device work recorded once and replayed as a whole. Move-only.
class Graph {
 public:
  /// Runs `record`, which queues work on `stream` (not the default stream) and on streams that it makes wait for it;
  /// nothing of it runs. Other threads may use the device meanwhile. Memory that LibTorch's allocator hands out inside
  /// `record` needs a private pool: see ops/graph_pool_cuda.h.
  static Graph capture(StreamHandle stream, const std::function<void()>& record);
  ~Graph();
  Graph(Graph&& other) noexcept : exec_(other.exec_), nodes_(other.nodes_) { other.exec_ = nullptr; }
  Graph& operator=(Graph&&) = delete;

  void launch(StreamHandle stream) const;
  /// Kernels, copies and so on in the graph.
  int64_t nodes() const { return nodes_; }

 private:
  Graph() = default;
  GraphExecHandle exec_ = nullptr;
  int64_t nodes_ = 0;
};

}  // namespace esm::device
