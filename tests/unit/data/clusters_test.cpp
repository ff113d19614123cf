// Drawing from clusters: the table, the index, one member a cluster and epoch, exact resume, mixtures.
#include "data/clusters.h"

#include <zlib.h>

#include <array>
#include <filesystem>
#include <map>
#include <set>

#include "data/cluster_table.h"
#include "data/loader.h"
#include "data/samples.h"
#include "data_fixture.h"
#include "support/catch.h"

using namespace esm;
using namespace esm::data;
using namespace esm::data::test;

namespace {

// Sequences made_0 .. made_59: clusters of 1, 2, 3, ... of them, the last five in none.
std::string table_text(char delimiter) {
  std::string text = fmt::format("cluster{0}note{0}member\n", delimiter);
  int64_t sequence = 0;
  for (int64_t cluster = 0; cluster < 10; ++cluster)
    for (int64_t i = 0; i <= cluster; ++i, ++sequence)
      text += fmt::format("C{1}{0}x{0} made_{2} \n", delimiter, cluster, sequence);
  // A member and a cluster that are not in the data, a row that stands there twice.
  text += fmt::format("C9{0}{0}absent\nGONE{0}{0}nobody\nC0{0}{0}made_0\n", delimiter);
  return text;
}
constexpr int64_t kClustered = 55, kSequences = 60, kClusters = 10;

int64_t cluster_of(int64_t sequence) {
  int64_t cluster = 0;
  for (int64_t end = 1; sequence >= end; end += cluster + 1) ++cluster;
  return cluster;
}

TrainingSet clustered(const Scratch& scratch, const std::vector<int64_t>& lengths, const std::string& name = "made") {
  TrainingSet set{.name = name, .data = made_set(scratch, lengths, name + ".h5")};
  set.clusters =
      open_clusters({scratch.write("table.tsv", table_text('\t'))}, set.data, {.cache_dir = scratch / "cache"});
  return set;
}

std::string error_of(const Scratch& scratch, const std::string& name, const std::string& text) {
  try {
    read_cluster_tables({scratch.write(name, text)}, [] {});
  } catch (const DataError& e) {
    return e.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a table and data become clusters, and everything that does not fit is counted") {
  const Scratch scratch;
  const Dataset set = made_set(scratch, protein_lengths(kSequences));
  const DatasetOptions options{.cache_dir = scratch / "cache"};
  const auto packed = [&] {
    gzFile file = gzopen((scratch / "t.csv.gz").c_str(), "wb");
    const std::string text = table_text(',');
    REQUIRE(gzwrite(file, text.data(), static_cast<unsigned>(text.size())) > 0);
    gzclose(file);
    return scratch / "t.csv.gz";
  };
  for (const std::string& table : {scratch.write("t.tsv", table_text('\t')), packed()}) {
    INFO(table);
    const auto index = open_clusters({table}, set, options);
    CHECK(index->counts() == ClusterCounts{.rows = kClustered + 3,
                                           .named_clusters = kClusters + 1,
                                           .named_members = kClustered + 2,
                                           .missing_members = 2,
                                           .dropped_clusters = 1,
                                           .clustered = kClustered,
                                           .left_out = 5});
    REQUIRE(index->size() == kClusters);
    std::set<int64_t> seen;
    for (int64_t c = 0; c < kClusters; ++c) {
      const auto members = index->members(c);
      CHECK(std::ssize(members) == cluster_of(members.front()) + 1);
      for (const uint32_t member : members) {
        CHECK(cluster_of(member) == cluster_of(members.front()));
        CHECK(seen.insert(member).second);
      }
    }
    CHECK(std::ssize(seen) == kClustered);
    CHECK_THAT(index->summary(), ContainsSubstring("10 clusters with 55 of the sequences") &&
                                     ContainsSubstring("5 sequences in no cluster are left out") &&
                                     ContainsSubstring("2 members are not in the data, 1 clusters without any"));
  }
}

TEST_CASE("the index is kept, made again when damaged, and another one for other content") {
  const Scratch scratch;
  const Dataset set = made_set(scratch, protein_lengths(kSequences));
  const DatasetOptions options{.cache_dir = scratch / "cache"};
  const std::string table = scratch.write("t.tsv", table_text('\t'));
  const std::string fingerprint = open_clusters({table}, set, options)->fingerprint();
  const auto kept = [&] {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(scratch / "cache"))
      if (entry.path().extension() == ".clusters") files.push_back(entry.path());
    return files;
  };
  REQUIRE(kept().size() == 1);
  const std::string path = kept()[0].string(), bytes = read_text_file(path);
  for (const size_t at : {size_t{0}, size_t{9}, size_t{20}, size_t{80}, bytes.size() - 1}) {
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    scratch.write("damaged", damaged);
    CHECK_THROWS_AS(ClusterIndex(scratch / "damaged", kSequences), DataError);
    write_file_atomically(path, damaged);
    CHECK(open_clusters({table}, set, options)->fingerprint() == fingerprint);
    CHECK(read_text_file(path) == bytes);
  }
  write_file_atomically(path, bytes.substr(0, 50));
  CHECK(open_clusters({table}, set, options)->size() == kClusters);
  CHECK_THROWS_AS(ClusterIndex(path, kSequences + 1), DataError);
  scratch.write("t.tsv", table_text('\t') + "C3\t\tmade_57\n");
  CHECK(open_clusters({table}, set, options)->fingerprint() != fingerprint);
  CHECK(kept().size() == 2);
}

TEST_CASE("a table that cannot be read is refused with its line") {
  const Scratch scratch;
  const std::string head = "cluster\tmember\n";
  CHECK(error_of(scratch, "good.tsv", head + "a\tb\n").empty());
  CHECK(error_of(scratch, "names.csv", "ur90_id,ur50_id\nb,a\n").empty());
  CHECK_THAT(error_of(scratch, "a.tsv", head + "a\tb\n\nc\td\te\n"),
             ContainsSubstring("a.tsv:4: column 3: the row has 3"));
  CHECK_THAT(error_of(scratch, "b.tsv", head + "a\tb\nc\t \n"),
             ContainsSubstring("b.tsv:3: the column 'member' is empty"));
  CHECK_THAT(error_of(scratch, "c.tsv", "a\tb\nc\td\n"),
             ContainsSubstring("c.tsv:1: there is no column 'cluster'. The columns are 'a', 'b'") &&
                 ContainsSubstring("cluster and member, separated by a tab"));
  CHECK_THAT(error_of(scratch, "d.csv", "cluster\n"), ContainsSubstring("d.csv:1: there is no column 'member'"));
  CHECK_THAT(error_of(scratch, "e.tsv", head), ContainsSubstring("has no rows"));
  CHECK_THAT(error_of(scratch, "f.tsv", ""), ContainsSubstring("the table is empty"));
  CHECK_THAT(error_of(scratch, "g.fasta", ">a\nMKV\n"),
             ContainsSubstring("a table of clusters is a .csv or .tsv file"));
  CHECK_THAT(error_of(scratch, "h.csv", "cluster,member\na,\"b\n"), ContainsSubstring("h.csv:2:"));
  const Dataset set = made_set(scratch, {10, 20});
  CHECK_THROWS_WITH(open_clusters({scratch / "good.tsv"}, set, {.cache_dir = scratch / "cache"}),
                    ContainsSubstring("none of the 1 members") && ContainsSubstring("first member is 'b'") &&
                        ContainsSubstring("'made_0'"));
  CHECK_THROWS_AS(
      open_clusters({scratch / "good.tsv"}, set, {.cache_dir = scratch / "cache", .should_stop = [] { return true; }}),
      PrepareStopped);
}

TEST_CASE("an epoch draws one member of each cluster, all members equally often") {
  const Scratch scratch;
  const TrainingSet set = clustered(scratch, std::vector<int64_t>(kSequences, 62));
  const SampleList samples(set.data, {.max_tokens = 64}, set.clusters);
  REQUIRE(samples.size() == kClusters);
  constexpr int64_t kEpochs = 11000;
  std::array<int, kSequences> counts{};
  for (int64_t epoch = 0; epoch < kEpochs; ++epoch) {
    std::set<int64_t> clusters;
    for (int64_t i = 0; i < kClusters; ++i) {
      const int64_t sequence = samples.at(7, epoch, i).sequence;
      clusters.insert(cluster_of(sequence));
      ++counts.at(static_cast<size_t>(sequence));
    }
    REQUIRE(std::ssize(clusters) == kClusters);
  }
  double chi2 = 0;
  for (int64_t i = 0; i < kClustered; ++i) {
    const double expected = static_cast<double>(kEpochs) / static_cast<double>(cluster_of(i) + 1);
    const double off = counts[static_cast<size_t>(i)] - expected;
    chi2 += off * off / expected;
  }
  CHECK(chi2 < 80.1);  // 45 degrees of freedom, 0.999
  for (int64_t i = kClustered; i < kSequences; ++i) CHECK(counts[static_cast<size_t>(i)] == 0);
}

TEST_CASE("with skip only members within the limit are drawn, and a cluster without any is passed over") {
  const Scratch scratch;
  std::vector<int64_t> lengths(kSequences, 30);
  lengths[0] = 300;                                   // the only member of C0
  for (const size_t i : {3, 5, 7}) lengths[i] = 300;  // some of C2 and C3
  const TrainingSet set = clustered(scratch, lengths);
  Loader loader({set}, {.seed = 1, .max_tokens = 64, .tokens_per_batch = 128, .overlong = Overlong::kSkip});
  std::set<int64_t> seen;
  Batch batch;
  for (int i = 0; i < 400; ++i) {
    loader.next(batch);
    for (const Segment& piece : batch.segments) seen.insert(piece.sequence);
  }
  CHECK(std::ssize(seen) == kClustered - 4);
  for (const int64_t i : {0, 3, 5, 7}) CHECK(seen.count(i) == 0);
  CHECK_THAT(loader.summary(), ContainsSubstring("one member of each of 10 clusters; 4 above 62 residues: skipped"));
  const TrainingSet none = clustered(scratch, std::vector<int64_t>(kSequences, 300), "none");
  CHECK_THROWS_AS(Loader({none}, {.max_tokens = 64, .tokens_per_batch = 128, .overlong = Overlong::kSkip}), DataError);
}

TEST_CASE("clusters resume exactly, alone and in a mixture, with any threads and ranks") {
  const Scratch scratch;
  const TrainingSet made = clustered(scratch, protein_lengths(kSequences));
  const TrainingSet plain{.name = "plain", .data = made_set(scratch, protein_lengths(70), "plain.h5"), .weight = 2};
  for (const std::vector<TrainingSet>& sets : {std::vector{made}, std::vector{made, plain}, std::vector{plain, made}}) {
    LoaderOptions options{.seed = 9, .max_tokens = 256, .tokens_per_batch = 1024, .pack_window = 30};
    Loader straight(sets, options);
    std::vector<Batch> batches(40);
    std::vector<LoaderState> states{straight.state()};
    std::map<std::pair<int64_t, int64_t>, int> drawn;  // (epoch, cluster) -> times
    const int64_t first = sets.front().name == "made" ? 0 : 70;
    for (Batch& batch : batches) {
      straight.next(batch);
      states.push_back(straight.state());
      for (const Segment& piece : batch.segments)
        if (piece.sequence >= first && piece.sequence < first + kSequences)
          CHECK(++drawn[{piece.epoch, cluster_of(piece.sequence - first)}] == 1);
    }
    CHECK(drawn.size() > 2 * kClusters);
    for (size_t from = 0; from < batches.size(); from += 6) {
      options.size = from % 4 == 0 ? 2 : 1;
      options.threads = static_cast<int64_t>(from % 3);
      Loader resumed(sets, options, LoaderState::from_integers(states[from].to_integers()));
      Batch batch;
      for (size_t i = from; i + 1 < batches.size() && i < from + 6; i += static_cast<size_t>(options.size)) {
        resumed.next(batch);
        REQUIRE(batch.tokens == batches[i].tokens);
        REQUIRE(batch.targets == batches[i].targets);
      }
    }
  }
}

TEST_CASE("ids come in bulk as one by one, also from several shards and without names") {
  const Scratch scratch;
  std::string text;
  for (int i = 0; i < 40000; ++i) text += fmt::format(">{}\nMKV\n", i % 7 == 0 ? "" : fmt::format("id{}", i));
  prepare({scratch.write("in.fasta", text)}, scratch / "set", {.max_shard_bytes = 50000});
  const Dataset set = open_dataset({scratch / "set"}, {});
  int64_t next = 0;
  set.visit_ids([&](int64_t i, std::string_view id) {
    REQUIRE(i == next++);
    REQUIRE(id == (i % 7 == 0 ? "" : fmt::format("id{}", i)));
    if (i % 997 == 0) REQUIRE(set.id(i) == id);
  });
  CHECK(next == 40000);
}
