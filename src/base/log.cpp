#include "base/log.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <memory>
#include <mutex>

#include "base/check.h"

namespace esm::log {
namespace {

// The one process-wide object of this program: where its messages go.
struct Sinks {
  std::mutex mutex;
  Level level = Level::kInfo;
  spdlog::logger terminal{"esmtrain", std::make_shared<spdlog::sinks::stderr_sink_st>()};
  std::shared_ptr<spdlog::logger> file;
  std::function<void()> before, after;

  Sinks() {
    terminal.set_level(spdlog::level::trace);
    terminal.set_pattern("%v");
    terminal.flush_on(spdlog::level::trace);
  }
};

Sinks& sinks() {
  static Sinks instance;
  return instance;
}

spdlog::level::level_enum to_spdlog(Level level) {
  switch (level) {
    case Level::kDebug: return spdlog::level::debug;
    case Level::kInfo: return spdlog::level::info;
    case Level::kWarn: return spdlog::level::warn;
    case Level::kError: return spdlog::level::err;
  }
  return spdlog::level::info;
}

const char* prefix(Level level) {
  switch (level) {
    case Level::kDebug: return "debug: ";
    case Level::kInfo: return "";
    case Level::kWarn: return "warning: ";
    case Level::kError: return "error: ";
  }
  return "";
}

}  // namespace

Level parse_level(std::string_view name) {
  if (name == "debug") return Level::kDebug;
  if (name == "info") return Level::kInfo;
  if (name == "warn") return Level::kWarn;
  if (name == "error") return Level::kError;
  fail<ConfigError>("log level '{}' is not one of debug, info, warn, error", name);
}

void set_level(Level level) {
  std::scoped_lock lock(sinks().mutex);
  sinks().level = level;
}

void also_to_file(const std::string& path) {
  std::shared_ptr<spdlog::logger> file;
  try {
    file = std::make_shared<spdlog::logger>("file", std::make_shared<spdlog::sinks::basic_file_sink_st>(path, false));
  } catch (const spdlog::spdlog_ex& e) {
    fail<DataError>("cannot write the log file {}: {}", path, e.what());
  }
  file->set_level(spdlog::level::trace);
  file->set_pattern("%Y-%m-%d %H:%M:%S.%e %v");
  file->flush_on(spdlog::level::trace);
  std::scoped_lock lock(sinks().mutex);
  sinks().file = std::move(file);
}

void set_terminal_hooks(std::function<void()> before, std::function<void()> after) {
  std::scoped_lock lock(sinks().mutex);
  sinks().before = std::move(before);
  sinks().after = std::move(after);
}

void to_file(Level level, std::string_view line) {
  Sinks& out = sinks();
  std::scoped_lock lock(out.mutex);
  if (out.file) out.file->log(to_spdlog(level), "{}{}", prefix(level), line);
}

void write(Level level, std::string_view line) {
  Sinks& out = sinks();
  std::scoped_lock lock(out.mutex);
  if (level < out.level) return;
  if (out.before) out.before();
  out.terminal.log(to_spdlog(level), "{}{}", prefix(level), line);
  if (out.after) out.after();
  if (out.file) out.file->log(to_spdlog(level), "{}{}", prefix(level), line);
}

}  // namespace esm::log
