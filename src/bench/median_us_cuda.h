// Median device times.
#pragma once
#include <algorithm>
#include <functional>
#include <vector>

#include "device/cuda_check.h"
#include "device/memory.h"
#include "device/stream.h"

namespace esm::bench {

/// Median microseconds of each body, which queues work on `stream`. One run of each untimed, then `rounds` rounds of
/// all in turn, so that clock and temperature treat them alike; before each run `flush` is overwritten.
inline std::vector<double> median_us(device::StreamHandle stream, int rounds, const device::DeviceBuffer& flush,
                                     const std::vector<std::function<void()>>& bodies) {
  std::vector<std::vector<double>> us(bodies.size());
  std::vector<device::Event> begin, end;
  for (size_t i = 0; i < bodies.size(); ++i) {
    begin.emplace_back(device::Event::Timing::kOn);
    end.emplace_back(device::Event::Timing::kOn);
  }
  for (int round = -1; round < rounds; ++round) {
    for (size_t i = 0; i < bodies.size(); ++i) {
      if (flush.bytes() > 0) ESM_CUDA(cudaMemsetAsync(flush.get(), 0, static_cast<size_t>(flush.bytes()), stream));
      begin[i].record(stream);
      bodies[i]();
      end[i].record(stream);
    }
    end.back().synchronize();
    for (size_t i = 0; i < bodies.size() && round >= 0; ++i)
      us[i].push_back(1e3 * device::Event::milliseconds_between(begin[i], end[i]));
  }
  std::vector<double> medians;
  for (auto& values : us) {
    std::sort(values.begin(), values.end());
    medians.push_back(values[values.size() / 2]);
  }
  return medians;
}

}  // namespace esm::bench
