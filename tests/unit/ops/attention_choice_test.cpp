#include "ops/attention_choice.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/files.h"
#include "ops/attention_choice_file.h"
#include "support/catch.h"

using namespace esm;
using ops::AttentionKind;
using ops::AttentionTiming;

TEST_CASE("synthetic proteins fill the pack and have protein lengths") {
  for (const int64_t tokens : {1, 29, 1024, 65536}) {
    const std::vector<int64_t> lengths = ops::protein_lengths(tokens, 1024, 7);
    CHECK(std::accumulate(lengths.begin(), lengths.end(), int64_t{0}) == tokens);
    CHECK(*std::max_element(lengths.begin(), lengths.end()) <= 1024);
    CHECK(std::all_of(lengths.begin(), lengths.end() - 1, [](int64_t n) { return n >= 30; }));
    CHECK(lengths == ops::protein_lengths(tokens, 1024, 7));
    if (tokens > 1024) CHECK(lengths != ops::protein_lengths(tokens, 1024, 8));
  }
  // The figures of the performance notes: 202 to 212 sequences in 65,536 tokens, mean of l^2 over mean of l about 430.
  const std::vector<int64_t> lengths = ops::protein_lengths(1 << 20, 1024, 3);
  double squares = 0;
  for (const int64_t n : lengths) squares += static_cast<double>(n * n);
  CHECK(lengths.size() > 16 * 195);
  CHECK(lengths.size() < 16 * 220);
  CHECK(squares / (1 << 20) > 410);
  CHECK(squares / (1 << 20) < 460);
  for (const int64_t n : ops::protein_lengths(4096, 20, 3)) CHECK(n <= 20);
}

TEST_CASE("the faster attention backend is chosen, the preferred one at a near tie") {
  const AttentionTiming slow{.kind = AttentionKind::kCudnn, .microseconds = 130},
      fast{.kind = AttentionKind::kFlash2, .microseconds = 100},
      near{.kind = AttentionKind::kCudnn, .microseconds = 101},
      refused{.kind = AttentionKind::kCudnn, .refusal = "takes head dimensions up to 128, not 192"};
  CHECK(ops::fastest({slow, fast}) == 1);
  CHECK(ops::fastest({fast, slow}) == 0);
  CHECK(ops::fastest({near, fast}) == 0);
  CHECK(ops::fastest({refused, fast}) == 1);
  CHECK(ops::fastest({refused}) == -1);
  CHECK(ops::AttentionChoice{.kind = AttentionKind::kFlash2, .timings = {slow, fast}}.text() ==
        "attention: flash2 (cudnn 130 us a layer; flash2 100 us a layer)");
  CHECK(ops::AttentionChoice{.kind = AttentionKind::kFlash2, .timings = {refused, fast}}.text() ==
        "attention: flash2 (cudnn takes head dimensions up to 128, not 192; flash2 100 us a layer)");
  CHECK(ops::AttentionChoice{.kind = AttentionKind::kSimple}.text() == "attention: simple");
}

TEST_CASE("which attention backend serves which head dimension on which device") {
  const auto serves = [](AttentionKind kind, int64_t head_dim, int capability) {
    return ops::attention_refusal(kind, {.head_dim = head_dim, .capability = capability}).empty();
  };
  for (const AttentionKind kind : {AttentionKind::kFlash2, AttentionKind::kCudnn, AttentionKind::kSimple}) {
    for (const int64_t head_dim : {16, 24, 32, 64, 80, 96, 128}) CHECK(serves(kind, head_dim, 90));
    for (const int64_t head_dim : {0, 20, 264}) CHECK_FALSE(serves(kind, head_dim, 90));
    CHECK(serves(kind, 192, 90) == (kind != AttentionKind::kCudnn));
    CHECK(serves(kind, 64, 100));
    CHECK(serves(kind, 64, 80) == (kind != AttentionKind::kCudnn));
    CHECK(serves(kind, 64, 120) == (kind != AttentionKind::kCudnn));
    CHECK(serves(kind, 64, 75) == (kind == AttentionKind::kSimple));
  }
}

TEST_CASE("attention choices survive the file, one a key, damage costs its line only") {
  const ScratchFolder folder("attention");
  const std::string path = folder.path() + "/attention.txt";
  const ops::AttentionSizes sizes{.tokens = 65536, .heads = 20, .head_dim = 64, .capacity = 256, .max_seqlen = 1024};
  ops::AttentionSizes other_sizes = sizes;
  other_sizes.max_seqlen = 2048;
  const std::string key = ops::attention_choice_key("NVIDIA H200", sizes),
                    other = ops::attention_choice_key("NVIDIA H200", other_sizes);
  CHECK(key != other);
  CHECK(key != ops::attention_choice_key("NVIDIA H100", sizes));
  CHECK_FALSE(ops::read_attention_choice(path, key).has_value());

  ops::write_attention_choice(path, key, {AttentionKind::kFlash2, 100});
  ops::write_attention_choice(path, other, {AttentionKind::kSimple, 250.5});
  ops::write_attention_choice(path, key, {AttentionKind::kCudnn, 90});
  CHECK(ops::read_attention_choice(path, key)->kind == AttentionKind::kCudnn);
  CHECK(ops::read_attention_choice(path, other)->kind == AttentionKind::kSimple);
  CHECK(ops::read_attention_choice(path, other)->microseconds == 250.5);

  const std::string content = read_text_file(path);
  for (const std::string damage : {"attention=cudnn", "attention=fast\tus=1\t", "attention=cudnn\tus=1x\t", "\n\t"}) {
    std::string damaged = content;
    damaged.replace(damaged.find("attention=cudnn\tus=90.0\t"), 24, damage);
    write_file_atomically(path, damaged);
    CHECK_FALSE(ops::read_attention_choice(path, key).has_value());
    CHECK(ops::read_attention_choice(path, other).has_value());
  }
  ops::write_attention_choice(path, key, {AttentionKind::kFlash2, 80});  // the damaged line goes
  CHECK(ops::read_attention_choice(path, key)->kind == AttentionKind::kFlash2);
  CHECK(read_text_file(path).size() < content.size() + 10);
  write_file_atomically(path, content.substr(0, content.size() - 1));  // cut off in the last line
  CHECK_FALSE(ops::read_attention_choice(path, key).has_value());
  write_file_atomically(path, std::string("\0\xff binary \n\n", 12));
  CHECK_FALSE(ops::read_attention_choice(path, key).has_value());
  CHECK_THROWS_AS(ops::read_attention_choice(folder.path(), key), DataError);
}
