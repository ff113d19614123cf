#include "train/fp8_statistics.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/check.h"
#include "base/json_limits.h"
#include "base/json_writer.h"
#include "train/step_rows.h"

namespace esm::train {
namespace {

using Json = nlohmann::json;

double number(const Json& object, const char* name) {
  const Json& value = object.at(name);
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
}

TensorStatistics tensor_of(const Json& json) {
  return {.layer = json.at("layer"),
          .tensor = json.at("tensor"),
          .amax = number(json, "amax"),
          .scale = number(json, "scale"),
          .underflow = number(json, "underflow"),
          .overflow = number(json, "overflow")};
}

LayerStatistics layer_of(const Json& json) {
  return {.layer = json.at("layer"),
          .mean = number(json, "mean"),
          .variance = number(json, "variance"),
          .grad_norm = number(json, "grad_norm")};
}

// Throws exceptions of the JSON library, and DataError.
StepStatistics row_of(std::string_view line) {
  const Json json = Json::parse(line);
  StepStatistics row;
  const std::optional<int64_t> step = json_integer(json.at("step"));
  if (!step.has_value()) fail<DataError>("'step' is no integer");
  row.step = *step;
  for (const Json& tensor : json.at("tensors")) row.tensors.push_back(tensor_of(tensor));
  for (const Json& layer : json.at("layers")) row.layers.push_back(layer_of(layer));
  return row;
}

}  // namespace

StatisticsLog::StatisticsLog(const std::string& path, int64_t keep_through_step)
    : file_(cut_json_rows(path, keep_through_step)) {}

void StatisticsLog::append(const StepStatistics& row) {
  JsonWriter json;
  json.begin_object().field("step", row.step).key("tensors").begin_array();
  for (const TensorStatistics& t : row.tensors) {
    json.begin_object().field("layer", t.layer).field("tensor", t.tensor).field("amax", t.amax);
    json.field("scale", t.scale).field("underflow", t.underflow).field("overflow", t.overflow).end_object();
  }
  json.end_array().key("layers").begin_array();
  for (const LayerStatistics& l : row.layers) {
    json.begin_object().field("layer", l.layer).field("mean", l.mean).field("variance", l.variance);
    json.field("grad_norm", l.grad_norm).end_object();
  }
  file_.append(json.end_array().end_object().text());
}

std::vector<StepStatistics> read_statistics(const std::string& path) {
  const std::string text = read_text_file(path);
  std::vector<StepStatistics> rows;
  int64_t number = 0;
  std::string_view rest = text;
  for (size_t end = rest.find('\n'); end != std::string_view::npos; end = rest.find('\n')) {
    ++number;
    try {
      rows.push_back(row_of(rest.substr(0, end)));
    } catch (const Json::parse_error&) {
      fail<DataError>("{}:{}: damaged: not JSON", path, number);
    } catch (const Json::exception& e) {
      fail<DataError>("{}:{}: no row of FP8 statistics: {}", path, number, e.what());
    } catch (const DataError& e) {
      fail<DataError>("{}:{}: no row of FP8 statistics: {}", path, number, e.what());
    }
    if (rows.size() > 1 && rows.back().step <= rows[rows.size() - 2].step)
      fail<DataError>("{}:{}: step {} after step {}; steps must rise", path, number, rows.back().step,
                      rows[rows.size() - 2].step);
    rest.remove_prefix(end + 1);
  }
  return rows;
}

}  // namespace esm::train
