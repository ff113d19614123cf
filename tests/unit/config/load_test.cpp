#include "base/files.h"
#include "sample_config.h"
#include "support/catch.h"

namespace config = esm::config;
using sample::Config;
using sample::error_of;
using sample::set;

namespace {

template <class C>
config::Loaded load(C& c, const std::string& yaml, const std::vector<config::Override>& overrides = {}) {
  return config::load_text(c, yaml, "x.yaml", overrides);
}

/// The error of loading a file.
std::string file_error(const std::string& path, const std::vector<config::Override>& overrides = {}) {
  Config c;
  try {
    config::load(c, path, overrides);
  } catch (const esm::ConfigError& e) {
    return e.what();
  }
  return "";
}

}  // namespace

TEST_CASE("every kind of value is read") {
  Config c;
  const config::Loaded loaded = load(c, R"(
seed: -3
run: {dir: "x y", note: 'it''s'}
data:
  train: [a, "5"]
  valid: {main: m.fasta, other: [o1, o2]}
  sizes: [1, 2e1]
model: {activation: swiglu, token_dropout: false}
optimizer:
  lr: 1e-4
  clip_norm: null
  lr_multipliers: {embedding: 0.5, layers.0: 2}
  notes: {a: "x, y", b: 3, c: [1, "2-4", z], d: true, e: []}
  schedule: {decay_steps: 5000}
)");
  CHECK(c.seed == -3);
  CHECK(c.run.dir == "x y");
  CHECK(c.run.note == "it's");
  CHECK(c.data.train == std::vector<std::string>{"a", "5"});
  CHECK(c.data.valid ==
        std::map<std::string, std::vector<std::string>>{{"main", {"m.fasta"}}, {"other", {"o1", "o2"}}});
  CHECK(c.data.sizes == std::vector<int64_t>{1, 20});
  CHECK(c.model.activation == sample::Activation::kSwiglu);
  CHECK_FALSE(c.model.token_dropout);
  CHECK(c.optimizer.lr == 1e-4);
  CHECK_FALSE(c.optimizer.clip_norm.has_value());
  CHECK(c.optimizer.lr_multipliers == std::map<std::string, double>{{"embedding", 0.5}, {"layers.0", 2.0}});
  CHECK(c.optimizer.notes ==
        std::map<std::string, std::string>{{"a", "x, y"}, {"b", "3"}, {"c", "1, 2-4, z"}, {"d", "true"}, {"e", ""}});
  CHECK(c.optimizer.schedule.decay_steps == 5000);
  CHECK(loaded.origins.at("optimizer.lr") == "x.yaml:10");
  CHECK_FALSE(loaded.origins.contains("optimizer.beta1"));
}

TEST_CASE("single values stand for lists, and bare paths get the default name") {
  Config c;
  load(c, "data: {train: one, valid: v.fasta, sizes: 3}\n");
  CHECK(c.data.train == std::vector<std::string>{"one"});
  CHECK(c.data.valid == std::map<std::string, std::vector<std::string>>{{"valid", {"v.fasta"}}});
  CHECK(c.data.sizes == std::vector<int64_t>{3});
  load(c, "data: {valid: [v, w]}\n");
  CHECK(c.data.valid == std::map<std::string, std::vector<std::string>>{{"valid", {"v", "w"}}});
}

TEST_CASE("a load starts from the defaults, whatever the struct held") {
  Config c;
  c.seed = 99;
  c.optimizer.clip_norm.reset();
  load(c, "train: {max_steps: 5}\n");
  CHECK(c.seed == Config{}.seed);
  CHECK(c.optimizer.clip_norm == Config{}.optimizer.clip_norm);
}

TEST_CASE("the command line wins over the file, later over earlier") {
  Config c;
  const config::Loaded loaded =
      load(c, sample::kGoodYaml, {set("train.max_steps", "1e2"), set("seed", "3"), {"seed", "4", "--seed 4"}});
  CHECK(c.train.max_steps == 100);
  CHECK(c.seed == 4);
  CHECK(loaded.origins.at("seed") == "--seed 4");
  CHECK(loaded.origins.at("train.max_steps") == "--set train.max_steps=1e2");
  CHECK(loaded.origins.at("train.accumulate") == "x.yaml:29");
}

