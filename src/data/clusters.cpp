#include "data/clusters.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <limits>
#include <optional>

#include "base/check.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/units.h"
#include "data/cache_lock.h"
#include "data/cluster_table.h"
#include "data/readers.h"

namespace esm::data {
namespace {

// File: Header, starts uint32 [clusters + 1], members uint32 [members].
struct Header {
  char magic[8] = {'E', 'S', 'M', 'C', 'L', 'U', 'S', '1'};
  uint64_t checksum = 0;  // XXH3-64 of everything behind it
  ClusterCounts counts;
  int64_t sequences = 0, clusters = 0, members = 0;
};

constexpr size_t kHashedFrom = offsetof(Header, counts);

struct Named {
  uint64_t id = 0;
  uint32_t sequence = 0;
  auto operator<=>(const Named&) const = default;
};

// A member that is in the data.
struct Match {
  uint64_t cluster = 0;
  uint32_t sequence = 0;
  auto operator<=>(const Match&) const = default;
};

std::vector<Named> names_of(const Dataset& set) {
  std::vector<Named> names;
  names.reserve(static_cast<size_t>(set.size()));
  set.visit_ids([&](int64_t sequence, std::string_view id) {
    if (!id.empty()) names.push_back({name_hash(id), static_cast<uint32_t>(sequence)});
  });
  std::sort(names.begin(), names.end());
  return names;
}

// Two lists in the order of member and id; fills the counts.
std::vector<Match> match(const std::vector<Membership>& rows, const std::vector<Named>& names, ClusterCounts& counts) {
  std::vector<Match> matches;
  auto name = names.begin();
  for (auto row = rows.begin(); row != rows.end();) {
    const uint64_t member = row->member;
    const auto next = std::find_if(row, rows.end(), [&](const Membership& r) { return r.member != member; });
    while (name != names.end() && name->id < member) ++name;
    const auto end = std::find_if(name, names.end(), [&](const Named& n) { return n.id != member; });
    for (; row != next; ++row)
      for (auto n = name; n != end; ++n) matches.push_back({row->cluster, n->sequence});
    ++counts.named_members;
    counts.missing_members += name == end ? 1 : 0;
    counts.clustered += end - name;
  }
  return matches;
}

int64_t distinct_clusters(const std::vector<Membership>& rows) {
  std::vector<uint64_t> clusters;
  clusters.reserve(rows.size());
  for (const Membership& row : rows) clusters.push_back(row.cluster);
  std::sort(clusters.begin(), clusters.end());
  return std::unique(clusters.begin(), clusters.end()) - clusters.begin();
}

// The bytes of the index.
std::string make_index(const std::vector<std::string>& files, const Dataset& set, const std::function<void()>& tick) {
  if (set.size() > std::numeric_limits<uint32_t>::max())
    fail<DataError>("{}: {} sequences are more than clusters can be drawn from", files.front(), set.size());
  ClusterTable table = read_cluster_tables(files, tick);
  Header header;
  header.counts.rows = std::ssize(table.rows);
  header.sequences = set.size();
  std::vector<Match> matches;
  {
    const std::vector<Named> names = names_of(set);
    std::sort(table.rows.begin(), table.rows.end(), [](const Membership& a, const Membership& b) {
      return std::pair(a.member, a.cluster) < std::pair(b.member, b.cluster);
    });
    table.rows.erase(std::unique(table.rows.begin(), table.rows.end()), table.rows.end());
    matches = match(table.rows, names, header.counts);
    if (matches.empty())
      fail<DataError>(
          "none of the {} members that {} names is among the ids of the {} sequences (the first member is '{}', the id "
          "of the first sequence '{}')",
          header.counts.named_members, files.front(), set.size(), table.first_member, set.id(0));
  }
  if (matches.size() > std::numeric_limits<uint32_t>::max())
    fail<DataError>("{}: {} members are more than clusters may have", files.front(), matches.size());
  std::sort(matches.begin(), matches.end());
  std::vector<uint32_t> starts;
  for (size_t i = 0; i < matches.size(); ++i)
    if (i == 0 || matches[i].cluster != matches[i - 1].cluster) starts.push_back(static_cast<uint32_t>(i));
  header.clusters = std::ssize(starts);
  header.members = std::ssize(matches);
  starts.push_back(static_cast<uint32_t>(matches.size()));
  header.counts.named_clusters = distinct_clusters(table.rows);
  header.counts.dropped_clusters = header.counts.named_clusters - header.clusters;
  header.counts.left_out = set.size() - header.counts.clustered;

  std::string bytes(sizeof header + 4 * (starts.size() + matches.size()), '\0');
  char* out = bytes.data() + sizeof header;
  std::memcpy(out, starts.data(), 4 * starts.size());
  out += 4 * starts.size();
  for (const Match& m : matches) {
    std::memcpy(out, &m.sequence, 4);
    out += 4;
  }
  std::memcpy(bytes.data(), &header, sizeof header);
  header.checksum = hash64(std::as_bytes(std::span(bytes)).subspan(kHashedFrom));
  std::memcpy(bytes.data(), &header, sizeof header);
  return bytes;
}

}  // namespace

ClusterIndex::ClusterIndex(const std::string& path, int64_t sequences) : file_(path) {
  const std::span<const std::byte> bytes = file_.bytes();
  Header header;
  const auto require = [&](bool good) {
    if (!good) fail<DataError>("{}: not an index of clusters of these data, or damaged", path);
  };
  require(bytes.size() >= sizeof header);
  std::memcpy(&header, bytes.data(), sizeof header);
  const int64_t most = static_cast<int64_t>(bytes.size()) / 4;
  require(std::memcmp(header.magic, Header{}.magic, sizeof header.magic) == 0 && header.sequences == sequences &&
          header.clusters > 0 && header.clusters < most && header.members > 0 && header.members < most &&
          bytes.size() == sizeof header + 4 * static_cast<size_t>(header.clusters + 1 + header.members) &&
          hash64(bytes.subspan(kHashedFrom)) == header.checksum);
  const auto* values = reinterpret_cast<const uint32_t*>(bytes.data() + sizeof header);
  starts_ = {values, static_cast<size_t>(header.clusters) + 1};
  members_ = {values + starts_.size(), static_cast<size_t>(header.members)};
  require(starts_.front() == 0 && starts_.back() == members_.size() &&
          std::adjacent_find(starts_.begin(), starts_.end(), std::greater_equal<>()) == starts_.end() &&
          std::all_of(members_.begin(), members_.end(), [&](uint32_t m) { return m < sequences; }));
  counts_ = header.counts;
  fingerprint_ = fmt::format("{:016x}", header.checksum);
}

std::string ClusterIndex::summary() const {
  return fmt::format(
      "{} clusters with {} of the sequences; {} sequences in no cluster are left out; of {} clusters and {} members in "
      "{} rows, {} members are not in the data, {} clusters without any are dropped",
      with_thousands(size()), with_thousands(counts_.clustered), with_thousands(counts_.left_out),
      with_thousands(counts_.named_clusters), with_thousands(counts_.named_members), with_thousands(counts_.rows),
      with_thousands(counts_.missing_members), with_thousands(counts_.dropped_clusters));
}

std::shared_ptr<const ClusterIndex> open_clusters(const std::vector<std::string>& tables, const Dataset& set,
                                                  const DatasetOptions& options) {
  const std::vector<std::string> files = expand_paths(tables);
  Hasher content;
  content.update("clusters/1 " + set.fingerprint());
  for (const std::string& file : files) {
    if (is_stream(file)) fail<DataError>("{}: a table of clusters is read from a file, not from a pipe", file);
    content.update(std::string(format_of(file).name) + hash_file(file));
  }
  const std::string path = (std::filesystem::path(options.cache_dir) / (content.hex() + ".clusters")).string();
  const auto cached = [&]() -> std::shared_ptr<const ClusterIndex> {
    std::error_code error;
    if (!std::filesystem::exists(path, error)) return nullptr;
    try {
      return std::make_shared<const ClusterIndex>(path, set.size());
    } catch (const DataError& damaged) {
      log::warn("the cached index of clusters is made again: {}", damaged.what());
      return nullptr;
    }
  };
  if (auto index = cached()) return index;
  make_folders(options.cache_dir);
  const FileDescriptor lock = cache_lock(path, options.should_stop);
  if (auto index = cached()) return index;
  write_file_atomically(path, make_index(files, set, [&] {
                          if (options.should_stop && options.should_stop())
                            throw PrepareStopped("stopped; nothing was written");
                        }));
  return std::make_shared<const ClusterIndex>(path, set.size());
}

}  // namespace esm::data
