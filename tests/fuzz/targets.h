// What the fuzzers run: one function a format that takes bytes of a stranger. Bad input must end in that format's own
// error; whatever else leaves a target (another exception, a signal, a leak) is a finding.
//
// driver/libfuzzer.cpp makes one libFuzzer program of each (scripts/check.sh fuzz); replay_test.cpp runs them over the
// kept cases in tests/data/fuzz_cases/NAME/ with any compiler.
#pragma once
#include <array>
#include <cstddef>
#include <string>
#include <string_view>

namespace esm::fuzz {

/// A FASTA file, plain or gzip, through to tokens.
void run_fasta(std::string_view bytes);
/// Byte 0 even: the rest is a CSV file, else a TSV file, plain, gzip or zstd, through to tokens.
void run_table(std::string_view bytes);
/// A YAML config of a training run; one that is accepted must survive being printed and read again.
void run_config(std::string_view bytes);
/// Byte 0 odd: the rest is a whole safetensors file. Else byte 1 is the size of the data, and the rest the JSON header.
void run_safetensors(std::string_view bytes);
/// A manifest without its last line, the hash, which the target adds: no mutation would ever get past it.
void run_manifest(std::string_view bytes);
/// A file of torch.save if it begins like a zip file, else the pickle of one with two storages.
void run_pt(std::string_view bytes);

struct Target {
  const char* name;
  void (*run)(std::string_view bytes);
};
inline constexpr std::array kTargets{Target{"fasta", run_fasta},       Target{"table", run_table},
                                     Target{"config", run_config},     Target{"safetensors", run_safetensors},
                                     Target{"manifest", run_manifest}, Target{"pt", run_pt}};

/// A nameless file in memory: readers that want a path get one, and no disk is touched.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view bytes);
  ~MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  int fd_;
  std::string path_;
};

}  // namespace esm::fuzz
