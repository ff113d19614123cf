// Declaring configuration fields, once, beside their user:
//
//   struct OptimizerConfig {
//     ESM_CONFIG(OptimizerConfig)
//     double lr = 4e-4;
//     ESM_FIELD(lr, "Peak learning rate.", config::positive(), config::Resume::kWarn)
//     ScheduleConfig schedule;
//     ESM_GROUP(schedule, "Learning rate over time.")
//   };
//
// From these two lines a field come: reading YAML, `--set a.b=c` and `--a.b c`, help, validation, `config show`, the
// reference page, the copy in the manifest and the resume diff (config/config.h). A struct may add
// `void cross_check(config::Problems& problems) const` for rules over several fields; it is called only when every
// field below the struct is acceptable by itself, so it may divide by what is declared positive. Between the first and
// the last ESM_FIELD of a struct there is no room for another ESM_CONFIG struct (a static_assert says so). Defaults
// must be finite.
#pragma once
#include <fmt/core.h>

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace esm::config {

/// What a resume does when the value differs from the checkpoint's: kFree: takes the new value, listed at info level;
/// kWarn: takes it with a warning (the run is no longer the same experiment); kFixed: refuses.
enum class Resume { kFree, kWarn, kFixed };

/// An enum field, type-erased. Names come from `constexpr auto enum_names(E)`, found by argument-dependent lookup: an
/// array of names in the order of the enumerators 0, 1, 2, ...
struct EnumRef {
  std::vector<std::string_view> names;
  std::function<size_t()> get;
  std::function<void(size_t)> set;
};

/// Pointer to a field's value. optional<T>: the key may be absent or `null`. map<string, double>: named numbers.
/// map<string, string>: named texts; a number counts as text, and a list as its elements with ", " between them.
/// map<string, vector<string>>: named lists of paths; a single path or a list without names is accepted under the
/// name given by FieldRef::default_name.
using ValueRef =
    std::variant<bool*, int64_t*, double*, std::string*, std::optional<int64_t>*, std::optional<double>*,
                 std::vector<int64_t>*, std::vector<std::string>*, std::map<std::string, double>*,
                 std::map<std::string, std::string>*, std::map<std::string, std::vector<std::string>>*, EnumRef>;

struct FieldRef {
  std::string_view name;
  ValueRef value;
  std::string_view help;
  Resume resume = Resume::kFree;
  /// Empty when the value is acceptable, else what is expected: "a number above 0".
  std::function<std::string()> check;
  /// The same expectation in words for help and reference ("" when anything goes).
  std::string expectation;
  /// Units or other hints are part of `help`.
  std::string_view default_name = "default";
};

/// Collects what cross_check() finds: key path below the struct, and what is wrong.
class Problems {
 public:
  template <class... Args>
  void add(std::string_view key, fmt::format_string<Args...> format, Args&&... args) {
    items.emplace_back(std::string(key), fmt::format(format, std::forward<Args>(args)...));
  }
  std::vector<std::pair<std::string, std::string>> items;
};

struct GroupRef {
  std::string_view name;  // "" for the whole config
  std::string_view help;
  /// The struct's own cross_check(), not that of groups inside; empty when it has none.
  std::function<void(Problems&)> cross_check;
};

class Visitor {
 public:
  virtual ~Visitor() = default;
  virtual void field(const FieldRef& field) = 0;
  virtual void begin_group(const GroupRef& group) = 0;
  virtual void end_group() = 0;
};

/// A check: a predicate and its words.
template <class Predicate>
struct Rule {
  std::string words;
  Predicate holds;
};
template <class Predicate>
Rule(std::string, Predicate) -> Rule<Predicate>;

inline auto positive() {
  return Rule{"a number above 0", [](auto v) { return v > 0; }};
}
inline auto at_least(double low) {
  return Rule{fmt::format("at least {}", low), [low](auto v) { return static_cast<double>(v) >= low; }};
}
inline auto between(double low, double high) {
  return Rule{fmt::format("from {} to {}", low, high),
              [low, high](auto v) { return static_cast<double>(v) >= low && static_cast<double>(v) <= high; }};
}
inline auto multiple_of(int64_t step) {
  return Rule{fmt::format("a positive multiple of {}", step), [step](auto v) { return v > 0 && v % step == 0; }};
}
inline auto non_empty() {
  return Rule{"not empty", [](const auto& v) { return !v.empty(); }};
}

template <int>
struct Index {};

namespace detail {

/// Type-erased half of cross_check(); schema.cpp.
void run_checks(const std::function<void(Visitor&)>& visit, Problems& problems);

template <class T>
ValueRef value_ref(T& member) {
  if constexpr (std::is_enum_v<T>) {
    EnumRef ref;
    for (std::string_view name : enum_names(T{})) ref.names.push_back(name);
    ref.get = [&member] { return static_cast<size_t>(member); };
    ref.set = [&member](size_t i) { member = static_cast<T>(i); };
    return ref;
  } else {
    return &member;
  }
}

template <class T>
void apply(FieldRef& field, T&, Resume resume) {
  field.resume = resume;
}
template <class T, class Predicate>
void apply(FieldRef& field, T& member, Rule<Predicate> rule) {
  field.expectation += (field.expectation.empty() ? "" : ", ") + rule.words;
  field.check = [&member, rule, before = std::move(field.check)]() -> std::string {
    if (before)
      if (std::string wrong = before(); !wrong.empty()) return wrong;
    if constexpr (requires { member.has_value(); }) {
      return !member.has_value() || rule.holds(*member) ? "" : rule.words;
    } else {
      return rule.holds(member) ? "" : rule.words;
    }
  };
}
struct DefaultName {
  std::string_view name;
};
template <class T>
void apply(FieldRef& field, T&, DefaultName name) {
  field.default_name = name.name;
}

}  // namespace detail

/// Name under which a map<string, vector<string>> field files a bare path or list.
inline detail::DefaultName default_name(std::string_view name) { return {name}; }

template <class T, class... Options>
FieldRef make_field(std::string_view name, T& member, std::string_view help, Options... options) {
  FieldRef field;
  field.name = name;
  field.value = detail::value_ref(member);
  field.help = help;
  (detail::apply(field, member, std::move(options)), ...);
  return field;
}

namespace detail {
/// True when Section has a field numbered above I, that is, when the numbers have a gap.
template <class Section, int I, int kLast>
constexpr bool has_later_field() {
  if constexpr (I > kLast) {
    return false;
  } else {
    return requires(Section & section, Visitor & visitor) { section.esm_visit_(visitor, Index<I>{}); }
    || has_later_field<Section, I + 1, kLast>();
  }
}

template <class Section, int I = 1>
void visit_fields(Section& section, Visitor& visitor) {
  if constexpr (requires { section.esm_visit_(visitor, Index<I>{}); }) {
    section.esm_visit_(visitor, Index<I>{});
    visit_fields<Section, I + 1>(section, visitor);
  } else {
    static_assert(!has_later_field<Section, I + 1, I + 64>(),
                  "no other ESM_CONFIG struct may be declared between the fields of a config struct");
  }
}
}  // namespace detail

/// Shows `section` to `visitor` as the group `name`: its fields and groups in order of declaration.
template <class Section>
void visit_group(std::string_view name, std::string_view help, Section& section, Visitor& visitor) {
  GroupRef group{name, help, nullptr};
  if constexpr (requires(const Section& s, Problems& problems) { s.cross_check(problems); })
    group.cross_check = [&section](Problems& problems) { section.cross_check(problems); };
  visitor.begin_group(group);
  detail::visit_fields(section, visitor);
  visitor.end_group();
}

/// Shows a whole config to `visitor`.
template <class Config>
void visit_all(Config& config, Visitor& visitor) {
  visit_group("", "", config, visitor);
}

/// Runs the checks of every field, and cross_check() of `section` and of the groups inside it; keys are relative to
/// `section`. load() does this by itself; for configs that are filled by hand.
template <class Section>
void cross_check(const Section& section, Problems& problems) {
  Section copy = section;
  detail::run_checks([&copy](Visitor& visitor) { visit_all(copy, visitor); }, problems);
}

}  // namespace esm::config

#define ESM_CONFIG(Type)                         \
  static constexpr int esm_first_ = __COUNTER__; \
  bool operator==(const Type&) const = default;

#define ESM_FIELD(member, ...) ESM_DETAIL_FIELD_(__COUNTER__, member, __VA_ARGS__)
#define ESM_DETAIL_FIELD_(counter, member, ...)                                                  \
  void esm_visit_(::esm::config::Visitor& visitor, ::esm::config::Index<counter - esm_first_>) { \
    visitor.field(::esm::config::make_field(#member, member, __VA_ARGS__));                      \
  }

#define ESM_GROUP(member, help) ESM_DETAIL_GROUP_(__COUNTER__, member, help)
#define ESM_DETAIL_GROUP_(counter, member, help)                                                 \
  void esm_visit_(::esm::config::Visitor& visitor, ::esm::config::Index<counter - esm_first_>) { \
    ::esm::config::visit_group(#member, help, member, visitor);                                  \
  }
