// esmtrain: the table of subcommands, and the only place that turns errors into messages and exit codes.
#include <fcntl.h>
#include <malloc.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <string>
#include <string_view>

#include "app/commands.h"
#include "app/subcommands.h"
#include "app/version.h"
#include "base/check.h"
#include "base/files.h"
#include "base/log.h"

namespace esm::app {
namespace {

constexpr std::string_view kSummary =
    "esmtrain trains packed protein Transformers (ESM-2) from a YAML config: FASTA in, checkpoints and Hugging Face "
    "folders out.";

constexpr std::array kCommands{
    Subcommand{"train", "train a model from a config, or resume it", cmd_train},
    Subcommand{"eval", "loss, perplexity and accuracy of a checkpoint on a data set", cmd_eval},
    Subcommand{"data", "turn sequence files into shards of tokens, and look into them", cmd_data},
    Subcommand{"convert", "convert checkpoints: Hugging Face, NVIDIA, native", cmd_convert},
    Subcommand{"inspect", "say what a model on disk is, and how two differ", cmd_inspect},
    Subcommand{"plan", "predict memory, arithmetic and disk of a run", cmd_plan},
    Subcommand{"bench", "measure the speed of the training step and its parts", cmd_bench},
    Subcommand{"doctor", "check that this machine computes right", cmd_doctor},
    Subcommand{"config", "show, check and explain configs", cmd_config},
    Subcommand{"report", "tables and pictures of what a run has recorded", cmd_report},
};

/// Fresh pages of a large block cost more than the arithmetic on them: on the CPUs we measured, operators ran 2 to 9
/// times slower into memory that the allocator had just mapped. glibc maps and unmaps every block above 32 MiB anew and
/// gives the top of the heap back; with these limits it keeps what it has got. LibTorch asks for huge pages when this
/// variable is set: some 5 % of a training step, see DECISIONS 31. Whoever sets it to 0 has it so.
void keep_freed_memory() {
  constexpr int kLimitBytes = 1 << 30;
  mallopt(M_MMAP_THRESHOLD, kLimitBytes);
  mallopt(M_TRIM_THRESHOLD, kLimitBytes);
  ::setenv("THP_MEM_ALLOC_ENABLE", "1", 0);
}

int run(int argc, char** argv) {
  const std::string_view first = argc > 1 ? argv[1] : "";
  if (first == "--version" || first == "version") {
    std::fputs(version_text().c_str(), stdout);
    return 0;
  }
  return run_subcommand("esmtrain", kSummary, kCommands, argc, argv);
}

/// A program that is started without one of its three standard streams would give its number to the next file that it
/// opens, and print into that. Reading and writing fail on these instead; messages go nowhere.
void fill_standard_streams() {
  constexpr std::array kModes{O_WRONLY, O_RDONLY, O_RDWR};
  for (int fd = 0; fd < 3; ++fd)
    if (::fcntl(fd, F_GETFD) < 0 && errno == EBADF && ::open("/dev/null", kModes[static_cast<size_t>(fd)]) != fd)
      return;
}

/// What was printed is still in memory; a full disk or a closed pipe shows here at the latest.
void require_output() {
  errno = 0;
  const bool failed_before = std::ferror(stdout) != 0;
  if (std::fflush(stdout) == 0 && !failed_before) return;
  fail<Error>("cannot write to standard output: {}", errno == 0 ? "the disk is full, or it was closed" : errno_text());
}

/// Names out of files of strangers stand in messages; none of them may steer the terminal.
std::string without_controls(std::string text) {
  for (char& c : text)
    if ((static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') || c == 0x7F) c = '?';
  return text;
}

/// Exceptions of libraries carry a stack trace behind the first paragraph.
std::string message_of(const std::exception& e) {
  const std::string text = e.what();
  const std::string message = text.substr(0, text.find("\nException raised from"));
  const bool no_memory =
      message.find("can't allocate memory") != std::string::npos || message.find("out of memory") != std::string::npos;
  return no_memory ? "out of memory: " + message : message;
}

}  // namespace
}  // namespace esm::app

int main(int argc, char** argv) {
  esm::app::keep_freed_memory();
  int code = 1;
  std::string message;
  try {
    esm::app::fill_standard_streams();
    code = esm::app::run(argc, argv);
    esm::app::require_output();
    return code;
  } catch (const esm::Error& e) {
    code = e.exit_code();
    message = e.what();
  } catch (const std::bad_alloc&) {
    message = "out of memory; use a smaller model or batch, or a machine with more memory";
  } catch (const std::exception& e) {
    message = esm::app::message_of(e);
  }
  std::fflush(stdout);
  message = esm::app::without_controls(message);
  esm::log::to_file(esm::log::Level::kError, message);  // a run says in its own log why it ended
  // Standard error may be a full disk too; the exit code tells then.
  std::fputs(fmt::format("esmtrain: error: {}\n", message).c_str(), stderr);
  return code;
}
