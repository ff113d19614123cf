// Verdicts of comparisons: every element within its own bound. Plain C++, so that the comparison itself is tested
// without a GPU.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace esm::checks {

/// One comparison. `error` and `bound` are those of the worst element (error over bound); of bit-for-bit comparisons
/// `error` counts the elements that differ and `bound` is 0.
struct Case {
  std::string name;
  double error = 0;
  double bound = 0;
  double relative_l2 = 0;
  bool ok = false;

  /// How much of the bound is used: above 1 (or NaN) is wrong.
  double share_of_bound() const { return bound > 0 ? error / bound : error == 0 ? 0 : INFINITY; }
};

/// The comparisons of one family of kernels, in the order they ran.
struct CheckGroup {
  std::string name;
  std::vector<Case> cases;
  std::string failure;       // the error that ended the family early; empty: it ran to its end
  bool device_lost = false;  // after that error nothing runs on the device any more in this process
  double seconds = 0;

  int64_t wrong() const {
    int64_t n = 0;
    for (const Case& c : cases) n += c.ok ? 0 : 1;
    return n;
  }
  bool ok() const { return wrong() == 0 && failure.empty() && !cases.empty(); }
  /// The case that uses most of its bound; null without cases.
  const Case* worst() const {
    const Case* result = nullptr;
    for (const Case& c : cases) {
      const double share = c.share_of_bound();
      if (result == nullptr || share > result->share_of_bound() || std::isnan(share)) result = &c;
    }
    return result;
  }
};

/// Collects the cases of a group.
class Report {
 public:
  using Bound = std::function<double(size_t)>;

  bool close(const std::string& name, const std::vector<float>& got, const std::vector<double>& want,
             const Bound& bound) {
    double worst = -1, error = 0, limit = 0, squares = 0, norm = 0;
    bool ok = got.size() == want.size();
    for (size_t i = 0; ok && i < got.size(); ++i) {
      const double e = std::abs(static_cast<double>(got[i]) - want[i]), b = bound(i);
      squares += e * e;
      norm += want[i] * want[i];
      const double ratio = e / (b + 1e-300);
      if (ratio > worst || !(ratio == ratio)) {
        worst = ratio;
        error = e;
        limit = b;
        if (!(ratio == ratio)) break;
      }
    }
    ok = ok && worst <= 1;  // false for NaN
    add({name, error, limit, std::sqrt(squares / (norm + 1e-300)), ok});
    return ok;
  }

  bool equal(const std::string& name, size_t mismatches) {
    add({name, static_cast<double>(mismatches), 0, 0, mismatches == 0});
    return mismatches == 0;
  }
  template <class T>
  bool same(const std::string& name, const std::vector<T>& a, const std::vector<T>& b) {
    size_t mismatches = a.size() == b.size() ? 0 : 1;
    for (size_t i = 0; i < a.size() && i < b.size(); ++i) mismatches += std::memcmp(&a[i], &b[i], sizeof(T)) != 0;
    return equal(name, mismatches);
  }
  void add(Case verdict) { cases_.push_back(std::move(verdict)); }

  const std::vector<Case>& cases() const { return cases_; }
  std::vector<Case> take() { return std::move(cases_); }

 private:
  std::vector<Case> cases_;
};

}  // namespace esm::checks
