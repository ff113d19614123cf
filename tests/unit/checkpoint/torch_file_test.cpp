// Files of torch.save: what they may hold, what is refused, and that no damage goes unnoticed or does harm.
#include "checkpoint/torch_file.h"

#include <cstring>
#include <map>
#include <random>

#include "base/check.h"
#include "base/files.h"
#include "support/catch.h"
#include "support/zip_file.h"

using namespace std::string_literals;

namespace esm::checkpoint {
namespace {

using Kind = PickledValue::Kind;
const std::string kFiles = ESM_SOURCE_DIR "/tests/data/fair_esm/";

Pickle read(const std::string& program) { return Pickle(std::as_bytes(std::span(program)), "data.pkl"); }

std::string refusal(const std::string& program) {
  try {
    read(program);
    return "";
  } catch (const CheckpointError& e) {
    return e.what();
  }
}

std::string word(const std::string& text) { return "X"s + static_cast<char>(text.size()) + "\0\0\0"s + text; }

// A pickle of {"model": {"w": tensor}} over storage "0", 8 floats; numbers below 256.
std::string one_tensor(const std::string& arguments) {
  const std::string storage = "(" + word("storage") + "ctorch\nFloatStorage\n" + word("0") + word("cpu") + "K\x08tQ";
  return "\x80\x02}" + word("model") + "}" + word("w") + "ctorch._utils\n_rebuild_tensor_v2\n(" + storage + arguments +
         "\x89" + "ccollections\nOrderedDict\n)RtRss.";
}

std::string eight_floats() {
  std::string bytes;
  for (int i = 0; i < 8; ++i) {
    const auto value = static_cast<float>(i);
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  return bytes;
}

// The values of "w", or what is wrong with it.
std::string load_one(const std::string& arguments) {
  const ScratchFolder scratch("torch-file");
  const std::string path = scratch.path() + "/a.pt";
  write_file_atomically(
      path,
      test::stored_zip({{"a/data.pkl", one_tensor(arguments)}, {"a/version", "3\n"}, {"a/data/0", eight_floats()}}));
  try {
    TorchFile file(path);
    file.load(*file.pickle().find(file.pickle().root(), "model"));
    const TensorRef& tensor = file.tensors().at(0);
    std::string text = shape_text(tensor.shape) + ":";
    for (size_t i = 0; i < tensor.bytes.size() / 4; ++i) {
      float value = 0;
      std::memcpy(&value, tensor.bytes.data() + 4 * i, 4);
      text += fmt::format(" {}", value);
    }
    return text;
  } catch (const CheckpointError& e) {
    return e.what();
  }
}

}  // namespace

TEST_CASE("a pickle: containers, numbers and text") {
  const Pickle pickle = read("\x80\x02}q\0("s + word("a") + "K\xff" + word("b") + "M\xff\xff" + word("c") +
                             "J\xfe\xff\xff\xff"s + word("d") + "\x8a\x01\xff" + word("e") + "\x8a\x06\0\0\0\0\0\x01"s +
                             word("f") + "G\x3f\xf8\0\0\0\0\0\0"s + word("g") + "N" + word("h") + "\x88" + word("i") +
                             "](K\x01K\x02"s + "e" + word("j") + "h\0"s + word("a") + "K\x07u.");
  const auto number = [&](const char* key) { return pickle.find(pickle.root(), key)->number; };
  CHECK(number("a") == 7);  // the last one counts
  CHECK(number("b") == 65535);
  CHECK(number("c") == -2);
  CHECK(number("d") == -1);
  CHECK(number("e") == int64_t{1} << 40);
  CHECK(pickle.find(pickle.root(), "f")->real == 1.5);
  CHECK(pickle.find(pickle.root(), "g")->kind == Kind::kNone);
  CHECK(number("h") == 1);
  CHECK(pickle.find(pickle.root(), "i")->items.size() == 2);
  CHECK(pickle.find(pickle.root(), "j") == &pickle.root());  // a dict that holds itself
  CHECK(pickle.find(pickle.root(), "k") == nullptr);
}

TEST_CASE("a pickle that calls for anything but weights is refused by name") {
  CHECK_THAT(refusal("\x80\x02"
                     "cos\nsystem\n" +
                     word("id") + "\x85R."),
             ContainsSubstring("'os.system'") && ContainsSubstring("nothing of it was run"));
  for (const char* name :
       {"posix\nsystem", "builtins\neval", "__builtin__\neval", "torch\nload", "torch._utils\n_rebuild_parameter",
        "collections\nOrderedDict.fromkeys", "argparse\nFileType", "torch\nFloatStorage.from_file",
        "numpy.core.multiarray\n_reconstruct"})
    CHECK_THAT(refusal("\x80\x02"s + "c" + name + "\n."), ContainsSubstring("calls for '"));
  // Other ways to reach a name or to call one: protocols 0, 1 and 4.
  for (const std::string& code : {"(S'id'\nios\nsystem\n."s, "(cos\nsystem\no."s, "\x8c\x02os\x8c\x06system\x93."s,
                                  "\x82\x01."s, "P0\n."s, "B\0\0\0\0."s})
    CHECK_FALSE(refusal("\x80\x02" + code).empty());
  CHECK_THAT(refusal("\x80\x04N."), ContainsSubstring("protocol 4"));
  CHECK_THAT(refusal("\x80\x02i."), ContainsSubstring("opcode 0x69"));
}

TEST_CASE("a pickle whose machine would run off its stack is damaged") {
  for (const std::string& code : {"."s,
                                  "t."s,
                                  "q\0."s,
                                  "h\0."s,
                                  "NN."s,
                                  "(N."s,
                                  "Na."s,
                                  "N)R."s,
                                  "}Ns."s,
                                  "](Ne("s,
                                  "}(Nu."s,
                                  "(N(R."s,
                                  "}K\1K\2b."s,
                                  "cargparse\nNamespace\nK\1\x85\x81."s,
                                  "ccollections\nOrderedDict\nN\x85R."s,
                                  "(K\1Q."s,
                                  "X\xff\xff\xff\xff"s
                                  "abc."s,
                                  "ctorch\nFloatStorage\n)R."s,
                                  "\x8a\x09"s
                                  "123456789."s,
                                  "cos"s,
                                  ""s})
    CHECK_THAT(refusal("\x80\x02" + code), ContainsSubstring("damaged at byte"));
  CHECK_FALSE(refusal("").empty());
  CHECK_FALSE(refusal("hello").empty());
}

std::string four_bytes(size_t n) {
  std::string bytes;
  for (int i = 0; i < 4; ++i) bytes += static_cast<char>(n >> (8 * i) & 255);
  return bytes;
}

TEST_CASE("a pickle that makes much of few bytes is refused: what is kept once may be used a million times") {
  const auto storages = [](size_t name_bytes, int n) {
    std::string program = "\x80\x02]((" + word("storage") + "ctorch\nFloatStorage\nX" + four_bytes(name_bytes) +
                          std::string(name_bytes, '7') + word("cpu") + "K\x08tq\1";
    for (int i = 0; i < n; ++i) program += "h\1Q";
    return program + "e.";
  };
  CHECK(read(storages(256, 10'000)).root().items.size() == 10'001);
  CHECK_THAT(refusal(storages(257, 1)), ContainsSubstring("the name of a storage has 257 bytes, 256 are the most"));
  // 10 GB if each storage had its copy of the name.
  CHECK_THAT(refusal(storages(1 << 20, 10'000)), ContainsSubstring("the name of a storage has 1048576 bytes"));
  CHECK_THAT(refusal(storages(256, 100'001)), ContainsSubstring("more than 100000 storages and tensors"));

  std::string tensors =
      "\x80\x02"
      "ctorch._utils\n_rebuild_tensor_v2\nq\2((" +
      word("storage") + "ctorch\nFloatStorage\n" + word("0") + word("cpu") + "K\x08tQK\0"s +
      "(K\1K\1K\1K\1tq\3h\3\x89" + "Ntq\4";
  for (int i = 0; i < 100'000; ++i) tensors += "h\2h\4R";
  CHECK_THAT(refusal(tensors + "."), ContainsSubstring("more than 100000 storages and tensors"));

  std::string kept = "\x80\x02N";
  for (size_t i = 0; i <= 1'000'000; ++i) kept += "r" + four_bytes(i);
  CHECK_THAT(refusal(kept + "."), ContainsSubstring("more than 1000000 values are kept"));
  CHECK_THAT(refusal("\x80\x02" + std::string(1'000'001, '(') + "."), ContainsSubstring("more than 1000000 marks"));
  CHECK_THAT(refusal("\x80\x02" + std::string(1'000'001, 'N') + "."), ContainsSubstring("more than 1000000 values"));
}

TEST_CASE("tensors of a file: dense ones, views, and those that reach too far") {
  CHECK(load_one("K\0K\x08\x85K\x01\x85"s) == "[8]: 0 1 2 3 4 5 6 7");
  CHECK(load_one("K\x02K\x02K\x03\x86K\x03K\x01\x86") == "[2, 3]: 2 3 4 5 6 7");
  CHECK(load_one("K\0K\x02K\x03\x86K\x01K\x02\x86"s) == "[2, 3]: 0 2 4 1 3 5");
  CHECK(load_one("K\x07))") == "[]: 7");
  CHECK(load_one("K\x08K\0\x85K\x01\x85"s) == "[0]:");
  CHECK(load_one("K\x05K\x01K\x02\x86J\xff\xff\xff\x7fK\x02\x86") == "[1, 2]: 5 7");
  for (const std::string& arguments :
       {"K\0K\x09\x85K\x01\x85"s, "K\x01K\x08\x85K\x01\x85"s, "K\x08))"s, "K\0K\x02\x85K\x08\x85"s,
        "K\0K\x09\x85K\0\x85"s, "K\0K\x08\x85J\xff\xff\xff\x7f\x85"s, "K\0J\xff\xff\xff\xff\x85K\x01\x85"s,
        "J\xff\xff\xff\xffK\x01\x85K\x01\x85"s, "K\0K\x08\x85)"s,
        "K\0\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7fK\x04\x86K\x01K\x01\x86"s, "K\0NN"s})
    CHECK_THAT(load_one(arguments), ContainsSubstring("damaged"));
}

TEST_CASE("zip files that are not of torch.save, or whose entries cannot be used") {
  const ScratchFolder scratch("torch-file");
  const auto refused = [&](const std::string& content) -> std::string {
    write_file_atomically(scratch.path() + "/a.pt", content);
    try {
      TorchFile file(scratch.path() + "/a.pt");
      file.load(*file.pickle().find(file.pickle().root(), "model"));
      return "";
    } catch (const CheckpointError& e) {
      return e.what();
    }
  };
  const std::string pickle = one_tensor("K\0K\x08\x85K\x01\x85"s);
  CHECK(refused(test::stored_zip({{"a/data.pkl", pickle}, {"a/data/0", eight_floats()}})).empty());
  CHECK_THAT(refused(test::stored_zip({{"a/other", "x"}})), ContainsSubstring("no data.pkl"));
  CHECK_THAT(refused(test::stored_zip({{"a/data.pkl", pickle}})), ContainsSubstring("'a/data/0' is not in it"));
  CHECK_THAT(refused(test::stored_zip({{"a/data.pkl", pickle}, {"a/data/0", "short"}})),
             ContainsSubstring("5 bytes are there"));
  CHECK_THAT(refused(test::stored_zip({{"a/data.pkl", pickle}, {"a/data/0", eight_floats()}, {"a/data/0", "again"}})),
             ContainsSubstring("twice"));
  CHECK_THAT(refused(test::stored_zip({{"a/data.pkl", pickle}, {"a/data/0", eight_floats()}, {"a/byteorder", "big"}})),
             ContainsSubstring("byte order 'big'"));
  std::string deflated = test::stored_zip({{"a/data.pkl", pickle}, {"a/data/0", eight_floats()}});
  deflated[deflated.rfind("PK\1\2") + 10] = 8;  // the method of the last entry
  CHECK_THAT(refused(deflated), ContainsSubstring("compressed or encrypted"));
  CHECK_THAT(refused(""), ContainsSubstring("a.pt"));
  CHECK_THAT(refused("PK\3\4 and no more"), ContainsSubstring("directory"));
  CHECK_THAT(refused(read_text_file(kFiles + "old_format.pt")), ContainsSubstring("PyTorch before 1.6"));
}

TEST_CASE("a file of torch.save that is cut or flipped anywhere is refused, or reads as before") {
  const std::string whole = read_text_file(kFiles + "tiny-contact-regression.pt");
  const ScratchFolder scratch("torch-file");
  const std::string path = scratch.path() + "/a.pt";
  const auto contents = [&](const std::string& content) -> std::string {
    write_file_atomically(path, content);
    try {
      TorchFile file(path);
      const PickledValue* model = file.pickle().find(file.pickle().root(), "model");
      if (model == nullptr || model->kind != Kind::kDict) return "no model";
      file.load(*model);
      std::string text;
      for (const TensorRef& tensor : file.tensors())
        text += tensor.name + shape_text(tensor.shape) +
                std::string(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
      return text;
    } catch (const CheckpointError&) {
      return "refused";
    }
  };
  const std::string sound = contents(whole);
  REQUIRE(sound.find("contact_head.regression.weight[1, 4]") != std::string::npos);
  // The last 22 bytes say what the 76 before them do.
  for (size_t length = 0; length + 100 < whole.size(); length += 7)
    CHECK(contents(whole.substr(0, length)) == "refused");
  std::mt19937 random(3);
  int refused = 0;
  for (int i = 0; i < 800; ++i) {
    std::string flipped = whole;
    const size_t at = random() % flipped.size();
    flipped[at] = static_cast<char>(flipped[at] ^ 1 << random() % 8);
    CAPTURE(at);
    const std::string found = contents(flipped);
    CHECK((found == "refused" || found == sound));
    refused += found == "refused";
  }
  CHECK(refused > 200);  // much of so small a file is padding
}

}  // namespace esm::checkpoint
