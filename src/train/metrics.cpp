#include "train/metrics.h"

#include "base/json_writer.h"
#include "train/step_rows.h"

namespace esm::train {
MetricsLog::MetricsLog(const std::string& path, int64_t keep_through_step, bool keep_validation)
    : file_(cut_json_rows(path, keep_through_step, keep_validation ? "" : "valid")) {}

void MetricsLog::append(const StepMetrics& row) {
  JsonWriter json;
  json.begin_object();
  visit_columns(row, [&](std::string_view name, auto value) {
    if (name != "skipped" || row.skipped) json.field(name, value);
  });
  file_.append(json.end_object().text());
}

void MetricsLog::append(const ValidationRow& row) {
  JsonWriter json;
  json.begin_object().field("step", row.step).key("valid").begin_object();
  for (const auto& [name, m] : row.sets) {
    json.key(name).begin_object();
    json.field("loss", m.loss).field("perplexity", m.perplexity).field("accuracy", m.accuracy);
    json.field("scored", m.scored).field("sequences", m.sequences).end_object();
  }
  json.end_object();
  if (!row.drawn.empty()) {
    json.key("drawn").begin_object();
    for (const data::DrawnSoFar& set : row.drawn) {
      json.key(set.name).begin_object();
      json.field("sequences", set.sequences).field("tokens", set.tokens).field("epochs", set.epochs).end_object();
    }
    json.end_object();
  }
  file_.append(json.end_object().text());
}

}  // namespace esm::train
