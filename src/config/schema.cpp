#include "config/schema.h"

#include <utility>

#include "base/check.h"
#include "config/value.h"

namespace esm::config {

class SchemaBuilder : public Visitor {
 public:
  explicit SchemaBuilder(Schema& schema) : schema_(schema) {}

  void field(const FieldRef& ref) override {
    const std::string key = join_key(prefix(), ref.name);
    const bool is_new = schema_.field_index_.emplace(key, schema_.fields_.size()).second;
    ESM_CHECK(is_new, "config field {} is declared twice", key);
    schema_.fields_.push_back({key, ref});
  }
  void begin_group(const GroupRef& group) override {
    const std::string key = join_key(prefix(), group.name);
    schema_.group_index_.emplace(key, schema_.groups_.size());
    open_.push_back(schema_.groups_.size());
    schema_.groups_.push_back({key, std::string(group.help), group.cross_check, schema_.fields_.size(), 0});
  }
  void end_group() override {
    schema_.groups_[open_.back()].end_field = schema_.fields_.size();
    open_.pop_back();
  }

 private:
  std::string_view prefix() const { return open_.empty() ? std::string_view() : schema_.groups_[open_.back()].prefix; }

  Schema& schema_;
  std::vector<size_t> open_;
};

Schema::Schema(const std::function<void(Visitor&)>& visit) {
  SchemaBuilder builder(*this);
  visit(builder);
}

const SchemaField* Schema::find_field(std::string_view key) const {
  const auto found = field_index_.find(key);
  return found == field_index_.end() ? nullptr : &fields_[found->second];
}

const SchemaGroup* Schema::find_group(std::string_view prefix) const {
  const auto found = group_index_.find(prefix);
  return found == group_index_.end() ? nullptr : &groups_[found->second];
}

const SchemaField* Schema::find_map_element(std::string_view key, std::string_view& name) const {
  for (size_t dot = key.find('.'); dot != std::string_view::npos; dot = key.find('.', dot + 1)) {
    const SchemaField* field = find_field(key.substr(0, dot));
    if (field == nullptr || !is_map_field(field->ref.value)) continue;
    name = key.substr(dot + 1);
    return field;
  }
  return nullptr;
}

std::vector<std::string> Schema::names() const {
  std::vector<std::string> result;
  for (const SchemaField& field : fields_) result.push_back(field.key);
  for (const SchemaGroup& group : groups_)
    if (!group.prefix.empty()) result.push_back(group.prefix);
  return result;
}

std::string join_key(std::string_view prefix, std::string_view name) {
  if (prefix.empty() || name.empty()) return std::string(prefix) + std::string(name);
  return fmt::format("{}.{}", prefix, name);
}

bool is_map_field(const ValueRef& value) {
  return std::holds_alternative<std::map<std::string, double>*>(value) ||
         std::holds_alternative<std::map<std::string, std::string>*>(value) ||
         std::holds_alternative<std::map<std::string, std::vector<std::string>>*>(value);
}

void check_values(const Schema& schema, const std::function<bool(const std::string&)>& broken, Problems& problems) {
  std::vector<bool> bad;
  for (const SchemaField& field : schema.fields()) {
    bad.push_back(broken(field.key));
    if (bad.back() || !field.ref.check) continue;
    const std::string expected = field.ref.check();
    if (expected.empty()) continue;
    bad.back() = true;
    problems.add(field.key, "expected {}, found {}", expected, value_text(field.ref.value));
  }
  for (const SchemaGroup& group : schema.groups()) {
    if (!group.cross_check) continue;
    bool all_good = true;
    for (size_t i = group.first_field; i < group.end_field; ++i) all_good &= !bad[i];
    if (!all_good) continue;
    Problems inner;
    group.cross_check(inner);
    for (auto& [key, what] : inner.items) problems.items.emplace_back(join_key(group.prefix, key), what);
  }
}

namespace detail {

void run_checks(const std::function<void(Visitor&)>& visit, Problems& problems) {
  check_values(
      Schema(visit), [](const std::string&) { return false; }, problems);
}

}  // namespace detail
}  // namespace esm::config
