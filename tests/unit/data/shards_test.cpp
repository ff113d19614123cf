// Shards on disk: round trip, damage of any kind, locks.
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>

#include "data/shard_folder.h"
#include "data_fixture.h"
#include "support/catch.h"

using namespace esm;
using namespace esm::data;
using namespace esm::data::test;

namespace {

std::vector<uint8_t> all_of(const ShardFile& shard, int64_t record) {
  std::vector<uint8_t> tokens(static_cast<size_t>(shard.length(record)));
  shard.read(record, 0, tokens);
  return tokens;
}

}  // namespace

TEST_CASE("a shard gives back what was written") {
  const Scratch scratch;
  const std::vector<int64_t> lengths = protein_lengths(3000);  // several chunks of checksums
  const ShardContent content = made_shard(lengths);
  const std::string hash = write_shard(scratch / "s.h5", content);
  CHECK_FALSE(std::filesystem::exists(scratch / "s.h5.tmp"));
  for (const bool lazy : {false, true}) {
    const ShardFile shard(scratch / "s.h5", lazy);
    CHECK(shard.content_hash() == hash);
    REQUIRE(shard.records() == 3000);
    CHECK(shard.residues() == std::ssize(content.tokens));
    shard.verify_all();
    auto at = content.tokens.begin();
    for (int64_t i = 0; i < 3000; ++i) {
      CHECK(shard.id(i) == "made_" + std::to_string(i));
      const std::vector<uint8_t> expected(at, at + lengths[static_cast<size_t>(i)]);
      CHECK(all_of(shard, i) == expected);
      at += lengths[static_cast<size_t>(i)];
    }
    std::vector<uint8_t> middle(5);
    shard.read(70, 3, middle);
    for (int64_t p = 0; p < 5; ++p) CHECK(middle[static_cast<size_t>(p)] == made_residue(70, 3 + p));
  }
}

TEST_CASE("a shard may have no ids of any length") {
  const Scratch scratch;
  ShardContent content = made_shard({3, 4});
  content.ids.clear();
  content.id_offsets = {0, 0, 0};
  write_shard(scratch / "s.h5", content);
  const ShardFile shard(scratch / "s.h5", true);
  CHECK(shard.id(1).empty());
  shard.verify_all();
}

TEST_CASE("foreign, empty, cut and false HDF5 files are refused by name") {
  const auto open = [](const std::string& name) { ShardFile(odd("hdf5/" + name), false); };
  CHECK_THROWS_WITH(open("not_hdf5.h5"), ContainsSubstring("not_hdf5.h5") && ContainsSubstring("not an HDF5 file"));
  CHECK_THROWS_WITH(open("zero_length.h5"), ContainsSubstring("zero_length.h5") && ContainsSubstring("empty"));
  CHECK_THROWS_WITH(open("truncated.h5"), ContainsSubstring("truncated.h5") && ContainsSubstring("cut or damaged"));
  CHECK_THROWS_WITH(open("foreign_schema.h5"), ContainsSubstring("foreign_schema.h5") && ContainsSubstring("lengths") &&
                                                   ContainsSubstring("found: offsets, tokens"));
  CHECK_THROWS_AS(open("missing.h5"), DataError);
}

TEST_CASE("a file cut at any length is refused") {
  const Scratch scratch;
  write_shard(scratch / "whole.h5", made_shard({30, 5, 700}));
  const auto bytes = static_cast<int64_t>(std::filesystem::file_size(scratch / "whole.h5"));
  for (int64_t n = bytes - 1; n >= 0; n -= 1 + n / 97) {
    INFO(n);
    std::filesystem::resize_file(scratch / "whole.h5", static_cast<uintmax_t>(n));
    CHECK_THROWS_AS(ShardFile(scratch / "whole.h5", false), DataError);
  }
}

TEST_CASE("any flipped bit is found, or changes nothing that is read") {
  const Scratch scratch;
  const std::vector<int64_t> lengths = {30, 5, 70};
  write_shard(scratch / "whole.h5", made_shard(lengths));
  const std::string whole = read_text_file(scratch / "whole.h5");
  const std::string path = scratch.write("flipped.h5", whole);
  const auto put = [&](size_t byte, int value) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(byte));
    file.put(static_cast<char>(value));
  };
  int found = 0;
  for (size_t bit = 0; bit < whole.size() * 8; bit += 5) {
    put(bit / 8, whole[bit / 8] ^ (1 << bit % 8));
    try {
      const ShardFile shard(path, true);
      shard.verify_all();
      for (int64_t i = 0; i < 3; ++i) {
        const std::vector<uint8_t> tokens = all_of(shard, i);
        REQUIRE(std::ssize(tokens) == lengths[static_cast<size_t>(i)]);
        for (int64_t p = 0; p < std::ssize(tokens); ++p) REQUIRE(tokens[static_cast<size_t>(p)] == made_residue(i, p));
        REQUIRE(shard.id(i) == "made_" + std::to_string(i));
      }
    } catch (const DataError&) {
      ++found;
    }
    put(bit / 8, whole[bit / 8]);
  }
  CHECK(found > 1000);
  CHECK_NOTHROW(ShardFile(path, true).verify_all());
}

