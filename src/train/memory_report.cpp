#include "train/memory_report.h"

#include <new>

#include "base/check.h"
#include "base/units.h"
#include "device/memory.h"

namespace esm::train {
namespace {

constexpr std::string_view kParameters = "parameters: ";

int64_t parameter_bytes(const MemoryPlan& plan) {
  int64_t bytes = 0;
  for (const ops::MemoryPart& part : plan.parts)
    if (part.name.starts_with(kParameters)) bytes += part.bytes;
  return bytes;
}

std::string row(std::string_view name, int64_t bytes, const std::string& note) {
  return fmt::format("  {:<38} {:>10}{}{}\n", name, human_bytes(bytes), note.empty() ? "" : "  ", note);
}

std::string_view recompute_name(size_t index) { return enum_names(nn::Recompute{})[index]; }

std::string first_line_until(std::string text, std::string_view end) {
  text = text.substr(0, text.find('\n'));
  const size_t at = text.find(end);
  return at == std::string::npos ? text : text.substr(0, at + end.size());
}

std::string fits_text(const MemoryUser& user, const PlanPlace& place) {
  const Fits fits = what_fits(user.config, place, user.use);
  const std::string start = fmt::format("Into {} ({}) would fit, as data.tokens_per_batch at most:", place.name,
                                        human_bytes(place.memory_bytes));
  if (user.use == Use::kEvaluation && fits[0] > 0) return fmt::format("{} {}", start, with_thousands(fits[0]));
  std::string text;
  for (size_t i = 0; i < fits.size(); ++i)
    if (fits[i] > 0)
      text += fmt::format("{} {} with train.recompute: {}", text.empty() ? "" : ",", with_thousands(fits[i]),
                          recompute_name(i));
  if (!text.empty()) return start + text;
  return fmt::format(
      "Into {} ({}) this model does not fit with any data.tokens_per_batch that holds data.max_tokens ({}): "
      "take a smaller model, or a device with more memory",
      place.name, human_bytes(place.memory_bytes), user.config.data.max_tokens);
}

}  // namespace

std::string memory_table(const MemoryPlan& plan) {
  std::string text;
  for (const ops::MemoryPart& part : plan.parts)
    if (part.bytes > 0)
      text +=
          row(part.name, part.bytes,
              fmt::format("{:4.1f} %", 100.0 * static_cast<double>(part.bytes) / static_cast<double>(plan.step_bytes)));
  text += row("sum: in use during the steps", plan.step_bytes, "");
  if (plan.start_bytes > 0) text += row("in the first step, GEMMs are timed", plan.start_bytes, "");
  return text;
}

std::string memory_line(const MemoryPlan& plan) {
  int64_t own = parameter_bytes(plan);
  return fmt::format("{} predicted, {} of it parameters, gradients and optimizer states (by part: esmtrain plan)",
                     human_bytes(plan.step_bytes), human_bytes(own));
}

std::string out_of_memory_text(const std::string& reason, const MemoryUser& user, const PlanPlace& place) {
  const MemoryPlan plan = plan_memory(user.config, place, user.use);
  std::string text = fmt::format("{}\nPredicted for data.tokens_per_batch: {}, train.recompute: {}\n{}", reason,
                                 user.config.data.tokens_per_batch,
                                 recompute_name(static_cast<size_t>(user.config.train.recompute)), memory_table(plan));
  if (plan.peak_bytes() <= place.memory_bytes)
    text += fmt::format("{} has {}: other programs may hold the rest\n", place.name, human_bytes(place.memory_bytes));
  return text + fits_text(user, place);
}

std::string out_of_memory_reason(const std::exception& error) {
  const std::string text = error.what();
  if (dynamic_cast<const device::OutOfMemory*>(&error) != nullptr) return text;
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return "out of memory: the host has no more";
  // LibTorch goes on about its own settings.
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr ||
      text.find("CUDA out of memory") != std::string::npos)
    return "out of device memory: " + first_line_until(text, "is free.");
  constexpr std::string_view kCpuAllocator = "DefaultCPUAllocator: ";
  if (const size_t at = text.find(kCpuAllocator); at != std::string::npos)
    return "out of memory: " + first_line_until(text.substr(at + kCpuAllocator.size()), " bytes.");
  return "";
}

void rethrow_out_of_memory(const std::exception& error, const MemoryUser& user) {
  const std::string reason = out_of_memory_reason(error);
  if (reason.empty()) return;
  fail<DeviceError>("{}", out_of_memory_text(reason, user, present_place(user.config)));
}

}  // namespace esm::train
