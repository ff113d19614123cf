#include <algorithm>
#include <cmath>

#include "sample_config.h"
#include "support/catch.h"

namespace config = esm::config;
using sample::Config;

namespace {

Config odd_config() {
  Config c;
  c.seed = std::numeric_limits<int64_t>::min();
  c.run.dir = "a: b #c";
  c.run.note = "line\nwith \"quotes\", \\ and \xC3\xA4";
  c.data.train = {"", "null", "1e5", "- x", std::string(300, 'p')};
  c.data.valid = {{"a b", {"x", "y: z"}}, {"1", {}}, {"", {}}};
  c.data.valid.erase("");
  for (int i = 0; i < 60; ++i) c.data.valid["long"].push_back(fmt::format("folder/shard-{}.fasta", i));
  for (int64_t i = 0; i < 100; ++i) c.data.sizes.push_back(i * 1000003);
  c.optimizer.lr = 0.1 + 0.2;
  c.optimizer.beta1 = std::nextafter(0.9, 1.0);
  c.optimizer.weight_decay = 5e-324;
  c.optimizer.clip_norm.reset();
  c.optimizer.lr_multipliers = {{"layers.0", 1.0 / 3}, {"head", -0.0}};
  c.optimizer.notes = {{"a", "1"}, {"b b", ""}, {"c", "x: y"}, {"d", "null"}, {"e", std::string(200, 'e')}};
  c.optimizer.schedule.decay_steps = 123456789012345;
  c.model.activation = sample::Activation::kSwiglu;
  c.model.token_dropout = false;
  return c;
}

const config::Entry& find(const std::vector<config::Entry>& entries, std::string_view key) {
  return *std::find_if(entries.begin(), entries.end(), [&](const config::Entry& e) { return e.key == key; });
}

}  // namespace

TEST_CASE("resolved YAML loads to an equal config, bit for bit") {
  for (const Config& c : {Config{}, odd_config()}) {
    const std::string yaml = config::to_yaml(c);
    INFO(yaml);
    Config back;
    config::load_text(back, yaml, "resolved.yaml");
    CHECK(back == c);
    CHECK(config::to_yaml(back) == yaml);
    CHECK(std::signbit(back.optimizer.lr_multipliers["head"]) ==
          std::signbit(Config(c).optimizer.lr_multipliers["head"]));
  }
}

TEST_CASE("resolved YAML can say where each value came from, and still loads") {
  Config c;
  const config::Loaded loaded = config::load_text(c, sample::kGoodYaml, "x.yaml",
                                                  {{"seed", "3", "--seed 3"}, sample::set("run.note", "a\nb # c")});
  const std::string yaml = config::to_yaml(c, &loaded.origins);
  CHECK_THAT(yaml, ContainsSubstring("seed: 3  # --seed 3\n"));
  CHECK_THAT(yaml, ContainsSubstring("    warmup_steps: 10  # x.yaml:25\n"));
  CHECK_THAT(yaml, ContainsSubstring("  lr_multipliers: {}  # default\n"));
  Config back;
  config::load_text(back, yaml, "resolved.yaml");
  CHECK(back == c);
}

TEST_CASE("entries tell key, value, default, origin, type, expectation and policy") {
  Config c;
  const config::Loaded loaded = config::load_text(c, "optimizer:\n  lr: 1e-3\ndata: {valid: a.fasta}\n", "x.yaml");
  const auto entries = config::entries(c, loaded.origins);
  CHECK(entries.size() == 30);
  CHECK(entries.front().key == "seed");
  CHECK(entries.back().key == "checkpoint.keep_best");
  const config::Entry& lr = find(entries, "optimizer.lr");
  CHECK(lr.value == "0.001");
  CHECK(lr.default_value == "0.0004");
  CHECK(lr.origin == "x.yaml:2");
  CHECK(lr.help == "Peak learning rate.");
  CHECK(lr.expectation == "a number above 0");
  CHECK(lr.type == "number");
  CHECK(lr.resume == config::Resume::kWarn);
  CHECK_FALSE(lr.is_default());
  CHECK(find(entries, "model.activation").type == "one of gelu_erf, gelu_tanh, swiglu");
  CHECK(find(entries, "data.valid").is_map);
  CHECK(find(entries, "data.valid").value == "{valid: [a.fasta]}");
  CHECK(find(entries, "optimizer.schedule.decay_steps").value == "null");
  CHECK(find(entries, "seed").origin == "default");
  CHECK(config::non_default_lines(entries) ==
        std::vector<std::string>{"data.valid = {valid: [a.fasta]} (x.yaml:3)", "optimizer.lr = 0.001 (x.yaml:2)"});
}

TEST_CASE("the resume diff names what changed, and what only one side knows") {
  Config before = odd_config();
  Config now = before;
  const std::string old_yaml = config::to_yaml(before);
  CHECK(config::diff(old_yaml, now).empty());

  now.seed = 5;
  now.optimizer.lr = std::nextafter(before.optimizer.lr, 1.0);
  now.data.loader_threads = 8;
  const auto changes = config::diff(old_yaml, now);
  REQUIRE(changes.size() == 3);
  CHECK(changes[0].key == "seed");
  CHECK(changes[0].resume == config::Resume::kFixed);
  CHECK(changes[0].old_value == "-9223372036854775808");
  CHECK(changes[0].new_value == "5");
  CHECK(changes[1].key == "data.loader_threads");
  CHECK(changes[1].resume == config::Resume::kFree);
  CHECK(changes[2].key == "optimizer.lr");
  CHECK(changes[2].side == config::Difference::Side::kBoth);
}

TEST_CASE("a diff against another version of the program") {
  std::string yaml = config::to_yaml(Config{});
  yaml.replace(yaml.find("  max_steps: 1000\n"), 18, "  max_steps: many\n");  // the type changed since
  yaml.replace(yaml.find("  accumulate: 1\n"), 16, "");                       // a key that is new
  yaml += "gone:\n  a: {b: 1}\n  c: [1, 2]\n";                                // keys that are no more
  const auto changes = config::diff(yaml, Config{});
  REQUIRE(changes.size() == 4);
  CHECK(changes[0].key == "train.max_steps");
  CHECK(changes[0].old_value == "many");
  CHECK(changes[1].key == "train.accumulate");
  CHECK(changes[1].side == config::Difference::Side::kOnlyNew);
  CHECK(changes[2].key == "gone.a.b");
  CHECK(changes[2].side == config::Difference::Side::kOnlyOld);
  CHECK(changes[3].old_value == "[1, 2]");
  CHECK_THROWS_AS(config::diff("a: [", Config{}), esm::ConfigError);
}

TEST_CASE("the reference page lists every field once, by section") {
  const std::string page = config::reference_markdown<Config>("Reference");
  CHECK_THAT(page, ContainsSubstring("# Reference\n"));
  CHECK_THAT(page, ContainsSubstring("## optimizer.schedule\n\nLearning rate over time.\n"));
  CHECK_THAT(page, ContainsSubstring(
                       "| `optimizer.lr` | number; a number above 0 | `0.0004` | warns | Peak learning rate. |"));
  CHECK_THAT(page, ContainsSubstring("Token slots \\| a micro-batch."));
  for (const auto& entry : config::entries(Config{})) {
    const std::string cell = "| `" + entry.key + "` |";
    const size_t first = page.find(cell);
    INFO(entry.key);
    REQUIRE(first != std::string::npos);
    CHECK(page.find(cell, first + 1) == std::string::npos);
  }
}