TEST_CASE("damaged tokens are found when they are first read, and by verify_all()") {
  const Scratch scratch;
  const std::vector<int64_t> lengths = protein_lengths(2500);
  const ShardContent content = made_shard(lengths);
  write_shard(scratch / "s.h5", content);
  std::string bytes = read_text_file(scratch / "s.h5");
  const size_t tokens_at = bytes.find(std::string(content.tokens.begin(), content.tokens.begin() + 64));
  REQUIRE(tokens_at != std::string::npos);
  char& damaged = bytes[tokens_at + content.tokens.size() - 1];
  damaged = damaged == 5 ? 6 : 5;
  scratch.write("s.h5", bytes);
  const ShardFile lazy(scratch / "s.h5", true), trusting(scratch / "s.h5", false);
  CHECK_NOTHROW(all_of(lazy, 0));  // another chunk
  CHECK_THROWS_WITH(all_of(lazy, 2499), ContainsSubstring("checksum") && ContainsSubstring("s.h5"));
  CHECK_NOTHROW(all_of(trusting, 2499));
  CHECK_THROWS_AS(trusting.verify_all(), DataError);
  damaged = 99;  // a token that does not exist never reaches a model, checksums or not
  scratch.write("s.h5", bytes);
  CHECK_THROWS_WITH(all_of(ShardFile(scratch / "s.h5", false), 2499), ContainsSubstring("no residues"));
}

TEST_CASE("a disk that fills up at any point is an error with its reason, and the program ends cleanly") {
  const Scratch scratch;
  const ShardContent content = made_shard(protein_lengths(300));
  write_shard(scratch / "whole.h5", content);
  const auto bytes = static_cast<rlim_t>(std::filesystem::file_size(scratch / "whole.h5"));
  for (const rlim_t limit : {rlim_t{1}, rlim_t{100}, rlim_t{3000}, bytes / 4, bytes / 2, bytes - 1, 2 * bytes}) {
    std::cout.flush();
    const pid_t child = ::fork();
    if (child == 0) {
      ::signal(SIGXFSZ, SIG_IGN);
      const rlimit small{limit, limit};
      ::setrlimit(RLIMIT_FSIZE, &small);
      int code = 0;
      try {
        write_shard(scratch / "full.h5", content);
      } catch (const DataError& error) {
        code = std::string(error.what()).find("File too large") == std::string::npos ? 2 : 1;
      }
      std::exit(code);  // the libraries' own endings are part of the test
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    INFO(limit << " of " << bytes);
    REQUIRE(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == (limit < bytes ? 1 : 0));
    CHECK(std::filesystem::exists(scratch / "full.h5") == (limit > bytes));
    CHECK_FALSE(std::filesystem::exists(scratch / "full.h5.tmp"));
  }
}

TEST_CASE("shards open while another process holds a lock, whatever the environment says") {
  const Scratch scratch;
  write_shard(scratch / "s.h5", made_shard({30}));
  const FileDescriptor other(::open((scratch / "s.h5").c_str(), O_RDWR));
  REQUIRE(::flock(other.get(), LOCK_EX | LOCK_NB) == 0);
  for (const char* value : {"TRUE", "FALSE", "BEST_EFFORT"}) {
    ::setenv("HDF5_USE_FILE_LOCKING", value, 1);
    CHECK_NOTHROW(ShardFile(scratch / "s.h5", true));
  }
  ::unsetenv("HDF5_USE_FILE_LOCKING");
}

TEST_CASE("a folder with a missing or a strange shard is refused") {
  const Scratch scratch;
  std::filesystem::create_directory(scratch / "set");
  std::string previous;
  for (int64_t i = 0; i < 3; ++i) {
    ShardContent content = made_shard({10 + i});
    content.shard = i;
    content.last = i == 2;
    content.previous_hash = previous;
    previous = write_shard((scratch / "set") + "/" + shard_name(i), content);
  }
  CHECK(open_shard_folder(scratch / "set", true).size() == 3);
  CHECK(open_dataset({scratch / "set"}, {}).length(2) == 12);
  std::filesystem::rename(scratch / "set/shard-00002.h5", scratch / "kept");
  CHECK_THROWS_WITH(open_shard_folder(scratch / "set", true), ContainsSubstring("after shard-00001.h5 are missing"));
  std::filesystem::rename(scratch / "kept", scratch / "set/shard-00002.h5");
  std::filesystem::rename(scratch / "set/shard-00001.h5", scratch / "kept");
  CHECK_THROWS_WITH(open_shard_folder(scratch / "set", true), ContainsSubstring("shard-00001.h5 is missing"));
  ShardContent strange = made_shard({99});
  strange.shard = 1;
  write_shard(scratch / "set/shard-00001.h5", strange);
  CHECK_THROWS_WITH(open_shard_folder(scratch / "set", true), ContainsSubstring("another data set"));
}
