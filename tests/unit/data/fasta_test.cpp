// Reading FASTA as people write it, through to records and errors.
#include <zlib.h>
#include <zstd.h>

#include <fstream>

#include "base/error.h"
#include "base/files.h"
#include "data/fasta_reader.h"
#include "data/readers.h"
#include "support/catch.h"

using namespace esm;
using namespace esm::data;

namespace {

struct Records : RecordSink {
  std::vector<std::pair<std::string, std::string>> all;
  int64_t comments = 0;
  bool open = false;
  void begin_record(std::string_view id) override {
    REQUIRE_FALSE(open);
    open = true;
    all.emplace_back(id, "");
  }
  void sequence(std::string_view piece) override {
    REQUIRE(open);
    for (const char c : piece)
      if (c != ' ' && c != '\t') all.back().second += c;
  }
  void end_record() override { open = false; }
  void skip_record(Skip) override { FAIL("FASTA leaves no record out"); }
  void comment_line() override { ++comments; }
};

class Folder {
 public:
  std::string write(const std::string& name, const std::string& content) {
    const std::string path = scratch_.path() + "/" + name;
    std::ofstream(path, std::ios::binary) << content;
    return path;
  }
  const std::string& path() const { return scratch_.path(); }

 private:
  ScratchFolder scratch_{"esm-fasta"};
};

Records read(const std::string& path) {
  Records records;
  ByteSource source(path);
  read_fasta(source, path, records);
  CHECK_FALSE(records.open);
  return records;
}

using List = std::vector<std::pair<std::string, std::string>>;

std::string gzip(const std::string& text) {
  z_stream stream{};
  REQUIRE(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string out(text.size() + 100, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  REQUIRE(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  out.resize(out.size() - stream.avail_out);
  deflateEnd(&stream);
  return out;
}

std::string zstd(const std::string& text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  const size_t n = ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3);
  REQUIRE(ZSTD_isError(n) == 0);
  out.resize(n);
  return out;
}

}  // namespace

TEST_CASE("line ends, marks, blanks and comments do not change the records") {
  Folder folder;
  const List expected = {{"a", "MKVLA"}, {"b", ""}, {"c", "GG"}};
  const std::string plain = ">a first\nMKV\nLA\n>b\n>c\nGG\n";
  const std::string mark = "\xEF\xBB\xBF";
  const std::string variants[] = {
      plain,
      ">a first\r\nMKV\r\nLA\r\n>b\r\n>c\r\nGG\r\n",
      ">a first\rMKV\rLA\r>b\r>c\rGG\r",
      ">a first\nMKV\nLA\n>b\n>c\nGG",
      mark + plain,
      "\n \n\t\n" + plain + "\n\n  ",
      ">a\tfirst\n\nM KV\n  \nLA\t\n\n> b\n\n  >c x\nGG",
      "; one\n;two\n>a\nMKV\n; three > not a record\nLA\n>b\n>c\nGG\n;",
      mark + ">a\nMKV\nLA\n" + mark + ">b\n>c\nGG\n",
  };
  for (const std::string& text : variants) {
    INFO(text);
    CHECK(read(folder.write("x.fasta", text)).all == expected);
    CHECK(read(folder.write("x.gz", gzip(text))).all == expected);
    CHECK(read(folder.write("x.zst", zstd(text))).all == expected);
  }
  CHECK(read(folder.write("x.fasta", variants[7])).comments == 4);
}

TEST_CASE("a record may be on one line of any length, and any border may fall on the edge of a buffer") {
  Folder folder;
  for (const size_t length : {size_t{1048570}, size_t{1048571}, size_t{1048572}, size_t{1048573}, size_t{1048574},
                              size_t{1048575}, size_t{1048576}, size_t{1048577}, size_t{3000000}}) {
    const std::string residues(length, 'A');
    const auto records = read(folder.write("long.fasta", ">x\n" + residues + "\r\n\xEF\xBB\xBF>y\r\nMK\r\n;c\r\nL"));
    INFO(length);
    REQUIRE(records.all.size() == 2);
    CHECK(records.all[0].second.size() == length);
    CHECK(records.all[1] == std::pair<std::string, std::string>("y", "MKL"));
    CHECK(records.comments == 1);
  }
  // Blanks over more than a buffer, and a header of that length.
  CHECK(read(folder.write("b.fasta", std::string(2500000, ' ') + ">x " + std::string(2500000, 'h') + "\nMK")).all ==
        List{{"x", "MK"}});
}

TEST_CASE("an empty file has no records") {
  Folder folder;
  CHECK(read(folder.write("empty.fasta", "")).all.empty());
  CHECK(read(folder.write("blank.fasta", "\n \n")).all.empty());
  CHECK(read(folder.write("empty.gz", gzip(""))).all.empty());
}

TEST_CASE("all members of a gzip file are read, with zero padding after them") {
  Folder folder;
  const std::string members = gzip(">a\nMK") + gzip("") + gzip("V\n>b\nL") + std::string(1000, '\0');
  CHECK(read(folder.write("x.fasta.gz", members)).all == List{{"a", "MKV"}, {"b", "L"}});
}

TEST_CASE("a gzip file cut anywhere, or with a changed byte, is refused by name") {
  Folder folder;
  std::string text = ">a\n";
  for (int i = 0; i < 400; ++i) text += static_cast<char>('A' + i * i % 23);
  const std::string whole = gzip(text);
  for (size_t n = 2; n < whole.size(); ++n) {
    const std::string path = folder.write("cut.fasta.gz", whole.substr(0, n));
    INFO(n);
    CHECK_THROWS_WITH(read(path), ContainsSubstring("cut.fasta.gz") && ContainsSubstring("cut"));
  }
  std::string damaged = whole;
  damaged[damaged.size() - 6] ^= 1;  // the stored CRC
  CHECK_THROWS_WITH(read(folder.write("d.gz", damaged)), ContainsSubstring("d.gz") && ContainsSubstring("damaged"));
  CHECK_THROWS_WITH(read(folder.write("t.gz", whole + "tail")), ContainsSubstring("damaged"));
}

TEST_CASE("all frames of a zstd file are read; one that is cut or changed is refused by name") {
  Folder folder;
  std::string skippable("\x50\x2A\x4D\x18\x03\0\0\0abc", 11);
  CHECK(read(folder.write("x.fasta.zst", zstd(">a\nMK") + skippable + zstd("") + zstd("V\n>b\nL"))).all ==
        List{{"a", "MKV"}, {"b", "L"}});
  std::string text = ">a\n";
  for (int64_t i = 0; i < 3000000; ++i) text += static_cast<char>('A' + i * i % 23);
  const std::string whole = zstd(text);
  CHECK(read(folder.write("x.zst", whole)).all[0].second.size() == 3000000);
  for (size_t n = 4; n < whole.size(); n += 1 + n / 50) {
    INFO(n);
    CHECK_THROWS_WITH(read(folder.write("cut.zst", whole.substr(0, n))),
                      ContainsSubstring("cut.zst") && ContainsSubstring("cut ("));
  }
  CHECK_THROWS_WITH(read(folder.write("t.zst", whole + "tail")),
                    ContainsSubstring("t.zst") && ContainsSubstring("damaged"));
}

TEST_CASE("the first bytes of a small zstd file do not get it gigabytes of memory") {
  Folder folder;
  const auto with_window = [&](int log) {  // a frame header, and nothing in it
    return folder.write("w.zst", std::string("\x28\xB5\x2F\xFD\0", 5) + static_cast<char>((log - 10) << 3));
  };
  for (const int log : {28, 30, 31})
    CHECK_THROWS_WITH(read(with_window(log)), ContainsSubstring("w.zst") && ContainsSubstring("asks for a window"));
  CHECK_THROWS_WITH(read(with_window(27)), ContainsSubstring("cut ("));
}

TEST_CASE("what is no FASTA is refused with path and line") {
  Folder folder;
  CHECK_THROWS_WITH(read(folder.write("t.fasta", "\n\nMKV\n>a\nMK")),
                    ContainsSubstring("t.fasta:3:") && ContainsSubstring("MKV"));
  CHECK_THROWS_WITH(read(folder.write("q.fasta", "@read\nACGT\n+\nIIII\n")), ContainsSubstring("FASTQ"));
  CHECK_THROWS_WITH(read(folder.write("b.fasta", std::string(">a\nMK\0V", 7))),
                    ContainsSubstring("NUL byte at offset 5"));
  CHECK_THROWS_WITH(read(folder.write("u.fasta", std::string("\xFF\xFE>\0a\0", 6))), ContainsSubstring("UTF-16"));
  CHECK_THROWS_WITH(read(folder.write("z.fasta", "BZh9xxxx")), ContainsSubstring("bunzip2"));
  CHECK_THROWS_WITH(read(folder.write("l.fasta", ">a SET=train VALIDATION=False\nHHH\n")), ContainsSubstring("labels"));
  CHECK_THROWS_AS(read(folder.path() + "/nothing.fasta"), DataError);
  CHECK_THROWS_WITH(read(folder.path() + "/nothing.fasta"), ContainsSubstring("nothing.fasta"));
  CHECK_THROWS_WITH(read(folder.path()), ContainsSubstring("is a folder"));
}

TEST_CASE("patterns are sorted, and one without a match is an error that names it") {
  Folder folder;
  const std::string b = folder.write("b.fa", ""), a = folder.write("a.fa", ""), odd = folder.write("o[1].fa", "");
  CHECK(expand_paths({folder.path() + "/?.fa"}) == std::vector{a, b});
  CHECK(expand_paths({b, a}) == std::vector{b, a});
  CHECK(expand_paths({odd}) == std::vector{odd});
  CHECK_THROWS_WITH(expand_paths({folder.path() + "/*.faa"}), ContainsSubstring("/*.faa"));
}

TEST_CASE("the name of a file says its format, unless it is given") {
  for (const char* name : {"x.fasta", "x.fasta.gz", "x.seq", "x.zst", "-"}) CHECK(format_of(name).name == "fasta");
  for (const char* name : {"x.csv", "x.csv.gz", "X.CSV.ZST", "x.csv.zstd"}) CHECK(format_of(name).name == "csv");
  for (const char* name : {"x.tsv", "x.tsv.gz", "x.tsv.zst"}) CHECK(format_of(name).name == "tsv");
  CHECK(format_of("-", "csv").name == "csv");
  CHECK(format_of("x.csv", "fasta").name == "fasta");
  CHECK_THROWS_WITH(format_of("dir/t.parquet"),
                    ContainsSubstring("dir/t.parquet") && ContainsSubstring("duckdb") && ContainsSubstring("CSV"));
}
