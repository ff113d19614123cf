// Tables of clusters: which sequence belongs to which.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace esm::data {

/// One row: "member belongs to cluster", both as XXH3-64 of their names (among 200 million names two meet with a
/// probability of 0.1 %).
struct Membership {
  uint64_t cluster = 0;
  uint64_t member = 0;
  auto operator<=>(const Membership&) const = default;
};

uint64_t name_hash(std::string_view name);

struct ClusterTable {
  std::vector<Membership> rows;
  std::string first_member;  // for messages
};

/// Reads CSV or TSV files (plain, gzip or zstd) with a header, and in it the columns cluster (or cluster_id, ur50_id)
/// and member (or member_id, ur90_id). Blanks around names do not count. Calls `tick` about once a MiB.
/// Throws DataError with path and line: no such column, an empty name, another number of fields, no row; also for what
/// is no table.
ClusterTable read_cluster_tables(const std::vector<std::string>& files, const std::function<void()>& tick);

}  // namespace esm::data
