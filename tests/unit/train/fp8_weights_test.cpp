// Weights of 8 bits in foreign files: exports, imports, and what a training model makes of them.
#include "train/fp8_weights.h"

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/half.h"
#include "base/philox.h"
#include "kernels/fp8_scale.h"
#include "models/hf_format.h"
#include "models/nvidia_format.h"
#include "ops/quantize.h"
#include "support/batches.h"
#include "support/model_files.h"
#include "support/models.h"
#include "train/checkpointing.h"
#include "train/tensor_rows.h"

namespace esm::train {
namespace {
using namespace test;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

constexpr std::pair<const char*, Format> kFormats[] = {
    {"hf_d16", Format::kHf}, {"nv_d16/new", Format::kNvidia}, {"nv_d16/old", Format::kNvidiaOld}};

ExportResult export_as(const std::string& in, const std::string& out, Format format, std::optional<DType> dtype,
                       int64_t max_file_bytes = int64_t{1} << 40) {
  return export_model(open_model(in),
                      {.format = format, .out = out, .dtype = dtype, .max_file_bytes = max_file_bytes, .versions = {}});
}

std::vector<float> floats_of(const TensorRef& tensor) {
  std::vector<float> values(tensor.bytes.size() / sizeof(float));
  std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

std::vector<std::byte> bytes_of(const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

/// A golden folder whose matrices have their largest magnitudes all over an octave: one just below the step from 224 to
/// 240 among them, which rounds down to the value where the next scale begins.
struct Spread : Source {
  explicit Spread(const std::string& golden) : Source(golden) {
    std::vector<std::vector<std::byte>> kept;
    rewrite(model_file(golden), path + "/model.safetensors", [&](std::vector<TensorOut>& tensors) {
      int n = 0;
      for (TensorOut& tensor : tensors) {
        if (tensor.shape.size() != 2 || tensor.name.find(".encoder.layer") == std::string::npos) continue;
        std::vector<float> values = floats_of({tensor.name, tensor.dtype, tensor.shape, tensor.bytes});
        values[values.size() / 3] = -std::ldexp(225.0f + 30.0f * static_cast<float>(n), -6 - n % 3);
        ++n;
        kept.push_back(bytes_of(values));
        tensor.bytes = kept.back();
      }
      REQUIRE(n >= 8);
    });
  }
};

void check_equal_files(const std::string& left, const std::string& right) {
  for (const auto& entry : fs::directory_iterator(left)) {
    const std::string name = entry.path().filename().string();
    INFO(left << " " << right << " " << name);
    CHECK(read_text_file(left + "/" + name) == read_text_file(right + "/" + name));
  }
}

models::ForeignLayout layout_of(const ModelSource& model, Format format) {
  if (format == Format::kHf) return models::hf_layout(model.config());
  return models::nvidia_layout(model.config(), format == Format::kNvidia ? models::NvidiaVariant::new_names()
                                                                         : models::NvidiaVariant::old_names());
}

/// Codes and factor of a native matrix, from the tensors of a file that hold its rows.
struct NativeCodes {
  std::vector<uint8_t> codes;
  float factor = 0;
};
NativeCodes native_codes(const SafetensorsSet& files, const models::ForeignLayout& layout, const std::string& native,
                         const std::vector<int64_t>& shape) {
  NativeCodes found{.codes = std::vector<uint8_t>(static_cast<size_t>(shape[0] * shape[1]), 0x7f)};
  for (const models::ForeignTensor& tensor : layout.tensors) {
    if (tensor.native != native) continue;
    const TensorRef& ref = *files.find(tensor.name);
    REQUIRE(ref.dtype == DType::kF8E4M3);
    const float factor = floats_of(*files.find(tensor.name + "_scale")).at(0);
    CHECK((found.factor == 0 || found.factor == factor));  // q, k and v have one
    found.factor = factor;
    for (int64_t row = 0; row < tensor.shape[0]; ++row)
      std::memcpy(found.codes.data() + tensor.rows.native_row(row, tensor.shape[0]) * shape[1],
                  ref.bytes.data() + row * shape[1], static_cast<size_t>(shape[1]));
  }
  return found;
}

TEST_CASE("8 bits: an export of an import is the same file") {
  for (const auto& [golden, format] : kFormats) {
    INFO(golden);
    const Spread source(golden);
    const ExportResult first = export_as(source.path, source.out("first"), format, DType::kF8E4M3);
    CHECK(first.dtype == DType::kF8E4M3);
    REQUIRE_FALSE(first.notes.empty());
    CHECK_THAT(first.notes.back(), ContainsSubstring("weights were rounded to 8 bits"));
    const ModelSource imported = open_model(source.out("first"));
    CHECK(imported.dtype() == DType::kF8E4M3);
    // Said again, as it came, and by way of a native checkpoint, which holds the values in FP32.
    const ExportResult again = export_as(source.out("first"), source.out("again"), format, DType::kF8E4M3);
    CHECK_THAT(again.notes.back(), ContainsSubstring("exactly those of the source"));
    check_equal_files(source.out("first"), source.out("again"));
    export_as(source.out("first"), source.out("as_it_came"), format, {});
    check_equal_files(source.out("first"), source.out("as_it_came"));
    convert(source.out("first"), source.out("native"), Format::kNative);
    export_as(source.out("native"), source.out("from_native"), format, {});
    check_equal_files(source.out("first"), source.out("from_native"));
    // In other formats the codes are the same, whatever their order.
    for (const auto& [other, other_format] : kFormats) {
      INFO(other);
      const std::string out = source.out("as_" + std::string(format_name(other_format)));
      export_as(source.out("native"), out, other_format, DType::kF8E4M3);
      const ModelSource moved = open_model(out);
      const SafetensorsSet files(out), wanted(source.out("first"));
      for (const ModelTensor& tensor : moved.tensors()) {
        if (tensor.shape.size() != 2 || !tensor.name.starts_with("layers.")) continue;
        INFO(tensor.name);
        const NativeCodes made = native_codes(files, layout_of(moved, other_format), tensor.name, tensor.shape),
                          first_made = native_codes(wanted, layout_of(imported, format), tensor.name, tensor.shape);
        CHECK(made.codes == first_made.codes);
        CHECK(made.factor == first_made.factor);
        CHECK(moved.read(tensor.name) == imported.read(tensor.name));
      }
    }
  }
}

TEST_CASE("8 bits: all but the matrices of the layers stays as it was, padding too") {
  for (const auto& [golden, format] : kFormats) {
    const Source source(golden);
    export_as(source.path, source.out("wide"), format, DType::kF32);
    export_as(source.path, source.out("codes"), format, DType::kF8E4M3);
    const SafetensorsSet wide(source.out("wide")), codes(source.out("codes"));
    int64_t matrices = 0;
    for (const TensorRef* tensor : wide.tensors()) {
      INFO(tensor->name);
      const TensorRef* other = codes.find(tensor->name);
      REQUIRE(other != nullptr);
      CHECK(other->shape == tensor->shape);
      if (tensor->shape.size() == 2 && tensor->name.find(".encoder.layer") != std::string::npos) {
        CHECK(other->dtype == DType::kF8E4M3);
        const TensorRef* factor = codes.find(tensor->name + "_scale");
        REQUIRE(factor != nullptr);
        CHECK(factor->dtype == DType::kF32);
        CHECK(factor->shape == std::vector<int64_t>{1});
        int exponent = 0;
        CHECK(std::frexp(floats_of(*factor)[0], &exponent) == 0.5f);
        ++matrices;
      } else {
        CHECK(other->dtype == tensor->dtype);
        CHECK(std::equal(tensor->bytes.begin(), tensor->bytes.end(), other->bytes.begin(), other->bytes.end()));
      }
    }
    CHECK(matrices == 3 * (format == Format::kHf ? 6 : 4));
    CHECK(static_cast<int64_t>(codes.tensors().size()) == static_cast<int64_t>(wide.tensors().size()) + matrices);
  }
}

TEST_CASE("8 bits: a training model's products see the codes that the file holds") {
  for (const auto& [golden, format] : kFormats) {
    INFO(golden);
    const Spread source(golden);
    export_as(source.path, source.out("codes"), format, DType::kF8E4M3);
    const ModelSource imported = open_model(source.out("codes"));
    const SafetensorsSet files(source.out("codes"));
    const models::ForeignLayout layout = layout_of(imported, format);
    const data::Batch batch = some_batch();
    const Context context{.threads = 1};
    models::Esm2 model(context, imported.config(),
                       {.precision = precision::Precision::kFp8Delayed, .tokens_per_batch = batch.budget()});
    load_parameters(model, imported);
    CHECK(model.forward_backward(batch).loss_sum > 0);
    const std::vector<std::string>& scaled = model.scales()->names();
    int64_t compared = 0;
    for (nn::UnitStorage* unit : model.units())
      for (size_t i = 0; i < unit->entries().size(); ++i) {
        const nn::ParamSpec& spec = unit->entries()[i].spec;
        if (spec.kind != nn::ParamKind::kMatrix || !spec.name.starts_with("layers.")) continue;
        INFO(spec.name);
        const NativeCodes file = native_codes(files, layout, spec.name, spec.shape);
        // The scale that the model measured, and the codes that follow from it.
        const auto at = std::ranges::find(scaled, spec.name) - scaled.begin();
        REQUIRE(at < model.scales()->size());
        const at::Tensor scale = model.scales()->scale().slice(0, at, at + 1);
        CHECK(scale.item<float>() * file.factor == 1.0f);
        const at::Tensor codes = at::zeros(spec.shape, at::kByte), inverses = at::zeros({1}, at::kFloat);
        const precision::Operand operand{precision::Format::kE4M3, precision::Grouping::kTensor};
        ops::quantize(context, {.x = unit->view(nn::Role::kCompute, i),
                                .valid_rows = spec.shape[0],
                                .to = operand,
                                .scale = scale,
                                .codes = codes,
                                .inverses = inverses,
                                .amax = {}});
        CHECK(bytes(codes) == file.codes);
        const at::Tensor seen = at::zeros(spec.shape, at::kFloat);
        ops::dequantize(context, {.from = operand, .codes = codes, .inverses = inverses, .scale = {}, .y = seen});
        CHECK(bytes(seen) == bytes(unit->weights(i)));
        ++compared;
      }
    CHECK(compared == 3 * 4);
  }
}

TEST_CASE("8 bits: exponents are those of the rounded values") {
  // Rounding what is rounded must find the same exponent, for any largest magnitude.
  const auto check = [](float amax) {
    const std::vector<float> values{amax / 3, -amax, 0.0f};
    const int k = e4m3_exponent(values, "x");
    std::vector<std::byte> codes(3), again(3);
    RoundingCount count, second;
    encode_e4m3(values, k, codes.data(), count);
    std::vector<float> kept(3);
    to_floats(codes, DType::kF8E4M3, kept);
    for (float& value : kept) value = std::ldexp(value, -k);
    encode_e4m3(kept, e4m3_exponent(kept, "x"), again.data(), second);
    CHECK((codes == again));
    CHECK(second.rounded == 0);
    if (amax >= 0x1p-132f) CHECK(std::abs(kept[1] + amax) <= 0x1p-4f * amax);
    return k;
  };
  for (int exponent = -149; exponent < 128; ++exponent)
    for (int m = 0; m < (exponent == 127 ? 60 : 64); ++m)
      check(std::ldexp(1.0f + static_cast<float>(m) / 64.0f, exponent));
  CHECK(check(448.0f) == 0);
  CHECK(check(225.0f) == 1);  // 224 and the scale of 224
  CHECK(check(224.0f) == 1);
  CHECK(check(233.0f) == 0);  // 240
  CHECK(check(460.0f) == 0);  // saturates to the nearest there is
  CHECK(check(465.0f) == -1);
  CHECK(check(0x1.efffp127f) == -120);  // 240 * 2^120
  CHECK(check(0.0f) == 0);
  CHECK(check(0x1p-140f) == 0);  // becomes 0
  CHECK(check(0x1p-130f) == 126);
  for (const float bad : {kInfinity, -kInfinity, kNan, -kNan, 0x1.fp127f, -std::numeric_limits<float>::max()})
    CHECK_THROWS_WITH(e4m3_exponent(std::vector<float>{1.0f, bad, 2.0f}, "it"),
                      ContainsSubstring("it holds NaN, infinity or values above 3.2e38"));
}

TEST_CASE("8 bits: how far values move") {
  std::vector<float> values;
  for (uint64_t i = 0; i < 40000; ++i) {
    const PhiloxResult words = philox(5, RandomStream::kSynthetic, i);
    const float normal = static_cast<float>(normal_pair(words.v[0], words.v[1])[0]);
    values.push_back(std::ldexp(normal, -static_cast<int>(uniform_below(words.v[2], 24))));
  }
  const int k = e4m3_exponent(values, "x");
  std::vector<std::byte> codes(values.size());
  RoundingCount count;
  encode_e4m3(values, k, codes.data(), count);
  CHECK(count.values == 40000);
  int64_t subnormal = 0, rounded = 0, zeroed = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double exact = std::ldexp(static_cast<double>(values[i]), k);
    const double kept = kernels::decode_e4m3(std::to_integer<uint32_t>(codes[i]));
    const bool normal = std::abs(exact) >= 0x1p-6;
    subnormal += !normal;
    rounded += kept != exact;
    zeroed += kept == 0 && exact != 0;
    if (!(std::abs(kept - exact) <= (normal ? 0x1p-4 * std::abs(exact) : 0x1p-10))) FAIL(exact << " became " << kept);
  }
  CHECK(count.rounded == rounded);
  CHECK(count.zeroed == zeroed);
  CHECK((subnormal > 1000 && zeroed > 100));
}

/// Replaces a tensor of the golden Hugging Face model by these values before an export.
std::string export_with(const Source& source, const std::string& tensor, const std::vector<float>& values) {
  const std::vector<std::byte> content = bytes_of(values);
  rewrite(model_file("hf_d16"), source.path + "/model.safetensors",
          [&](std::vector<TensorOut>& tensors) { tensor_of(tensors, tensor).bytes = content; });
  try {
    export_as(source.path, source.out("codes"), Format::kHf, DType::kF8E4M3);
    return "";
  } catch (const CheckpointError& e) {
    return e.what();
  }
}

TEST_CASE("8 bits: extreme matrices") {
  const std::string name = "esm.encoder.layer.1.attention.output.dense.weight";
  const auto read = [&](std::vector<float> values) {
    const Source source("hf_d16");
    values.resize(64 * 64);
    CHECK(export_with(source, name, values).empty());
    export_as(source.out("codes"), source.out("again"), Format::kHf, DType::kF8E4M3);
    check_equal_files(source.out("codes"), source.out("again"));
    return open_model(source.out("codes")).read("layers.1.attention.out.weight");
  };
  CHECK(read({}) == std::vector<float>(64 * 64));
  const std::vector<float> negative = read({-0.0f});
  CHECK((negative[0] == 0 && std::signbit(negative[0]) && !std::signbit(negative[1])));
  // One value far above the rest takes their range.
  const std::vector<float> huge = read({3e38f, 1e30f, 1e35f, -1e36f});
  CHECK(std::abs(huge[0] / 3e38f - 1) < 0x1p-4f);
  CHECK(huge[1] == 0);
  CHECK(std::abs(huge[3] / -1e36f - 1) < 0x1p-2f);
  const std::vector<float> small = read({0x1p-130f, -0x1.8p-131f, 0x1p-149f});
  CHECK((small[0] == 0x1p-130f && small[1] == -0x1.8p-131f && small[2] == 0));
  for (const float bad : {kNan, kInfinity, -kInfinity}) {
    const Source source("hf_d16");
    std::vector<float> values(64 * 64, 0.5f);
    values[100] = bad;
    CHECK_THAT(export_with(source, name, values),
               ContainsSubstring("'layers.1.attention.out.weight' holds NaN, infinity"));
    CHECK_FALSE(fs::exists(source.out("codes")));
    for (const auto& entry : fs::directory_iterator(source.scratch.path()))
      CHECK(entry.path().string().find(".tmp-") == std::string::npos);
  }
}

TEST_CASE("8 bits: several files, a factor away from its weight") {
  const Spread source("hf_d16");
  export_as(source.path, source.out("one"), Format::kHf, DType::kF8E4M3);
  export_as(source.path, source.out("parts"), Format::kHf, DType::kF8E4M3, 20'000);
  check_equal_sets(source.out("one"), source.out("parts"));
  convert(source.out("parts"), source.out("again"), Format::kHf);
  check_equal_sets(source.out("one"), source.out("again"));
  // The factors in a file of their own.
  std::vector<TensorOut> factors;
  fs::create_directory(source.out("split"));
  fs::copy(source.out("one") + "/config.json", source.out("split"));
  const SafetensorsSet one(source.out("one"));
  std::vector<TensorOut> rest;
  nlohmann::json map;
  for (const TensorRef* tensor : one.tensors()) {
    const bool factor = is_scale_name(tensor->name);
    (factor ? factors : rest)
        .push_back(
            {.name = tensor->name, .dtype = tensor->dtype, .shape = tensor->shape, .bytes = tensor->bytes, .make = {}});
    map[tensor->name] = factor ? "model-2.safetensors" : "model-1.safetensors";
  }
  checkpoint::FileSystem& files = checkpoint::FileSystem::real();
  checkpoint::write_safetensors(files, source.out("split") + "/model-1.safetensors", rest, {});
  checkpoint::write_safetensors(files, source.out("split") + "/model-2.safetensors", factors, {});
  std::ofstream(source.out("split") + "/model.safetensors.index.json") << nlohmann::json{{"weight_map", map}};
  convert(source.out("split"), source.out("joined"), Format::kHf);
  CHECK(read_text_file(source.out("one") + "/model.safetensors") ==
        read_text_file(source.out("joined") + "/model.safetensors"));
}

TEST_CASE("8 bits: files of others, with factors of their own and other types beside") {
  const Source source("hf_d16");
  export_as(source.path, source.out("codes"), Format::kHf, DType::kF8E4M3);
  const std::string file = source.out("codes") + "/model.safetensors";
  const std::string key = "esm.encoder.layer.2.attention.self.key.weight";
  const std::vector<std::byte> factor = bytes_of({0.3f}), head_factor = bytes_of({0x1p-7f});
  std::vector<std::byte> head(64 * 64), norm(64 * 2);
  for (size_t i = 0; i < head.size(); ++i) head[i] = static_cast<std::byte>(i % 127);
  const std::string original = source.out("original.safetensors");
  fs::rename(file, original);
  rewrite(original, file, [&](std::vector<TensorOut>& tensors) {
    tensor_of(tensors, key + "_scale").bytes = factor;
    TensorOut& dense = tensor_of(tensors, "lm_head.dense.weight");
    dense.dtype = DType::kF8E4M3;
    dense.bytes = head;
    TensorOut& gamma = tensor_of(tensors, "lm_head.layer_norm.weight");
    gamma.dtype = DType::kBF16;
    gamma.bytes = norm;
    tensors.push_back(
        {.name = "lm_head.dense.weight_scale", .dtype = DType::kF32, .shape = {1}, .bytes = head_factor, .make = {}});
  });
  const ModelSource model = open_model(source.out("codes"));
  CHECK(model.dtype() == DType::kF8E4M3);
  CHECK(model.report().used == static_cast<int64_t>(SafetensorsSet(file).tensors().size()) - 1);  // inv_freq
  const std::vector<float> qkv = model.read("layers.2.attention.qkv.weight"), dense = model.read("head.dense.weight");
  const SafetensorsSet set(file);
  const TensorRef& codes = *set.find(key);
  for (size_t i = 0; i < codes.bytes.size(); ++i) {
    const float code = kernels::decode_e4m3(std::to_integer<uint32_t>(codes.bytes[i]));
    if (qkv[64 * 64 + i] != code * 0.3f) FAIL(i);
  }
  for (size_t i = 0; i < head.size(); ++i)
    if (dense[i] != kernels::decode_e4m3(static_cast<uint32_t>(i % 127)) * 0x1p-7f) FAIL(i);
  // As they came: types are kept. The factor 0.3 is no power of two, so one matrix is rounded once more; not twice.
  const ExportResult result = export_as(source.out("codes"), source.out("again"), Format::kHf, {});
  CHECK_THAT(result.notes.back(), ContainsSubstring("were rounded to 8 bits"));
  const SafetensorsSet again(source.out("again"));
  for (const char* name : {"lm_head.dense.weight", "lm_head.layer_norm.weight", "lm_head.dense.weight_scale"}) {
    INFO(name);
    const TensorRef &before = *set.find(name), &after = *again.find(name);
    CHECK(before.dtype == after.dtype);
    CHECK(std::equal(before.bytes.begin(), before.bytes.end(), after.bytes.begin(), after.bytes.end()));
  }
  export_as(source.out("again"), source.out("third"), Format::kHf, {});
  check_equal_files(source.out("again"), source.out("third"));
  // Asked for 8 bits by name, one gets those of the layers alone.
  export_as(source.out("again"), source.out("named"), Format::kHf, DType::kF8E4M3);
  const SafetensorsSet named(source.out("named"));
  CHECK(named.find("lm_head.dense.weight")->dtype == DType::kF32);
  CHECK(named.find("lm_head.dense.weight_scale") == nullptr);
  CHECK(named.find("lm_head.layer_norm.weight")->dtype == DType::kF32);
}

TEST_CASE("8 bits: unsound factors and types are refused, naming the tensor") {
  const Source source("hf_d16");
  export_as(source.path, source.out("codes"), Format::kHf, DType::kF8E4M3);
  const std::string file = source.out("codes") + "/model.safetensors", sound = source.out("sound.safetensors");
  fs::rename(file, sound);
  const std::string weight = "esm.encoder.layer.0.intermediate.dense.weight", scale = weight + "_scale";
  const auto refused = [&](const std::function<void(std::vector<TensorOut>&)>& change) {
    rewrite(sound, file, change);
    return refusal(source.out("codes"));
  };
  CHECK(refused([](std::vector<TensorOut>&) {}).empty());
  CHECK_THAT(refused([&](auto& tensors) {
               std::erase_if(tensors, [&](const TensorOut& tensor) { return tensor.name == scale; });
             }),
             ContainsSubstring("'" + weight + "' is F8_E4M3 and needs its factor '" + scale + "'"));
  CHECK_THAT(refused([&](auto& tensors) {
               std::erase_if(tensors, [&](const TensorOut& tensor) { return tensor.name == weight; });
             }),
             ContainsSubstring("'" + scale + "' is the factor of '" + weight + "', which is missing"));
  const std::vector<std::byte> wide(256 * 64 * 4);
  CHECK_THAT(refused([&](auto& tensors) {
               tensor_of(tensors, weight).dtype = DType::kF32;
               tensor_of(tensors, weight).bytes = wide;
             }),
             ContainsSubstring("'" + scale + "' is the factor of '" + weight + "', which is F32"));
  CHECK_THAT(refused([&](auto& tensors) { tensor_of(tensors, scale).shape = {}; }),
             ContainsSubstring("'" + scale + "' is F32 []; the factor"));
  CHECK_THAT(refused([&](auto& tensors) {
               tensor_of(tensors, scale).shape = {256, 1};
               tensor_of(tensors, scale).bytes = std::span(wide).first(1024);
             }),
             ContainsSubstring("'" + scale + "' is F32 [256, 1]"));
  CHECK_THAT(refused([&](auto& tensors) {
               tensor_of(tensors, scale).dtype = DType::kBF16;
               tensor_of(tensors, scale).bytes = std::span(wide).first(2);
             }),
             ContainsSubstring("'" + scale + "' is BF16 [1]"));
  for (const float bad : {0.0f, -0.0f, -1.0f, kNan, kInfinity}) {
    const std::vector<std::byte> content = bytes_of({bad});
    CHECK_THAT(refused([&](auto& tensors) { tensor_of(tensors, scale).bytes = content; }),
               ContainsSubstring("'" + scale + "' is " + fmt::format("{}", bad)));
  }
  CHECK_THAT(refused([&](auto& tensors) { tensor_of(tensors, weight).dtype = DType::kF8E5M2; }),
             ContainsSubstring("F8_E5M2"));
  const std::string embedding = "esm.embeddings.word_embeddings.weight";
  CHECK_THAT(refused([&](auto& tensors) {
               tensor_of(tensors, embedding).dtype = DType::kF8E4M3;
               tensor_of(tensors, embedding).bytes = std::span(wide).first(33 * 64);
             }),
             ContainsSubstring("'" + embedding + "' is F8_E4M3"));
}

TEST_CASE("8 bits: what config.json says of them") {
  const Source source("hf_d16");
  const auto config_of = [&](const std::string& name) {
    return nlohmann::json::parse(read_text_file(source.out(name) + "/config.json"));
  };
  export_as(source.path, source.out("codes"), Format::kHf, DType::kF8E4M3);
  const auto config = config_of("codes"), quantization = config.at("quantization_config");
  CHECK(config.at("dtype") == "float32");  // of the rest
  CHECK(quantization.at("quant_method") == "compressed-tensors");
  CHECK(quantization.at("format") == "float-quantized");
  CHECK(quantization.at("config_groups").at("group_0").at("weights").at("strategy") == "tensor");
  // Without codes it would be untrue.
  export_as(source.out("codes"), source.out("half"), Format::kHf, DType::kBF16);
  CHECK_FALSE(config_of("half").contains("quantization_config"));
  CHECK(config_of("half").at("dtype") == "bfloat16");
  export_as(source.out("codes"), source.out("nvidia"), Format::kNvidia, DType::kF8E4M3);
  CHECK_FALSE(config_of("nvidia").contains("quantization_config"));
  CHECK(config_of("nvidia").at("torch_dtype") == "float32");
  // What another program said stays with codes that stay.
  auto foreign = config;
  foreign["quantization_config"]["ignore"] = {"lm_head"};
  foreign["dtype"] = "bfloat16";
  std::ofstream(source.out("codes") + "/config.json") << foreign;
  export_as(source.out("codes"), source.out("kept"), Format::kHf, {});
  CHECK(config_of("kept").at("quantization_config") == foreign.at("quantization_config"));
}

}  // namespace
}  // namespace esm::train