TEST_CASE("lists, maps, null and text on the command line") {
  Config c;
  const config::Loaded loaded =
      load(c, "data: {valid: {main: m, other: o}}\noptimizer: {lr_multipliers: {a: 1}}\n",
           {set("data.train", "[x, 'y z']"), set("data.valid.main", "n.fasta"), set("data.valid.third", "[p, q]"),
            set("optimizer.lr_multipliers.layers.0", "0.5"), set("optimizer.clip_norm", "null"),
            set("run.note", "a: [b"), set("run.dir", "123"), set("data.sizes", "[1,2]")});
  CHECK(c.data.train == std::vector<std::string>{"x", "y z"});
  CHECK(c.data.valid == std::map<std::string, std::vector<std::string>>{
                            {"main", {"n.fasta"}}, {"other", {"o"}}, {"third", {"p", "q"}}});
  CHECK(c.optimizer.lr_multipliers == std::map<std::string, double>{{"a", 1}, {"layers.0", 0.5}});
  CHECK_FALSE(c.optimizer.clip_norm.has_value());
  CHECK(c.run.note == "a: [b");
  CHECK(c.run.dir == "123");
  CHECK(c.data.sizes == std::vector<int64_t>{1, 2});
  CHECK(loaded.origins.at("data.valid") == "x.yaml:1, --set data.valid.main=n.fasta, --set data.valid.third=[p, q]");

  load(c, "data: {valid: {main: m, other: o}}\n", {set("data.valid", "z.fasta")});
  CHECK(c.data.valid == std::map<std::string, std::vector<std::string>>{{"valid", {"z.fasta"}}});
  load(c, "data: {valid: {main: m}}\n", {set("data.valid", "{}")});
  CHECK(c.data.valid.empty());
  load(c, "optimizer: {notes: {a: x}}\n",
       {set("optimizer.notes.b", "1, 2"), set("optimizer.notes.c", "[1, 2]"), set("optimizer.notes.d", "4")});
  CHECK(c.optimizer.notes == std::map<std::string, std::string>{{"a", "x"}, {"b", "1, 2"}, {"c", "1, 2"}, {"d", "4"}});
}

TEST_CASE("settings that do not fit are refused and named") {
  CHECK(error_of("seed: 1\n", {set("train.max_stepps", "3")}) ==
        "--set train.max_stepps=3: unknown key train.max_stepps; did you mean train.max_steps?");
  CHECK(error_of("seed: 1\n", {set("train.max_steps", "abc")}) ==
        "--set train.max_steps=abc: train.max_steps: expected an integer, found 'abc'");
  CHECK_THAT(error_of("seed: 1\n", {set("train", "3")}),
             ContainsSubstring("train is a section; set one of its keys: max_"));
  CHECK_THAT(error_of("seed: 1\n", {set("seed", "")}), ContainsSubstring("seed: expected an integer, found nothing"));
  CHECK_THAT(error_of("seed: 1\n", {set("seed", "null")}), ContainsSubstring("found nothing"));
  CHECK_THAT(error_of("seed: 1\n", {set("data.sizes", "[1,")}), ContainsSubstring("data.sizes: column"));
  CHECK_THAT(error_of("seed: 1\n", {set("data.valid.", "x")}), ContainsSubstring("expected a name"));
  CHECK_THAT(error_of("seed: 1\n", {set("optimizer.notes", "x")}), ContainsSubstring("expected a map of name: text"));
  CHECK_THAT(error_of("seed: 1\n", {set("optimizer.notes", "{a: {b: c}}")}),
             ContainsSubstring("optimizer.notes: a: expected text or a list, found a map"));
  CHECK_THAT(error_of("seed: 1\n", {set("optimizer.notes.a", "[1, [2]]")}),
             ContainsSubstring("optimizer.notes.a: element 2: expected text, found a list"));
  CHECK_THAT(error_of("seed: 1\n", {set("run.note", "\xFF")}), ContainsSubstring("UTF-8"));
  CHECK_THAT(error_of("seed: 1\n", {set("optimizer.lr", "\"1e-4\"")}), ContainsSubstring("expected a number"));
  CHECK_THAT(error_of("seed: 1\n", {set("seed.x", "1")}), ContainsSubstring("unknown key seed.x"));
}

