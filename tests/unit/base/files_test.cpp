#include "base/files.h"

#include <csignal>
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
