// Shards that somebody made to do harm: sound HDF5, but not what the program writes.
#include <hdf5.h>
#include <sys/stat.h>

#include <functional>

#include "data_fixture.h"
#include "support/catch.h"

using namespace esm;
using namespace esm::data;
using namespace esm::data::test;

namespace {

constexpr int64_t kResidues = 735;

/// A sound shard that `change` then gets to work on, as an open HDF5 file.
std::string changed(const Scratch& scratch, const std::function<void(hid_t)>& change) {
  const std::string path = scratch / "s.h5";
  write_shard(path, made_shard({30, 5, 700}));
  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
  REQUIRE(file >= 0);
  change(file);
  REQUIRE(H5Fclose(file) >= 0);
  return path;
}

void refused(const std::function<void(hid_t)>& change, const std::string& words) {
  const Scratch scratch;
  const std::string path = changed(scratch, change);
  INFO(words);
  CHECK_THROWS_WITH(ShardFile(path, true), ContainsSubstring("s.h5") && ContainsSubstring(words));
  CHECK_THROWS_AS(ShardFile(path, true), DataError);
}

/// A dataset of `count` values in the place of `name`.
void replace(hid_t file, const char* name, hid_t type, std::vector<hsize_t> dims,
             const std::function<void(hid_t)>& set_up = {}) {
  REQUIRE(H5Ldelete(file, name, H5P_DEFAULT) >= 0);
  const hid_t space = H5Screate_simple(static_cast<int>(dims.size()), dims.data(), nullptr);
  const hid_t plist = H5Pcreate(H5P_DATASET_CREATE);
  if (set_up) set_up(plist);
  const hid_t set = H5Dcreate2(file, name, type, space, H5P_DEFAULT, plist, H5P_DEFAULT);
  REQUIRE(set >= 0);
  H5Dclose(set);
  H5Pclose(plist);
  H5Sclose(space);
}

void set_attribute(hid_t file, const char* name, hid_t type, const void* value, hsize_t count = 1) {
  REQUIRE(H5Adelete(file, name) >= 0);
  const hid_t space = H5Screate_simple(1, &count, nullptr);
  const hid_t attribute = H5Acreate2(file, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
  REQUIRE(H5Awrite(attribute, type, value) >= 0);
  H5Aclose(attribute);
  H5Sclose(space);
}

}  // namespace

TEST_CASE("links that lead out of their place are refused") {
  refused(
      [](hid_t file) {
        REQUIRE(H5Lmove(file, "tokens", file, "elsewhere", H5P_DEFAULT, H5P_DEFAULT) >= 0);
        REQUIRE(H5Lcreate_soft("/elsewhere", file, "tokens", H5P_DEFAULT, H5P_DEFAULT) >= 0);
      },
      "'tokens' is a link to another place");
  const Scratch other;
  write_shard(other / "other.h5", made_shard({30, 5, 700}));
  refused(
      [&](hid_t file) {
        REQUIRE(H5Ldelete(file, "ids", H5P_DEFAULT) >= 0);
        REQUIRE(H5Lcreate_external((other / "other.h5").c_str(), "/ids", file, "ids", H5P_DEFAULT, H5P_DEFAULT) >= 0);
      },
      "'ids' is a link to another place");
}

TEST_CASE("storage anywhere but in one piece of the file itself is refused") {
  const hsize_t chunk = 64;
  refused(
      [&](hid_t file) {
        replace(file, "tokens", H5T_STD_U8LE, {kResidues}, [&](hid_t plist) {
          H5Pset_chunk(plist, 1, &chunk);
          H5Pset_deflate(plist, 6);
        });
      },
      "'tokens' is not contiguous");
  refused(
      [&](hid_t file) {  // a filter that would be a plug-in
        replace(file, "tokens", H5T_STD_U8LE, {kResidues}, [&](hid_t plist) {
          H5Pset_chunk(plist, 1, &chunk);
          H5Pset_filter(plist, 32015, H5Z_FLAG_OPTIONAL, 0, nullptr);
        });
      },
      "'tokens' is not contiguous");
  const Scratch other;
  const std::string secret = other.write("secret", std::string(kResidues, 5));
  refused(
      [&](hid_t file) {
        replace(file, "tokens", H5T_STD_U8LE, {kResidues},
                [&](hid_t plist) { H5Pset_external(plist, secret.c_str(), 0, kResidues); });
      },
      "'tokens' is not contiguous");
  refused(
      [&](hid_t file) {
        const hsize_t dims = kResidues, endless = H5S_UNLIMITED;
        const hid_t source = H5Screate_simple(1, &dims, nullptr), virtual_space = H5Screate_simple(1, &dims, &endless);
        replace(file, "tokens", H5T_STD_U8LE, {kResidues},
                [&](hid_t plist) { H5Pset_virtual(plist, source, (other / "other.h5").c_str(), "/tokens", source); });
        H5Sclose(source);
        H5Sclose(virtual_space);
      },
      "'tokens' is not contiguous");
}

TEST_CASE("types and shapes other than ours are refused") {
  const hid_t endless = H5Tvlen_create(H5T_STD_U8LE);
  refused([&](hid_t file) { replace(file, "ids", endless, {18}); }, "'ids' has another element type");
  H5Tclose(endless);
  refused([](hid_t file) { replace(file, "tokens", H5T_STD_U16LE, {kResidues}); }, "another element type");
  refused([](hid_t file) { replace(file, "lengths", H5T_STD_U32BE, {3}); }, "another element type");
  refused([](hid_t file) { replace(file, "tokens", H5T_STD_U8LE, {kResidues, 1}); }, "values, not 735");
  refused([](hid_t file) { replace(file, "tokens", H5T_STD_U8LE, {hsize_t{1} << 62}); }, "values, not 735");
  refused([](hid_t file) { replace(file, "id_offsets", H5T_STD_I64LE, {0}); }, "values, not 4");
  // Never written, so without a place in the file.
  refused([](hid_t file) { replace(file, "checksums", H5T_STD_U64LE, {1}); }, "reaches beyond the end");
  refused(
      [](hid_t file) {
        REQUIRE(H5Ldelete(file, "tokens", H5P_DEFAULT) >= 0);
        H5Gclose(H5Gcreate2(file, "tokens", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
      },
      "'tokens' is missing or damaged");
}

TEST_CASE("numbers that would overflow, and texts without an end, are refused") {
  const auto number = [](const char* name, int64_t value, const std::string& words) {
    refused([&](hid_t file) { set_attribute(file, name, H5T_NATIVE_INT64, &value); }, words);
  };
  for (const int64_t value : {INT64_MAX, INT64_MIN, int64_t{-1}, INT64_MAX / 8 + 1}) {
    number("records", value, "the file is damaged");
    number("residues", value, "the file is damaged");
    number("chunk_bytes", value, "chunk_bytes is");
  }
  number("chunk_bytes", 0, "chunk_bytes is 0");
  number("format_version", INT64_MAX, "version 9223372036854775807");
  const std::array<int64_t, 2> pair{3, 3};
  refused([&](hid_t file) { set_attribute(file, "records", H5T_NATIVE_INT64, pair.data(), 2); }, "not a single value");
  const double real = 3;
  refused([&](hid_t file) { set_attribute(file, "records", H5T_NATIVE_DOUBLE, &real); }, "not an integer");
  const hid_t text = H5Tcopy(H5T_C_S1);
  H5Tset_size(text, H5T_VARIABLE);
  const char* format = "esmtrain-tokens";
  refused([&](hid_t file) { set_attribute(file, "format", text, &format); }, "not a short text");
  const hid_t wide = H5Tcopy(H5T_C_S1);
  REQUIRE(H5Tset_size(wide, 5000) >= 0);
  const std::string long_text(5000, 'x');
  refused([&](hid_t file) { set_attribute(file, "tokenizer", wide, long_text.data()); }, "not a short text");
  H5Tclose(wide);
  H5Tclose(text);
}

TEST_CASE("opening a shard switches HDF5's plug-ins off, and does not wait at a pipe") {
  const Scratch scratch;
  REQUIRE(H5PLset_loading_state(H5PL_ALL_PLUGIN) >= 0);
  const ShardFile sound(changed(scratch, [](hid_t) {}), true);
  unsigned state = H5PL_ALL_PLUGIN;
  REQUIRE(H5PLget_loading_state(&state) >= 0);
  CHECK(state == 0);
  REQUIRE(::mkfifo((scratch / "pipe.h5").c_str(), 0600) == 0);
  CHECK_THROWS_WITH(ShardFile(scratch / "pipe.h5", true), ContainsSubstring("not a regular file"));
}
