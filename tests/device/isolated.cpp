#include "tests/device/isolated.h"

#include <sys/wait.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <cstring>

#include "base/check.h"
#include "device/cuda_check.h"
#include "device/stream.h"

namespace esm::test {
namespace {

constexpr const char* kFirstPart = "ESM_TEST_FIRST_PART";  // set for the child
constexpr unsigned kPartSeconds = 90;

/// Everything goes to the parent, which prints it. A line that begins with '@' is for itself.
int run_child(const std::vector<Part>& parts, size_t first) {
  Report report(Report::Output::kRelayed);
  const device::Stream stream;
  for (size_t i = first; i < parts.size(); ++i) {
    fmt::print("@part\t{}\n", i);
    std::fflush(stdout);
    alarm(kPartSeconds);
    try {
      parts[i].run(report, stream.get());
    } catch (const std::exception& error) {
      report.add(parts[i].name, false, error.what());
    }
    const cudaError_t left = cudaDeviceSynchronize();
    alarm(0);
    if (left == cudaSuccess) continue;
    report.note(parts[i].name, fmt::format("left the device unusable ({}): a new process", cudaGetErrorName(left)));
    _exit(3);  // no destructors: they would use the device
  }
  fmt::print("@end\n");
  return report.failed() ? 1 : 0;
}

std::string describe(int status) {
  if (!WIFSIGNALED(status)) return fmt::format("the process ended with code {}", WEXITSTATUS(status));
  if (WTERMSIG(status) == SIGALRM) return fmt::format("took more than {} s", kPartSeconds);
  return fmt::format("the process ended with signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)));
}

struct Fields {
  std::string_view kind, name, detail;
};
Fields split(std::string_view line) {
  const size_t a = line.find('\t'), b = a == line.npos ? a : line.find('\t', a + 1);
  if (a == line.npos) return {.kind = line};
  if (b == line.npos) return {.kind = line.substr(0, a), .name = line.substr(a + 1)};
  return {.kind = line.substr(0, a), .name = line.substr(a + 1, b - a - 1), .detail = line.substr(b + 1)};
}

struct Child {
  bool started = false, finished = false;
  size_t last_part = 0;  // begun
  bool failed = false;   // that part, by its own report
  int status = 0;
};

Child run_from(size_t first, char** argv, Report& report) {
  int ends[2];
  ESM_CHECK(pipe(ends) == 0, "no pipe to a child process");
  setenv(kFirstPart, std::to_string(first).c_str(), 1);
  std::fflush(stdout);
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(ends[1], STDOUT_FILENO);
    close(ends[0]);
    close(ends[1]);
    execv("/proc/self/exe", argv);
    _exit(127);
  }
  unsetenv(kFirstPart);
  close(ends[1]);
  ESM_CHECK(pid > 0, "no child process");
  Child child;
  std::FILE* from = fdopen(ends[0], "r");
  char* text = nullptr;
  size_t capacity = 0;
  for (ssize_t n; (n = getline(&text, &capacity, from)) > 0;) {
    if (text[n - 1] == '\n') --n;
    const std::string_view line(text, static_cast<size_t>(n));
    const Fields f = split(line);
    if (f.kind == "@part") {
      std::from_chars(f.name.data(), f.name.data() + f.name.size(), child.last_part);
      child.started = true;
      child.failed = false;
    } else if (f.kind == "@end") {
      child.finished = true;
    } else if (f.kind == "@ok" || f.kind == "@FAIL") {
      report.add(std::string(f.name), f.kind == "@ok", std::string(f.detail));
      child.failed = child.failed || f.kind == "@FAIL";
    } else if (f.kind == "@note") {
      report.note(std::string(f.name), std::string(f.detail));
    } else {
      fmt::print("{}\n", line);
      std::fflush(stdout);
    }
  }
  std::free(text);
  std::fclose(from);
  waitpid(pid, &child.status, 0);
  return child;
}

}  // namespace

bool in_child() { return std::getenv(kFirstPart) != nullptr; }

int run_isolated(const char* program, char** argv, const std::vector<Part>& parts, uint64_t seed) {
  if (in_child()) return run_child(parts, std::strtoull(std::getenv(kFirstPart), nullptr, 10));
  setenv("ESM_TEST_SEED", std::to_string(seed).c_str(), 1);
  Report report(Report::Output::kPrinted);
  for (size_t first = 0; first < parts.size();) {
    const Child child = run_from(first, argv, report);
    if (child.finished) break;
    if (!child.started) {
      report.add("a child process begins", false, describe(child.status));
      break;
    }
    if (!child.failed) report.add(parts[child.last_part].name, false, describe(child.status));
    first = child.last_part + 1;
  }
  return report.finish(program);
}

}  // namespace esm::test
