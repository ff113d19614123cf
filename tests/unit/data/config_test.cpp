// The rules over several keys of `data:`, and their way into the loader.
#include <cmath>

#include "data/loader.h"
#include "support/catch.h"

using namespace esm;
using namespace esm::data;

namespace {

// Keys that cross_check() complains about.
std::vector<std::string> complaints(const DataConfig& config) {
  config::Problems problems;
  config.cross_check(problems);
  std::vector<std::string> keys;
  for (const auto& item : problems.items) keys.push_back(item.first);
  return keys;
}

DataConfig good() {
  DataConfig config;
  config.train["train"] = {"a.fasta"};
  return config;
}

}  // namespace

TEST_CASE("settings that do not go together are named") {
  using Keys = std::vector<std::string>;
  CHECK(complaints(good()).empty());
  DataConfig config = good();
  config.tokens_per_batch = 1024;
  config.max_tokens = 1025;
  CHECK(complaints(config) == Keys{"tokens_per_batch"});
  config.max_tokens = 1024;
  CHECK(complaints(config).empty());
  config = good();
  config.bucketed = true;
  CHECK(complaints(config) == Keys{"bucketed"});
  config.layout = Layout::kBshd;
  CHECK(complaints(config).empty());
  config = good();
  config.window_stride = 1023;
  CHECK(complaints(config).empty());  // means nothing without windows
  config.overlong = Overlong::kWindow;
  CHECK(complaints(config) == Keys{"window_stride"});
  config = good();
  config.masking.random_share = 0.25;
  CHECK(complaints(config) == Keys{"masking.random_share"});
  config = good();
  config.valid["empty"] = {};
  CHECK(complaints(config) == Keys{"valid"});
}

TEST_CASE("weights of a mixture name the sets of data.train, each with a number above 0") {
  const auto messages = [](std::map<std::string, double> weights) {
    DataConfig config;
    config.train = {{"mine", {"a.fasta"}}, {"uniref", {"b.fasta"}}};
    config.weights = std::move(weights);
    config::Problems problems;
    config.cross_check(problems);
    std::string text;
    for (const auto& [key, what] : problems.items) text += key + ": " + what + "\n";
    return text;
  };
  CHECK(messages({}).empty());
  CHECK(messages({{"mine", 0.3}, {"uniref", 70}}).empty());
  CHECK(messages({{"mine", 0.3}, {"unirf", 0.7}}) ==
        "weights: there is no set 'unirf' in data.train, only mine, uniref\n"
        "weights: the set 'uniref' of data.train has no weight\n");
  for (const double weight : {0.0, -1.0, double(INFINITY), double(NAN)})
    CHECK_THAT(messages({{"mine", weight}, {"uniref", 1}}),
               ContainsSubstring("weights: expected a number above 0 for 'mine', found"));
}

TEST_CASE("every setting reaches the loader") {
  DataConfig config = good();
  config.max_tokens = 300;
  config.tokens_per_batch = 4096;
  config.layout = Layout::kBshd;
  config.bucketed = true;
  config.overlong = Overlong::kSkip;
  config.window_stride = 7;
  config.pack_window = 77;
  config.loader_threads = 3;
  config.prefetch = 9;
  config.masking.rate = 0.3;
  const LoaderOptions options = loader_options(config, 5, 2, 4);
  CHECK(options.seed == 5);
  CHECK(options.max_tokens == 300);
  CHECK(options.tokens_per_batch == 4096);
  CHECK(options.layout == Layout::kBshd);
  CHECK(options.bucketed);
  CHECK(options.overlong == Overlong::kSkip);
  CHECK(options.window_stride == 7);
  CHECK(options.pack_window == 77);
  CHECK(options.masking == config.masking);
  CHECK(options.rank == 2);
  CHECK(options.size == 4);
  CHECK(options.threads == 3);
  CHECK(options.prefetch == 9);
}
