#include "data/cluster_table.h"

#include <optional>
#include <span>

#include "base/check.h"
#include "base/hash.h"
#include "data/readers.h"
#include "data/table_rows.h"

namespace esm::data {
namespace {

constexpr std::string_view kClusterNames[] = {"cluster", "cluster_id", "ur50_id"};
constexpr std::string_view kMemberNames[] = {"member", "member_id", "ur90_id"};

class MembershipRows : public RowSink {
 public:
  MembershipRows(const std::string& path, ClusterTable& table) : path_(path), table_(table) {}

  void header(const TableRow& row, int64_t line) override {
    header_.emplace(row, path_, line);
    cluster_ = column(kClusterNames, line);
    member_ = column(kMemberNames, line);
  }
  void row(const TableRow& row, int64_t line) override {
    header_->check(row, line);
    const std::string_view cluster = name(row, cluster_, line), member = name(row, member_, line);
    if (table_.rows.empty()) table_.first_member = member;
    table_.rows.push_back({name_hash(cluster), name_hash(member)});
  }

 private:
  size_t column(std::span<const std::string_view> names, int64_t line) const {
    if (const auto found = header_->find_any(names)) return *found;
    fail<DataError>(
        "{}:{}: there is no column '{}'. The columns are {}. A table of clusters begins with a line of names: cluster "
        "and member, separated by {}",
        path_, line, names.front(), header_->quoted_names(),
        path_.find(".csv") != std::string::npos ? "a comma" : "a tab");
  }
  std::string_view name(const TableRow& row, size_t column, int64_t line) const {
    const std::string_view name = trimmed(row[column]);
    if (name.empty()) fail<DataError>("{}:{}: the column '{}' is empty", path_, line, header_->names()[column]);
    return name;
  }

  const std::string& path_;
  ClusterTable& table_;
  std::optional<TableHeader> header_;
  size_t cluster_ = 0, member_ = 0;
};

}  // namespace

uint64_t name_hash(std::string_view name) { return hash64(std::as_bytes(std::span(name))); }

ClusterTable read_cluster_tables(const std::vector<std::string>& files, const std::function<void()>& tick) {
  ClusterTable table;
  for (const std::string& file : files) {
    const Format& format = format_of(file);
    if (!format.has_columns)
      fail<DataError>("{}: a table of clusters is a .csv or .tsv file with the columns cluster and member", file);
    ByteSource source(file, {{}, tick});
    MembershipRows rows(file, table);
    read_rows(source, file, format.name == "tsv" ? '\t' : ',', rows, tick);
  }
  if (table.rows.empty()) fail<DataError>("{}: the table of clusters has no rows", files.front());
  return table;
}

}  // namespace esm::data
