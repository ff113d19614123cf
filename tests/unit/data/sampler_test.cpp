// The order of an epoch: a bijection, different by seed and epoch, and as good as random.
#include "data/sampler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "support/catch.h"

using esm::data::EpochOrder;

namespace {

std::vector<int64_t> order(uint64_t seed, int64_t epoch, int64_t n) {
  const EpochOrder at(seed, epoch, n);
  std::vector<int64_t> values;
  for (int64_t i = 0; i < n; ++i) values.push_back(at.at(i));
  return values;
}

}  // namespace

TEST_CASE("each epoch is a bijection on [0, n) for any n") {
  for (const int64_t n : {1, 2, 3, 7, 255, 256, 257, 511, 512, 513, 5000, 32768, 32769}) {
    INFO(n);
    auto values = order(3, 1, n);
    std::sort(values.begin(), values.end());
    std::vector<int64_t> all(static_cast<size_t>(n));
    std::iota(all.begin(), all.end(), 0);
    CHECK(values == all);
  }
}

TEST_CASE("seed and epoch change the order; the order is a pure function of them") {
  CHECK(order(1, 0, 1000) == order(1, 0, 1000));
  std::set<std::vector<int64_t>> different = {order(1, 0, 1000), order(2, 0, 1000), order(1, 1, 1000),
                                              order(2, 1, 1000), order(uint64_t{1} << 32, 0, 1000)};
  CHECK(different.size() == 5);
}

TEST_CASE("large sets are addressed at random places without a table") {
  const int64_t n = (int64_t{1} << 40) + 12345;
  const EpochOrder at(5, 2, n);
  std::set<int64_t> values;
  for (int64_t i = 0; i < 1000; ++i) {
    const int64_t value = at.at(i * 1000003);
    CHECK((value >= 0 && value < n));
    values.insert(value);
  }
  CHECK(values.size() == 1000);
}

TEST_CASE("all orders of four are about equally frequent") {
  // 24 orders, 24,000 draws: chi-square with 23 degrees of freedom is below 49.7 with probability 0.999.
  std::map<std::vector<int64_t>, int> seen;
  for (int epoch = 0; epoch < 24000; ++epoch) ++seen[order(11, epoch, 4)];
  CHECK(seen.size() == 24);
  double chi2 = 0;
  for (const auto& [_, count] : seen) chi2 += (count - 1000.0) * (count - 1000.0) / 1000.0;
  CHECK(chi2 < 49.7);
}

TEST_CASE("positions, neighbours and epochs are uncorrelated") {
  const int64_t n = 20011;
  const auto first = order(17, 0, n), second = order(17, 1, n);
  const double mean = static_cast<double>(n - 1) / 2, variance = (static_cast<double>(n) * n - 1) / 12;
  double with_position = 0, with_next = 0, with_epoch = 0;
  for (int64_t i = 0; i < n; ++i) {
    const double value = static_cast<double>(first[i]) - mean;
    with_position += value * (static_cast<double>(i) - mean);
    with_next += value * (static_cast<double>(first[(i + 1) % n]) - mean);
    with_epoch += value * (static_cast<double>(second[i]) - mean);
  }
  // Correlation of n pairs has deviation 1 / sqrt(n) = 0.0071; 4 deviations.
  for (const double sum : {with_position, with_next, with_epoch})
    CHECK(std::abs(sum / (variance * static_cast<double>(n))) < 4 / std::sqrt(static_cast<double>(n)));
  // Where the first tenth of the positions goes: 20 equal bins, chi-square with 19 degrees, 0.999 at 43.8.
  std::array<int, 20> bins{};
  for (int64_t i = 0; i < n / 10; ++i) ++bins[static_cast<size_t>(first[i] * 20 / n)];
  double chi2 = 0;
  const double expected = static_cast<double>(n / 10) / 20;
  for (const int count : bins) chi2 += (count - expected) * (count - expected) / expected;
  CHECK(chi2 < 43.8);
}
