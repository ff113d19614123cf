// Logging for people: plain lines on standard error. The only file that knows spdlog is log.cpp.
#pragma once
#include <fmt/core.h>

#include <functional>
#include <string>
#include <string_view>

namespace esm::log {

enum class Level { kDebug, kInfo, kWarn, kError };

/// Parses "debug", "info", "warn" or "error"; throws ConfigError for anything else.
Level parse_level(std::string_view name);

/// Lines below `level` are dropped. Default: kInfo.
void set_level(Level level);

/// Also appends every line, with date and time, to `path` (kept open until the process ends or the next call).
/// Throws DataError when the file cannot be opened.
void also_to_file(const std::string& path);

/// Called before and after each line goes to the terminal, so that a live progress line can step aside.
/// Empty functions remove the hooks.
void set_terminal_hooks(std::function<void()> before, std::function<void()> after);

/// One line for that file alone, if there is one.
void to_file(Level level, std::string_view line);

/// Writes one line. Thread-safe.
void write(Level level, std::string_view line);

template <class... Args>
void debug(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::kDebug, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::kInfo, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void warn(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::kWarn, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void error(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::kError, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace esm::log