TEST_CASE("every mistake of a file is listed at once, with its line") {
  const std::string error = error_of(R"(sed: 3
lr: 5
data:
  tokens_per_batch: 100
  valid: {a: b, a: c}
  train: 5
optimizer:
  lr: -1
  lr: 4
  weight-decay: 1
  beta1: adam
  clip_norm: "1"
model:
  hidden: {a: 3}
  layer_norm_eps:
  token_dropout: yes
  activation: swigl
train: 5
checkpoint: [a]
train.max_steps: 3
)",
                                     {set("seed", "x")});
  for (const char* expected :
       {"18 errors in the configuration:\n", "x.yaml:1: unknown key sed; did you mean seed?",
        "x.yaml:2: unknown key lr; did you mean optimizer.lr?",
        "x.yaml:4: data.tokens_per_batch: expected a positive multiple of 128, found 100",
        "x.yaml:5: data.valid: the name a occurs twice",
        "x.yaml:6: data.train: expected text, found '5' (write it in quotes",
        "x.yaml:8: optimizer.lr: expected a number above 0, found -1",
        "x.yaml:9: optimizer.lr: the key is given twice, first in line 8",
        "x.yaml:10: unknown key optimizer.weight-decay; did you mean optimizer.weight_decay?",
        "x.yaml:11: optimizer.beta1: expected a number, found 'adam'",
        "x.yaml:12: optimizer.clip_norm: expected a number, found the quoted text \"1\" (write it without quotes)",
        "x.yaml:14: model.hidden: expected an integer, found a map",
        "x.yaml:15: model.layer_norm_eps: expected a number, found nothing",
        "x.yaml:16: model.token_dropout: expected true or false, found 'yes'",
        "x.yaml:17: model.activation: expected one of gelu_erf, gelu_tanh, swiglu, found 'swigl'; did you mean swiglu?",
        "x.yaml:18: train: expected a section (a map) with keys max_steps, accumulate, label_smoothing, found '5'",
        "x.yaml:19: checkpoint: expected a section", "x.yaml:20: train.max_steps: dotted keys",
        "--set seed=x: seed: expected an integer, found 'x'"})
    CHECK_THAT(error, ContainsSubstring(expected));
}

TEST_CASE("files that hold no config are refused") {
  const std::string folder = ESM_SOURCE_DIR "/tests/data/oddities/config/";
  CHECK_THAT(file_error(folder + "empty.yaml"), ContainsSubstring("empty.yaml:1: expected"));
  CHECK_THAT(file_error(folder + "list_at_top.yaml"), ContainsSubstring("list_at_top.yaml:1: expected a map"));
  CHECK_THAT(file_error(folder + "tab_indent.yaml"), ContainsSubstring("tab_indent.yaml:2:1: a tab"));
  CHECK_THAT(file_error(folder + "duplicate_key.yaml"),
             ContainsSubstring("duplicate_key.yaml:3: optimizer.lr: the key is given twice, first in line 2"));
  CHECK_THAT(file_error(folder + "none.yaml"), ContainsSubstring("none.yaml: No such file"));
  CHECK_THAT(file_error(folder), ContainsSubstring("is a folder"));
  CHECK_THAT(file_error("/dev/zero"), ContainsSubstring("larger than"));
  CHECK_THAT(error_of("seed:3\n"), ContainsSubstring("is a space missing behind a colon?"));
  Config c;
  config::load(c, folder + "bom_crlf.yaml");
  CHECK(c.seed == 7);
  CHECK(error_of("# nothing but\nrun:\n  # comments\n").empty());
}

