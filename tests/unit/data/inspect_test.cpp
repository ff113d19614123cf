// What `data inspect` and `data verify` find out.
#include "data/inspect.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "data/shard_folder.h"
#include "data/verify.h"
#include "data_fixture.h"
#include "support/catch.h"

using namespace esm;
using namespace esm::data;
using namespace esm::data::test;
namespace fs = std::filesystem;

namespace {

std::vector<std::string> problems(const std::string& folder) {
  std::vector<std::string> found;
  for (const FileVerdict& verdict : verify_shards(folder, {}))
    if (!verdict.problem.empty()) found.push_back(fs::path(verdict.path).filename());
  return found;
}

void flip(const std::string& path, size_t byte) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(byte));
  const auto changed = static_cast<char>(file.get() ^ 4);
  file.seekp(static_cast<std::streamoff>(byte));
  file.put(changed);
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("composition, lengths and repeats are those of the sequences") {
  const Scratch scratch;
  const std::string a = scratch.write("a.fasta", ">x\nMKVL\n>y\nMKVL\n>z\nJ*\n>w\n--\n");
  const std::string b = scratch.write("b.csv", "seq,id\nLLLLLL,x\n");
  const SetReport report = inspect({a, b}, {});
  CHECK(report.counts.records == 5);
  CHECK(report.counts.usable == 4);
  CHECK(report.counts.residues == 4 + 4 + 1 + 6);
  CHECK(report.counts.duplicate_ids == 1);
  CHECK(report.counts.duplicate_sequences == 1);
  const auto residues = [&](std::string_view name) {
    const auto token = std::find(kTokenNames.begin(), kTokenNames.end(), name) - kTokenNames.begin();
    return report.composition[static_cast<size_t>(token)];
  };
  CHECK(residues("L") == 8);
  CHECK(residues("M") == 2);
  CHECK(residues("<unk>") == 1);
  CHECK(std::accumulate(report.composition.begin(), report.composition.end(), int64_t{0}) == report.counts.residues);
  const auto json = nlohmann::json::parse(to_json(report));
  CHECK(json.at("data").at("usable") == 4);
  CHECK(json.at("composition").at("L") == 8);
  CHECK_THROWS_WITH(inspect({scratch.write("none.fasta", ">a\n--\n")}, {}), ContainsSubstring("no usable sequence"));
}

TEST_CASE("fill is that of the packer: full where lengths allow it, exact where they do not") {
  const Scratch scratch;
  // 98 residues are 100 tokens: 10 of them in 1024 slots, 20 in 2048, whatever the order.
  write_shard(scratch / "even.h5", made_shard(std::vector<int64_t>(50, 98)));
  InspectOptions options;
  options.budgets = {512, 1024, 2048};
  const SetReport even = inspect({scratch / "even.h5"}, options);
  REQUIRE(even.fills.size() == 2);  // 512 is below max_tokens
  CHECK(even.fills[0].tokens_per_batch == 1024);
  CHECK(even.fills[0].fill == 1000.0 / 1024);
  CHECK(even.fills[0].sequences == 10);
  CHECK(even.fills[1].fill == 2000.0 / 2048);
  CHECK(even.overlong == 0);
  write_shard(scratch / "mixed.h5", made_shard(protein_lengths(3000)));
  const SetReport mixed = inspect({scratch / "mixed.h5"}, options);
  CHECK(mixed.fills.back().fill > 0.99);
  CHECK(mixed.fills.back().fill <= 1.0);
  CHECK(mixed.overlong > 100);
  options.max_tokens = 50;  // everything is cut to 50 tokens: 40 fill 2000 of 2048 slots
  options.budgets = {2048};
  CHECK(inspect({scratch / "even.h5"}, options).fills[0].fill == 2000.0 / 2048);
}

TEST_CASE("a flipped bit anywhere in a prepared folder is found, and the file named") {
  const Scratch scratch;
  PrepareOptions options;
  options.max_shard_bytes = 40000;
  prepare({test_data("protein/tiny_train.fasta")}, scratch / "set", options);
  CHECK(problems(scratch / "set").empty());
  const Names names = {"report.json", "report.txt", "shard-00000.h5", "shard-00001.h5"};
  for (const std::string& name : names) {
    const std::string path = (scratch / "set/") + name;
    const auto bytes = static_cast<size_t>(fs::file_size(path));
    for (size_t i = 0; i < 40; ++i) {
      const size_t at = i < 20 ? i * (bytes - 1) / 19 : philox(3, RandomStream::kSynthetic, i).v[0] % bytes;
      INFO(name << " byte " << at);
      flip(path, at);
      CHECK(problems(scratch / "set") == Names{name});
      flip(path, at);
    }
  }
  CHECK(problems(scratch / "set").empty());
}

TEST_CASE("cut, missing, foreign and unreported shards are found") {
  const Scratch scratch;
  PrepareOptions options;
  options.max_shard_bytes = 30000;
  const auto again = [&] {
    fs::remove_all(scratch / "set");
    prepare({test_data("protein/tiny_train.fasta")}, scratch / "set", options);
    REQUIRE(problems(scratch / "set").empty());
  };
  again();
  fs::resize_file(scratch / "set/shard-00001.h5", 1000);
  CHECK(problems(scratch / "set") == Names{"shard-00001.h5"});
  fs::remove(scratch / "set/shard-00001.h5");
  fs::remove(scratch / "set/report.txt");
  CHECK(problems(scratch / "set") == Names{"report.txt", "shard-00001.h5"});
  again();
  // A sound shard in the place of another, and one too many.
  fs::copy_file(scratch / "set/shard-00000.h5", scratch / "set/shard-00001.h5", fs::copy_options::overwrite_existing);
  CHECK(problems(scratch / "set") == Names{"shard-00001.h5"});
  again();
  fs::copy_file(scratch / "set/shard-00000.h5", scratch / "set/shard-00007.h5");
  CHECK(problems(scratch / "set") == Names{"shard-00007.h5"});
  again();
  // Without the report the shards still know which ones belong together.
  fs::remove(scratch / "set/report.json");
  CHECK(problems(scratch / "set") == Names{"report.json"});
  fs::remove(scratch / "set/shard-00000.h5");
  CHECK(problems(scratch / "set") == Names{"report.json", "set"});
  CHECK(problems(scratch / "set/shard-00001.h5").empty());
  flip(scratch / "set/shard-00001.h5", fs::file_size(scratch / "set/shard-00001.h5") - 5);
  CHECK(problems(scratch / "set/shard-00001.h5") == Names{"shard-00001.h5"});
  CHECK_THROWS_WITH(verify_shards(odd("fasta/lf.fasta"), {}), ContainsSubstring("lf.fasta"));
  CHECK_THROWS_WITH(verify_shards(scratch / "nothing", {}), ContainsSubstring("nothing"));
}
