// CSV and TSV as people write them, through to records, reports and errors.
#include "data/table_reader.h"

#include <nlohmann/json.hpp>

#include "data/prepare.h"
#include "data_fixture.h"
#include "support/catch.h"

using namespace esm;
using namespace esm::data;
using namespace esm::data::test;

namespace {

using List = std::vector<std::pair<std::string, std::string>>;

struct Records : RecordSink {
  List all;
  std::string taken;
  int64_t skipped = 0;
  void begin_record(std::string_view id) override { all.emplace_back(id, ""); }
  void sequence(std::string_view piece) override { all.back().second += piece; }
  void end_record() override {}
  void skip_record(Skip) override { ++skipped; }
  void columns(std::string_view text) override { taken = text; }
};

Records read(const std::string& text, const TableOptions& options = {}, char delimiter = ',') {
  const Scratch scratch;
  const std::string path = scratch.write("t.csv", text);
  Records records;
  ByteSource source(path);
  read_table(source, "t.csv", delimiter, options, records);
  return records;
}

std::string complaint(const std::string& text, const TableOptions& options = {}, char delimiter = ',') {
  try {
    read(text, options, delimiter);
  } catch (const DataError& error) {
    return error.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("line ends, marks, quotes and blank lines do not change a table") {
  const List expected = {{"a", "MKV"}, {"b, the second", "LL"}, {"c", ""}};
  const std::string plain = "id,sequence,note\na,MKV,x\n\"b, the second\",LL,\nc,,y\n";
  std::string crlf, cr;
  for (const char c : plain) {
    crlf += c == '\n' ? "\r\n" : std::string(1, c);
    cr += c == '\n' ? '\r' : c;
  }
  const std::string variants[] = {
      plain,
      crlf,
      cr,
      "\xEF\xBB\xBF" + plain,
      plain.substr(0, plain.size() - 1),
      "\n  \n" + plain + "\n\r\n \n",
      "\"id\",\"sequence\",\"note\"\r\n\"a\",\"MKV\",\"x\"\r\n\"b, the second\",\"LL\",\"\"\r\n\"c\",\"\",\"y\"",
      "id , sequence,note\na,MKV,\"two\nlines, and \"\"quotes\"\"\"\n\"b, the second\" ,LL,5\" long\nc,,\n",
  };
  for (const std::string& text : variants) {
    INFO(text);
    const Records records = read(text);
    CHECK(records.all == expected);
    CHECK(records.taken == "sequences from column 'sequence', ids from 'id'");
  }
  std::string tabs = plain;
  for (char& c : tabs)
    if (c == ',') c = '\t';
  CHECK(read("sequence\tid\nMKV\ta,b\n", {}, '\t').all == List{{"a,b", "MKV"}});
  CHECK(read(tabs, {}, '\t').all[0] == expected[0]);
}

TEST_CASE("any border of a table may fall on the edge of a buffer") {
  for (const size_t length : {1048570, 1048571, 1048572, 1048573, 1048574, 1048575, 1048576, 1048577, 2500000}) {
    INFO(length);
    const std::string filler(length - 21, 'A');
    const auto records = read("sequence,id\r\n\"" + filler + "\",\"a\"\"\r\n\"\"\"\r\n\r\nMK,b\r\nV,c");
    CHECK(records.all == List{{"a\"\r\n\"", filler}, {"b", "MK"}, {"c", "V"}});
  }
}

TEST_CASE("the sequence column is found by its usual names or by the given one") {
  CHECK(read("Seq,Entry\nMK,a\n").all == List{{"a", "MK"}});
  CHECK(read("seq,SEQUENCE\nMK,VV\n").all == List{{"", "VV"}});
  CHECK(read("Sequence,sequence\nMK,VV\n").all == List{{"", "VV"}});
  CHECK(read("heavy,id,light\nMK,a,VV\n", {.sequence_column = "light"}).all == List{{"a", "VV"}});
  CHECK(read("heavy,id,name\nMK,a,b\n", {.sequence_column = "Heavy", .id_column = "name"}).all == List{{"b", "MK"}});
  CHECK(read("seq,id\nMK,a\n", {.id_column = "none"}).all == List{{"", "MK"}});
  CHECK(read("seq,target\nMK,1\nVV,\nLL, NaN \nAA,0\nGG,N/A\n").all == List{{"", "MK"}, {"", "AA"}});
  CHECK(read("seq,target\nMK,1\nVV,\n", {.target_column = "none"}).all.size() == 2);
  CHECK(read("seq,pH\nMK,1\nVV,\n", {.target_column = "ph"}).skipped == 1);
  CHECK(read("seq,id\n").all.empty());
}

TEST_CASE("what is wrong with a table is said with line and column") {
  CHECK(complaint("") == "t.csv: the table is empty: a first line with the names of its columns is wanted");
  CHECK_THAT(complaint("\nheavy,light\nMK,VV\n"), ContainsSubstring("t.csv:2:") &&
                                                      ContainsSubstring("'heavy', 'light'") &&
                                                      ContainsSubstring("sequence_column"));
  CHECK_THAT(complaint("seq,id\nMK,a\n", {.sequence_column = "sek"}),
             ContainsSubstring("t.csv:1: there is no column 'sek'") && ContainsSubstring("'seq', 'id'"));
  CHECK_THAT(complaint("seq,id\nMK,a\n", {.id_column = "nr"}), ContainsSubstring("no column 'nr'"));
  CHECK_THAT(complaint("seq,id\nMK,a\n", {.split = "train"}), ContainsSubstring("no column 'set'"));
  CHECK_THAT(complaint("seq,set,validation\nMK,train,maybe\n", {.split = "train"}),
             ContainsSubstring("t.csv:2: the column 'validation' holds 'maybe'; true or false expected"));
  CHECK_THAT(complaint("seq,seq\nMK,a\n"), ContainsSubstring("two columns are called 'seq' (fields 1 and 2)"));
  CHECK_THAT(complaint("id;sequence\na;MK\n"), ContainsSubstring("semicolons"));
  CHECK_THAT(complaint("id\tsequence\na\tMK\n"), ContainsSubstring("tabs"));
  CHECK_THAT(complaint(">a\nMK\n"), ContainsSubstring("FASTA"));
  CHECK_THAT(complaint("id,seq\na,MK\nb\n"), ContainsSubstring("t.csv:3: column 2: the row has 1 fields"));
  CHECK_THAT(complaint("id,seq\n\"a\n\n\",MK\nb,MK,x\n"), ContainsSubstring("t.csv:5: column 3: the row has 3 fields"));
  CHECK_THAT(complaint("id,seq\r\na,MK\r\nb,\"M\"K\r\n"), ContainsSubstring("t.csv:3: column 6: text follows"));
  CHECK_THAT(complaint("id,seq\na,MK\nbb,\"MK\nc,VV\n"), ContainsSubstring("t.csv:3: column 4: the quote that opens"));
  CHECK_THAT(complaint(std::string("id,seq\na,M\0K\n", 13)), ContainsSubstring("NUL byte at offset 10"));
}

TEST_CASE("a row of too many fields is refused, not only one of too much text") {
  // 33 MiB of commas: 8 bytes each.
  CHECK_THAT(complaint("id,seq\na," + std::string(33 << 20, ',')),
             ContainsSubstring("t.csv:2: a row that takes more than 256 MiB of memory (335"));
}

TEST_CASE("of a great many columns only the first are named") {
  std::string header;
  for (int i = 0; i < 1000; ++i) header += fmt::format("c{},", i);
  CHECK_THAT(complaint(header + "\n"), ContainsSubstring("'c0', 'c1', ") && ContainsSubstring("'c199' and 801 more"));
}

TEST_CASE("odd CSV files give the counts of their index") {
  const Scratch scratch;
  const PrepareReport plain = prepare({odd("csv/plain.csv")}, scratch / "plain", {});
  CHECK(plain.records == 6);
  CHECK(plain.usable == 6);
  CHECK(plain.splits == std::map<std::string, int64_t>{{"test", 2}, {"train", 3}, {"valid", 1}});
  const PrepareReport missing = prepare({odd("csv/missing_targets.csv")}, scratch / "missing", {});
  CHECK(missing.records == 5);
  CHECK(missing.usable == 2);
  CHECK(missing.skipped[static_cast<size_t>(Skip::kNoTarget)] == 3);
  const auto json = nlohmann::json::parse(read_text_file(scratch / "missing/report.json"));
  CHECK(json.at("skipped").at("no_target") == 3);
  CHECK(json.at("files")[0].at("columns") ==
        "sequences from column 'sequence', no ids, only rows with a value in 'target'");
  CHECK_THAT(read_text_file(scratch / "missing/report.txt"), ContainsSubstring("3 records without a value"));
  for (const auto& [split, usable] : std::map<std::string, int64_t>{{"train", 3}, {"valid", 1}, {"test", 2}}) {
    PrepareOptions options;
    options.table.split = split;
    const PrepareReport part = prepare({odd("csv/plain.csv")}, scratch / split, options);
    CHECK(part.usable == usable);
    CHECK(part.skipped[static_cast<size_t>(Skip::kOtherSplit)] == 6 - usable);
  }
}

TEST_CASE("a table is a data set like FASTA, and its columns are part of the cache's key") {
  const Scratch scratch;
  DatasetOptions options;
  options.cache_dir = scratch / "cache";
  const std::string table = scratch.write("t.csv", "name,heavy,light\na,MKV,LL\nb,GG,AAAA\n");
  CHECK_THROWS_WITH(open_dataset({table}, options), ContainsSubstring("'name', 'heavy', 'light'"));
  options.table.sequence_column = "heavy";
  const Dataset heavy = open_dataset({table, odd("fasta/lf.fasta")}, options);
  CHECK(heavy.size() == 2 + 5);
  CHECK(heavy.residues() == 5 + 510);
  CHECK(heavy.id(1) == "b");
  CHECK_THAT(heavy.report_text(), ContainsSubstring("sequences from column 'heavy', ids from 'name'"));
  options.table.sequence_column = "light";
  CHECK(open_dataset({table}, options).residues() == 6);
  options.table.sequence_column = "heavy";
  CHECK(open_dataset({table}, options).residues() == 5);
  CHECK_THROWS_WITH(open_dataset({"-"}, options), ContainsSubstring("standard input"));
}
