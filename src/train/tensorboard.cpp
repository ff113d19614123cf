#include "train/tensorboard.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <vector>

#include "base/check.h"
#include "base/crc32c.h"

namespace esm::train {
namespace {

constexpr std::string_view kPrefix = "events.out.tfevents.";
constexpr size_t kFrameBytes = 16;  // of a record: length (8), its checksum (4); data; their checksum (4)

// Fields of event.proto and summary.proto, and how protocol buffers mark them on the wire.
enum Wire : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };
enum EventField : uint32_t { kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7 };
constexpr uint32_t kSummaryValue = 1, kValueTag = 1, kValueSimple = 2, kSessionStatus = 1, kStart = 1;

template <class T>
void put_little_endian(std::string& out, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) out += static_cast<char>((value >> (8 * i)) & 0xFF);
}

void put_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>((value & 0x7F) | 0x80);
  out += static_cast<char>(value);
}

void put_key(std::string& out, uint32_t field, Wire wire) { put_varint(out, field << 3 | wire); }

void put_bytes(std::string& out, uint32_t field, std::string_view bytes) {
  put_key(out, field, kBytes);
  put_varint(out, bytes.size());
  out += bytes;
}

std::string encode(std::span<const Scalar> scalars) {
  std::string summary;
  for (const Scalar& scalar : scalars) {
    std::string value;
    put_bytes(value, kValueTag, scalar.tag);
    put_key(value, kValueSimple, kFixed32);
    put_little_endian(value, std::bit_cast<uint32_t>(static_cast<float>(scalar.value)));
    put_bytes(summary, kSummaryValue, value);
  }
  return summary;
}

uint32_t masked_crc(std::string_view bytes) {
  const uint32_t crc = crc32c(bytes);
  return (crc >> 15 | crc << 17) + 0xA282EAD8;
}

double now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

std::vector<std::string> event_files(const std::string& folder) {
  std::vector<std::string> paths;
  if (!std::filesystem::exists(folder)) return paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().filename().string().starts_with(kPrefix)) paths.push_back(entry.path().string());
  return paths;
}

// The seconds in the name of the newest event file; none in a folder without such files.
std::optional<int64_t> newest(const std::string& folder) {
  std::optional<int64_t> found;
  for (const std::string& path : event_files(folder)) {
    const size_t digits = path.rfind(kPrefix) + kPrefix.size();
    int64_t seconds = 0;
    std::from_chars(path.data() + digits, path.data() + path.size(), seconds);
    found = std::max(found.value_or(0), seconds);
  }
  return found;
}

uint64_t little_endian(std::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = bytes.size(); i > 0; --i) value = value << 8 | static_cast<unsigned char>(bytes[i - 1]);
  return value;
}

// The first whole record of `bytes`, with its frame; empty when it is torn or damaged.
std::string_view first_record(std::string_view bytes) {
  if (bytes.size() < kFrameBytes || little_endian(bytes.substr(8, 4)) != masked_crc(bytes.substr(0, 8))) return {};
  const uint64_t length = little_endian(bytes.substr(0, 8));
  if (length > bytes.size() - kFrameBytes) return {};
  const std::string_view data = bytes.substr(12, length);
  return little_endian(bytes.substr(12 + length, 4)) == masked_crc(data) ? bytes.substr(0, length + kFrameBytes)
                                                                         : std::string_view{};
}

// The step of an event that encode() wrote: the field behind the time.
int64_t step_of(std::string_view record) {
  constexpr size_t kStepAt = 12 + 1 + 8 + 1;
  uint64_t step = 0;
  for (size_t i = kStepAt, shift = 0; i < record.size() && shift < 64; ++i, shift += 7) {
    const auto byte = static_cast<unsigned char>(record[i]);
    step |= uint64_t{byte & 0x7FU} << shift;
    if (byte < 0x80) break;
  }
  return static_cast<int64_t>(step);
}

std::string host() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 && name[0] != '\0' ? name.data() : "localhost";
}

// TensorBoard reads the files of a folder in the order of their names, so the seconds must rise from start to start.
std::string new_file(const std::string& folder, const std::optional<int64_t>& newest) {
  const int64_t seconds = std::max(static_cast<int64_t>(now()), newest.value_or(-1) + 1);
  return fmt::format("{}/{}{:010}.{}.{}", folder, kPrefix, seconds, host(), ::getpid());
}

