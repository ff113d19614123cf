#include "base/files.h"

#include <sys/resource.h>

#include <csignal>
#include <cstring>
#include <filesystem>

#include "base/check.h"
#include "base/signals.h"
#include "support/catch.h"

using namespace esm;
namespace fs = std::filesystem;

TEST_CASE("atomic write replaces the whole file and leaves nothing behind") {
  const ScratchFolder scratch("esm-files");
  const std::string path = scratch.path() + "/a.txt";
  write_file_atomically(path, "one");
  write_file_atomically(path, "two");
  CHECK(read_text_file(path) == "two");
  CHECK(std::distance(fs::directory_iterator(scratch.path()), {}) == 1);
}

TEST_CASE("file errors name the path and the reason") {
  const ScratchFolder scratch("esm-files");
  CHECK_THROWS_WITH(read_text_file(scratch.path() + "/none"),
                    ContainsSubstring("/none") && ContainsSubstring("No such file"));
  CHECK_THROWS_WITH(write_file_atomically(scratch.path() + "/no/folder", ""), ContainsSubstring("No such file"));
  CHECK_THROWS_AS(MappedFile(scratch.path()), DataError);
}

TEST_CASE("mapped files") {
  const ScratchFolder scratch("esm-files");
  write_file_atomically(scratch.path() + "/m", "xyz");
  write_file_atomically(scratch.path() + "/empty", "");
  const MappedFile map(scratch.path() + "/m");
  REQUIRE(map.bytes().size() == 3);
  CHECK(static_cast<char>(map.bytes()[2]) == 'z');
  CHECK(MappedFile(scratch.path() + "/empty").bytes().empty());
}

TEST_CASE("appended lines are there at once") {
  const ScratchFolder scratch("esm-files");
  LineAppender log(scratch.path() + "/log");
  log.append("a");
  CHECK(read_text_file(scratch.path() + "/log") == "a\n");
  LineAppender(scratch.path() + "/log").append("b");
  CHECK(read_text_file(scratch.path() + "/log") == "a\nb\n");
}

TEST_CASE("what cannot be appended waits, and nothing of it is in the file") {
  const ScratchFolder scratch("esm-files");
  const std::string path = scratch.path() + "/log";
  LineAppender log(path);
  log.append("first");
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit full{.rlim_cur = 9, .rlim_max = before.rlim_max};  // three bytes more
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &full) == 0);
  std::string error;
  for (const char* line : {"second", "third"}) try {
      log.append(line);
    } catch (const DataError& e) {
      error += e.what();
    }
  const std::string seen = read_text_file(path);
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
  std::signal(SIGXFSZ, handler);
  CHECK_THAT(error, ContainsSubstring("cannot write " + path) && ContainsSubstring(std::strerror(EFBIG)));
  CHECK(seen == "first\n");
  SECTION("until the next call") { log.append("fourth"); }
  SECTION("until somebody asks") {
    log.flush();
    log.append("fourth");
  }
  CHECK(read_text_file(path) == "first\nsecond\nthird\nfourth\n");
}

TEST_CASE("a scratch folder goes away with its content") {
  std::string path;
  {
    const ScratchFolder scratch("esm-files");
    path = scratch.path();
    write_file_atomically(path + "/x", "x");
  }
  CHECK_FALSE(fs::exists(path));
}

TEST_CASE("stop signals set a flag and a quick second one changes nothing") {
  StopSignals signals;
  CHECK(StopSignals::received() == 0);
  std::raise(SIGTERM);
  std::raise(SIGINT);
  CHECK(StopSignals::received() == SIGTERM);
  CHECK(StopSignals::name(SIGUSR1) == "SIGUSR1");
}
