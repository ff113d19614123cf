// RUN/metrics.jsonl: one JSON object a line. Each step stands once, also after a kill and a resume.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/files.h"
#include "data/loader.h"

namespace esm::train {

struct StepMetrics {
  int64_t step = 0;           // 1 after the first update
  double loss = 0;            // mean over the scored tokens of the global batch, nats
  double grad_norm = 0;       // global L2 norm of the mean gradient, before clipping
  double lr = 0;              // peak rate times schedule
  int64_t tokens = 0;         // real tokens of this step
  int64_t padded_tokens = 0;  // token slots of this step
  int64_t scored = 0;         // tokens that counted for the loss
  double seconds = 0;         // wall time of this step
  bool skipped = false;       // weights left alone

  double tokens_per_s() const { return seconds > 0 ? static_cast<double>(tokens) / seconds : 0; }
  double fill() const {
    return padded_tokens > 0 ? static_cast<double>(tokens) / static_cast<double>(padded_tokens) : 0;
  }
};

/// Calls f(name, value) for what a row of metrics.jsonl and metrics.csv holds, in that order.
template <class F>
void visit_columns(const StepMetrics& row, F&& f) {
  f("step", row.step);
  f("loss", row.loss);
  f("grad_norm", row.grad_norm);
  f("lr", row.lr);
  f("tokens", row.tokens);
  f("tokens_per_s", row.tokens_per_s());
  f("padded_tokens", row.padded_tokens);
  f("scored", row.scored);
  f("seconds", row.seconds);
  f("skipped", row.skipped);
}

struct EvalMetrics {
  double loss = 0;        // mean over the scored tokens, nats
  double perplexity = 0;  // exp(loss)
  double accuracy = 0;    // share of scored tokens whose most probable token is the true one
  int64_t scored = 0;
  int64_t sequences = 0;
};

/// What is known after a validation.
struct ValidationRow {
  int64_t step = 0;
  std::map<std::string, EvalMetrics> sets;
  std::vector<data::DrawnSoFar> drawn;  // of a mixture
};

class MetricsLog {
 public:
  /// Opens `path` for appending. Rows of steps after `keep_through_step` are cut first (with their validations; those
  /// of `keep_through_step` itself too unless `keep_validation`), and so is a line torn by a kill. Throws DataError.
  MetricsLog(const std::string& path, int64_t keep_through_step, bool keep_validation);

  /// {"step": 7, "loss": ..., "grad_norm": ..., "lr": ..., "tokens": ..., "tokens_per_s": ..., ...}
  void append(const StepMetrics& row);
  /// {"step": 100, "valid": {"NAME": {"loss": ..., "perplexity": ..., "accuracy": ...}}}, with a mixture also
  /// "drawn": {"NAME": {"sequences": ..., "tokens": ..., "epochs": ...}}
  void append(const ValidationRow& row);
  void flush() { file_.flush(); }

 private:
  LineAppender file_;
};

}  // namespace esm::train