TEST_CASE("extends: base first, later files over earlier ones, the file itself last") {
  const esm::ScratchFolder scratch("config-extends");
  const std::string at = scratch.path() + "/";
  esm::make_folders(at + "sub");
  sample::write(at + "base.yaml", "seed: 1\ntrain: {max_steps: 1, accumulate: 1}\ndata: {valid: {a: a1, b: b1}}\n");
  sample::write(at + "sub/mid.yaml", "extends: ../base.yaml\ntrain: {max_steps: 2}\ndata: {valid: {c: c1}}\n");
  sample::write(at + "other.yaml", "train: {max_steps: 3}\nmodel: {layers: 3}\n");
  sample::write(at + "top.yaml", "extends: [sub/mid.yaml, other.yaml]\nmodel: {heads: 4}\n");
  Config c;
  const config::Loaded loaded = config::load(c, at + "top.yaml", {set("seed", "9")});
  CHECK(c.seed == 9);
  CHECK(c.train.max_steps == 3);
  CHECK(c.train.accumulate == 1);
  CHECK(c.model.layers == 3);
  CHECK(c.model.heads == 4);
  // A map field is one value.
  CHECK(c.data.valid == std::map<std::string, std::vector<std::string>>{{"c", {"c1"}}});
  CHECK(loaded.files ==
        std::vector<std::string>{at + "base.yaml", at + "sub/mid.yaml", at + "other.yaml", at + "top.yaml"});
  CHECK(loaded.origins.at("train.accumulate") == at + "base.yaml:2");
  CHECK(loaded.origins.at("model.layers") == at + "other.yaml:2");

  // One file may be reached twice; only a circle is an error.
  sample::write(at + "diamond.yaml", "extends: [base.yaml, sub/mid.yaml]\n");
  CHECK(file_error(at + "diamond.yaml").empty());
  sample::write(at + "loop1.yaml", "extends: loop2.yaml\n");
  sample::write(at + "loop2.yaml", "seed: 1\nextends: loop1.yaml\n");
  CHECK_THAT(file_error(at + "loop1.yaml"), ContainsSubstring("loop2.yaml:2: extends: ") &&
                                                ContainsSubstring("extends itself: " + at + "loop1.yaml -> "));
  sample::write(at + "self.yaml", "extends: ./self.yaml\n");
  CHECK_THAT(file_error(at + "self.yaml"), ContainsSubstring("extends itself"));
}

TEST_CASE("errors in extended files name those files, and a missing one does not hide the others") {
  const esm::ScratchFolder scratch("config-extends");
  const std::string at = scratch.path() + "/";
  sample::write(at + "base.yaml", "seed: x\n");
  sample::write(at + "top.yaml", "extends: [none.yaml, base.yaml]\nsed: 1\ntrain: {max_steps: 0}\n");
  const std::string error = file_error(at + "top.yaml");
  CHECK_THAT(error, ContainsSubstring("top.yaml:1: cannot open " + at + "none.yaml"));
  CHECK_THAT(error, ContainsSubstring("base.yaml:1: seed: expected an integer, found 'x'"));
  CHECK_THAT(error, ContainsSubstring("top.yaml:2: unknown key sed"));
  CHECK_THAT(error, ContainsSubstring("top.yaml:3: train.max_steps: expected at least 1, found 0"));
  CHECK_THAT(error, ContainsSubstring("4 errors"));
  sample::write(at + "bad.yaml", "extends: {a: b}\n");
  CHECK_THAT(file_error(at + "bad.yaml"), ContainsSubstring("bad.yaml:1: extends: expected"));
  CHECK_THAT(error_of("extends: base.yaml\n"), ContainsSubstring("x.yaml:1: extends: not possible here"));
}

TEST_CASE("cross checks run for nested groups, and only on sound values") {
  CHECK_THAT(error_of("model: {hidden: 100, heads: 3}\n"),
             ContainsSubstring("x.yaml:1: model.hidden: hidden 100 must be a multiple of heads = 3"));
  CHECK_THAT(error_of("seed: 1\noptimizer:\n  schedule:\n    decay_steps: 5\n"),
             ContainsSubstring("x.yaml:4: optimizer.schedule.decay_steps: shorter than the warm-up"));
  // heads 0 must not reach the division in cross_check().
  CHECK(error_of("model: {heads: 0}\n") == "x.yaml:1: model.heads: expected at least 1, found 0");
  // Another group's mistake does not hide it.
  const std::string both = error_of("model: {hidden: 100, heads: 3}\ntrain: {max_steps: 0}\n");
  CHECK_THAT(both, ContainsSubstring("multiple of heads") && ContainsSubstring("train.max_steps"));
  // A default that no longer fits is named as such.
  CHECK_THAT(error_of("model: {heads: 3}\n"),
             ContainsSubstring("model.hidden: hidden 320 must be") && ContainsSubstring("the default"));
}

TEST_CASE("a config filled by hand can be checked") {
  Config c;
  c.model.heads = 3;
  c.train.max_steps = 0;
  config::Problems problems;
  config::cross_check(c, problems);
  REQUIRE(problems.items.size() == 2);
  CHECK(problems.items[0] == std::pair<std::string, std::string>("train.max_steps", "expected at least 1, found 0"));
  CHECK(problems.items[1].first == "model.hidden");
}
