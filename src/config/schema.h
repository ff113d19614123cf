// A config as flat lists of fields and sections, made by visiting it once.
#pragma once
#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "config/field.h"

namespace esm::config {

struct SchemaField {
  std::string key;  // "optimizer.schedule.warmup_steps"
  FieldRef ref;     // points into the visited config
};

struct SchemaGroup {
  std::string prefix;  // "optimizer.schedule", "" for the whole config
  std::string help;
  std::function<void(Problems&)> cross_check;
  size_t first_field = 0;  // its fields, those of inner groups included: [first_field, end_field)
  size_t end_field = 0;
};

/// Valid as long as the config that was visited.
class Schema {
 public:
  explicit Schema(const std::function<void(Visitor&)>& visit);

  const std::vector<SchemaField>& fields() const { return fields_; }
  /// In order of declaration, outer before inner; the first is the whole config.
  const std::vector<SchemaGroup>& groups() const { return groups_; }

  /// nullptr when there is none.
  const SchemaField* find_field(std::string_view key) const;
  const SchemaGroup* find_group(std::string_view prefix) const;
  /// The map field that `key` names an element of ("data.valid.main" -> data.valid, name "main"), or nullptr.
  const SchemaField* find_map_element(std::string_view key, std::string_view& name) const;

  /// Keys of all fields and sections: what a wrong key may have been meant to be.
  std::vector<std::string> names() const;

 private:
  friend class SchemaBuilder;
  std::vector<SchemaField> fields_;
  std::vector<SchemaGroup> groups_;
  std::map<std::string, size_t, std::less<>> field_index_;
  std::map<std::string, size_t, std::less<>> group_index_;
};

/// "a" + "b" -> "a.b"; an empty side gives the other one.
std::string join_key(std::string_view prefix, std::string_view name);

bool is_map_field(const ValueRef& value);

/// Runs the check of each field and, for groups whose fields are all right, cross_check(). `broken(key)` tells of
/// fields that have no usable value; they are not checked and spoil their groups.
void check_values(const Schema& schema, const std::function<bool(const std::string&)>& broken, Problems& problems);

}  // namespace esm::config