void write(FileAppender& file, const Event& event) { file.append(tf_record(encode(event))); }

void write(FileAppender& file, int64_t step, const std::vector<Scalar>& scalars) {
  write(file, {.wall_time = now(), .step = step, .file_version = {}, .scalars = scalars});
}

FileAppender start(const std::string& folder, int64_t keep_through_step) {
  make_folders(folder);
  cut_event_files(folder, keep_through_step);
  const auto before = newest(folder);
  FileAppender file(new_file(folder, before));
  write(file, {.wall_time = now(), .step = 0, .file_version = "brain.Event:2", .scalars = {}});
  if (before.has_value())
    write(
        file,
        {.wall_time = now(), .step = keep_through_step + 1, .file_version = {}, .scalars = {}, .session_start = true});
  return file;
}

}  // namespace

void cut_event_files(const std::string& folder, int64_t keep_through_step) {
  for (const std::string& path : event_files(folder)) {
    const std::string text = read_text_file(path);
    std::string kept;
    std::string_view rest = text;
    for (auto record = first_record(rest); !record.empty(); record = first_record(rest)) {
      if (step_of(record) <= keep_through_step) kept += record;
      rest.remove_prefix(record.size());
    }
    if (kept != text) write_file_atomically(path, kept);
  }
}

std::string encode(const Event& event) {
  std::string out;
  put_key(out, kWallTime, kFixed64);
  put_little_endian(out, std::bit_cast<uint64_t>(event.wall_time));
  put_key(out, kStep, kVarint);
  put_varint(out, static_cast<uint64_t>(event.step));
  if (!event.file_version.empty()) put_bytes(out, kFileVersion, event.file_version);
  if (!event.scalars.empty()) put_bytes(out, kSummary, encode(event.scalars));
  if (event.session_start) {
    std::string status;
    put_key(status, kSessionStatus, kVarint);
    put_varint(status, kStart);
    put_bytes(out, kSessionLog, status);
  }
  return out;
}

std::string tf_record(std::string_view data) {
  std::string out;
  put_little_endian(out, static_cast<uint64_t>(data.size()));
  put_little_endian(out, masked_crc(out));
  out += data;
  put_little_endian(out, masked_crc(data));
  return out;
}

TensorBoardLog::TensorBoardLog(const std::string& folder, int64_t keep_through_step)
    : file_(start(folder, keep_through_step)) {}

void TensorBoardLog::append(const StepMetrics& row) {
  write(file_, row.step,
        {{"train/loss", row.loss},
         {"train/grad_norm", row.grad_norm},
         {"train/lr", row.lr},
         {"train/tokens_per_s", row.tokens_per_s()}});
}

void TensorBoardLog::append(const ValidationRow& row) {
  std::vector<Scalar> scalars;
  for (const auto& [name, m] : row.sets) {
    scalars.push_back({fmt::format("valid/{}/loss", name), m.loss});
    scalars.push_back({fmt::format("valid/{}/perplexity", name), m.perplexity});
    scalars.push_back({fmt::format("valid/{}/accuracy", name), m.accuracy});
  }
  for (const data::DrawnSoFar& set : row.drawn) {
    scalars.push_back({fmt::format("drawn/{}/tokens", set.name), static_cast<double>(set.tokens)});
    scalars.push_back({fmt::format("drawn/{}/epochs", set.name), set.epochs});
  }
  write(file_, row.step, scalars);
}

void TensorBoardLog::append(const StepStatistics& row) {
  std::vector<Scalar> scalars;
  for (const TensorStatistics& t : row.tensors) {
    const std::string tag = fmt::format("fp8/{}.{}/", t.layer, t.tensor);
    scalars.push_back({tag + "amax", t.amax});
    scalars.push_back({tag + "scale", t.scale});
    scalars.push_back({tag + "underflow", t.underflow});
    scalars.push_back({tag + "overflow", t.overflow});
  }
  for (const LayerStatistics& l : row.layers) {
    const std::string tag = fmt::format("fp8/{}/", l.layer);
    scalars.push_back({tag + "mean", l.mean});
    scalars.push_back({tag + "variance", l.variance});
    scalars.push_back({tag + "grad_norm", l.grad_norm});
  }
  write(file_, row.step, scalars);
}

}  // namespace esm::train
