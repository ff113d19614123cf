#include "train/trainer.h"

#include <fmt/ranges.h>

#include <chrono>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/signals.h"
#include "base/units.h"
#include "dist/comm.h"
#include "train/background_save.h"
#include "train/checkpointing.h"
#include "train/evaluation.h"
#include "train/expect.h"
#include "train/fp8_watch.h"
#include "train/memory_report.h"
#include "train/progress.h"
#include "train/run_folder.h"
#include "train/run_metrics.h"
#include "train/setup.h"
#include "train/step.h"

namespace esm::train {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

checkpoint::StoreOptions store_options(const CheckpointSection& config, checkpoint::FileSystem* files) {
  checkpoint::StoreOptions options;
  options.files = files;
  options.retention = {
      .keep_last = config.keep_last, .keep_every = config.keep_every_steps, .keep_best = config.keep_best};
  return options;
}

class Trainer {
 public:
  /// The config is completed by what is opened: the model's shape, the number of threads.
  Trainer(RunConfig& config, const TrainOptions& options)
      : config_(config),
        options_(options),
        folder_(config_.run.dir),
        store_(folder_.checkpoints(), store_options(config_.checkpoint, options_.files)),
        comm_(dist::make_single_comm()) {
    config_.train.threads = effective_threads(config_.train.threads);
    log::also_to_file(folder_.log());
    context_ = open_device(config_, options_.kernel_cache);
    open_everything();
  }

  TrainResult run();

 private:
  void open_everything();
  void check_checkpoint_folder();
  void reconsider_early_stop();
  void print_header() const;
  bool is_over() const { return state_.step >= config_.train.max_steps || state_.stopped_early; }
  int signal() const { return options_.stop_signal ? options_.stop_signal() : 0; }
  bool due(int64_t every) const { return every > 0 && state_.step % every == 0; }
  void step();
  void drain();
  void finish_oldest();
  void count(const StepOutcome& outcome);
  void report_drawn() const;
  void report(const StepOutcome& outcome);
  bool validate();
  bool note_validation(double loss);
  void save(BackgroundSave::Mode mode);
  void save();
  void take_save();
  void finish_save();
  TrainResult finish(StopReason reason);

  RunConfig& config_;
  const TrainOptions& options_;
  RunFolder folder_;
  checkpoint::CheckpointStore store_;
  std::unique_ptr<dist::Comm> comm_;
  Context context_;
  KernelChoice kernels_;
  Carried carried_;
  std::unique_ptr<models::Esm2> model_;
  std::optional<Optimizer> optimizer_;
  std::optional<StepQueue> queue_;
  std::optional<Fp8Watch> watch_;
  bool outside_band_ = false;  // of gradient norms
  std::optional<data::Loader> loader_;
  std::optional<Evaluator> evaluator_;
  std::optional<RunMetrics> metrics_;
  std::optional<Progress> progress_;
  TrainState state_;
  std::chrono::steady_clock::time_point last_done_;  // when the last step was, or the one before it was queued
  std::string monitor_;
  std::string last_checkpoint_;
  int64_t saved_step_ = -1;    // of the last checkpoint
  int64_t started_save_ = -1;  // of the last one that was begun
  bool told_of_removal_ = false;
  std::optional<BackgroundSave> saving_;
};

void Trainer::open_everything() {
  const auto resumed = find_resume(options_.resume, store_, config_.run.dir);
  std::optional<ModelSource> source;  // where the weights come from
  if (resumed.has_value())
    source = open_model(resumed->path(), checkpoint::Verify::kSizes);  // find_resume() has verified it
  else if (!config_.init_from.empty())
    source = open_model(config_.init_from);
  if (source.has_value() && !config_.init_from.empty()) adopt_model_config(config_, *source, options_.origins);
  if (resumed.has_value()) check_resumed_config(*resumed, config_);

  const OpenedData data = open_data(config_, options_);
  const data::LoaderOptions loading =
      data::loader_options(config_.data, static_cast<uint64_t>(config_.seed), comm_->rank(), comm_->size());
  const KernelRecord recorded = resumed.has_value() ? resumed->manifest().kernels : KernelRecord{};
  kernels_ = choose_kernels(context_, config_, options_.kernel_cache, recorded);
  for (const std::string& line : differences(recorded, kernels_.record)) log::warn("{}", line);
  model_ = build_model(context_, config_, kernels_, /*training=*/true,
                       source.has_value() ? source->inv_freq() : std::vector<float>{});
  optimizer_.emplace(context_, model_->units(), config_.optimizer,
                     Optimizer::Options{.seed = static_cast<uint64_t>(config_.seed), .graphs = config_.cuda_graph});
  queue_.emplace(context_, *optimizer_);
  if (resumed.has_value()) {
    Restored restored = restore(*resumed, *model_, *optimizer_);
    state_ = restored.state;
    loader_.emplace(data.train, loading, restored.position);
    last_checkpoint_ = resumed->path();
    saved_step_ = started_save_ = state_.step;
    if (resumed->manifest().threads != config_.train.threads)
      log::warn("the checkpoint was made with {} CPU threads, this run has {}: results agree within rounding only",
                resumed->manifest().threads, config_.train.threads);
    reconsider_early_stop();
  } else {
    if (source.has_value())
      load_parameters(*model_, *source);
    else
      model_->init_parameters(static_cast<uint64_t>(config_.seed));
    loader_.emplace(data.train, loading);
  }
  // A run's own checkpoint must be free to go when retention says so.
  if (source.has_value()) carried_ = carry(*source, resumed.has_value());
  source.reset();
  evaluator_.emplace(data.valid, loading);
  monitor_ = config_.eval.monitor.empty() ? evaluator_->first_name() : config_.eval.monitor;
  check_checkpoint_folder();
  saving_.emplace(store_, context_);
  write_file_atomically(folder_.config(), config::to_yaml(config_));
  watch_.emplace(context_, *model_, config_.fp8.statistics_every_steps);
  if (config_.run.csv) check_metrics_csv(folder_.csv());
  // From here on the newer checkpoints and rows of an abandoned branch go: nothing after this is an error of the user.
  if (resumed.has_value() && options_.resume != "auto" && is_in_folder(resumed->path(), store_.path()))
    store_.discard_newer_than(state_.step);
  metrics_.emplace(folder_, config_.run, state_.step, !state_.pending_eval);
  print_header();
  progress_.emplace(Progress::Options{
      .live = options_.live, .every_steps = config_.run.log_every_steps, .last_step = config_.train.max_steps});
}

// Before the first step: a folder that nobody may write to is an error whatever checkpoint.on_error says, which is
// about disks that may be well again at the next interval.
void Trainer::check_checkpoint_folder() {
  try {
    store_.check_writable();
    const int64_t there = std::min<int64_t>(std::ssize(store_.list()), config_.checkpoint.keep_last);
    store_.check_free_space(checkpoint_bytes(*model_) * (config_.checkpoint.keep_last + 1 - there));
  } catch (const checkpoint::DiskFullError& e) {
    if (config_.checkpoint.on_error == SaveError::kStop) throw;
    log::warn("there may be no room for checkpoints: {}", e.what());
  }
}

// A run that patience ended goes on when there is more of it now.
void Trainer::reconsider_early_stop() {
  if (config_.eval.patience == 0 || state_.evals_without_improvement < config_.eval.patience)
    state_.stopped_early = false;
}

void Trainer::print_header() const {
  log::info("run folder {}", folder_.path());
  for (const std::string& line : config::non_default_lines(config::entries(config_, options_.origins)))
    log::info("  {}", line);
  log::info("{}", loader_->summary());
  log::info("model: {} parameters, {} layers x {}, {} heads; {}, {} CPU threads; {} tokens a micro-batch x {} a step",
            with_thousands(model_->parameter_count()), config_.model.layers, config_.model.hidden, config_.model.heads,
            precision::find_recipe(config_.precision).name, config_.train.threads,
            with_thousands(config_.data.tokens_per_batch), config_.train.micro_batches);
  for (const std::string& line : precision::describe_plan(model_->products())) log::info("products: {}", line);
  log::info("memory: {}", memory_line(plan_memory(config_, present_place(config_))));
  if (state_.step > 0) log::info("resumed at step {} from {}", state_.step, last_checkpoint_);
}

// Queues the next step and then waits for the one before, so that a CUDA device always has work.
void Trainer::step() {
  if (queue_->pending() == 0) last_done_ = std::chrono::steady_clock::now();
  train_step(
      {*model_, [this](data::Batch& batch) { loader_->next(batch); }, *optimizer_, *queue_, *comm_, config_, &*watch_},
      state_.step);
  ++state_.step;
  const int64_t ahead = context_.on_cuda() ? 1 : 0;
  while (queue_->pending() > ahead) finish_oldest();
}

// To be called before anybody looks at weights, state or counters.
void Trainer::drain() {
  while (queue_->pending() > 0) finish_oldest();
}

void Trainer::finish_oldest() {
  const StepOutcome outcome = queue_->pop();
  StepMetrics row;
  row.step = outcome.step;
  row.loss = outcome.loss();
  row.grad_norm = outcome.grad_norm;
  row.lr = outcome.lr;
  row.tokens = outcome.tokens;
  row.padded_tokens = outcome.padded_tokens;
  row.scored = outcome.sums.n_scored;
  row.seconds = seconds_since(last_done_);
  last_done_ = std::chrono::steady_clock::now();
  row.skipped = outcome.skipped;
  state_.step_seconds += row.seconds;
  report(outcome);  // first: count() may be the end of the run
  count(outcome);
  metrics_->append(row);
  progress_->step(row);
}

// What a user should hear about the numbers of a step.
void Trainer::report(const StepOutcome& outcome) {
  const Fp8Watch::Seen seen = watch_->pop(outcome.sums.n_scored);
  if (seen.statistics.has_value()) metrics_->append(*seen.statistics);
  if (!seen.nonfinite.empty())
    log::warn("step {}: amax not finite, the last finite scale is kept: {}", outcome.step,
              fmt::join(seen.nonfinite, ", "));
  if (outcome.skipped) return;  // its gradient says nothing
  const precision::Fp8Section& band = config_.fp8;
  const bool outside = (band.grad_norm_low.has_value() && outcome.grad_norm < *band.grad_norm_low) ||
                       (band.grad_norm_high.has_value() && outcome.grad_norm > *band.grad_norm_high);
  if (outside && !outside_band_)
    log::warn("step {}: the gradient norm {:.4g} has left the band of fp8.grad_norm_low and fp8.grad_norm_high",
              outcome.step, outcome.grad_norm);
  if (!outside && outside_band_)
    log::info("step {}: the gradient norm {:.4g} is back in its band", outcome.step, outcome.grad_norm);
  outside_band_ = outside;
}

void Trainer::count(const StepOutcome& outcome) {
  state_.tokens += outcome.tokens;
  state_.updates = outcome.updates;
  if (outcome.sums.n_scored == 0) ++state_.empty;
  if (outcome.nonfinite.empty()) {
    state_.skipped_in_a_row = 0;
    if (std::isfinite(outcome.loss())) state_.remember_loss(outcome.loss());
    return;
  }
  ++state_.skipped;
  ++state_.skipped_in_a_row;
  log::warn("step {}: {} is not finite; the weights were left alone ({} such steps so far, {} in a row)", outcome.step,
            outcome.nonfinite == "loss" ? "the loss" : "the gradient of " + outcome.nonfinite, state_.skipped,
            state_.skipped_in_a_row);
  const bool stop = config_.train.nonfinite == NonFinite::kStop;
  if (!stop && state_.skipped_in_a_row < config_.train.max_consecutive_skips) return;
  finish_save();  // the message names the last one
  fail<Error>(
      "stopped at step {}: {} steps in a row were not finite (last: {}); the last checkpoint is {}. Try a lower "
      "optimizer.lr, a longer schedule.warmup_steps, or precision: fp32",
      outcome.step, state_.skipped_in_a_row, outcome.nonfinite, last_checkpoint_.empty() ? "none" : last_checkpoint_);
}

// What a mixture has given so far; to be called when no step is under way.
void Trainer::report_drawn() const {
  std::string text;
  for (const data::DrawnSoFar& set : loader_->drawn())
    text += fmt::format("{}{} {} sequences, {} tokens ({:.3g} epochs)", text.empty() ? "" : "; ", set.name,
                        with_thousands(set.sequences), with_thousands(set.tokens), set.epochs);
  if (!text.empty()) log::info("step {}  drawn so far: {}", state_.step, text);
}

// False when a signal came before the end; the validation is then due first thing after a resume.
bool Trainer::validate() {
  drain();
  state_.pending_eval = false;
  if (evaluator_->empty()) return true;
  const auto results = evaluator_->run(*model_, *comm_,
                                       {.max_batches = config_.eval.max_batches,
                                        .should_stop = [this] { return signal() != 0; },
                                        .status = [this](const std::string& text) { progress_->status(text); }});
  if (!results.has_value()) {
    state_.pending_eval = true;
    return false;
  }
  metrics_->append({state_.step, *results, loader_->drawn()});
  report_drawn();
  for (const auto& [name, m] : *results)
    log::info("step {}  validation '{}': loss {:.4f}  perplexity {:.3f}  accuracy {:.4f}", state_.step, name, m.loss,
              m.perplexity, m.accuracy);
  for (const auto& [name, m] : *results)
    if (m.scored == 0)
      log::warn("step {}  validation '{}': nothing was scored, it has no residue that is masked", state_.step, name);
  if (note_validation(results->at(monitor_).loss) && config_.checkpoint.keep_best) save();
  return true;
}

// True when the monitored loss is the best so far.
bool Trainer::note_validation(double loss) {
  state_.valid_loss = loss;
  state_.valid_step = state_.step;
  const bool better = std::isfinite(loss) && (!state_.best_loss.has_value() || loss < *state_.best_loss);
  const bool enough =
      better && (!state_.best_loss.has_value() || loss < *state_.best_loss - config_.eval.min_improvement);
  if (better) {
    state_.best_loss = loss;
    state_.best_step = state_.step;
  }
  state_.evals_without_improvement = enough ? 0 : state_.evals_without_improvement + 1;
  if (config_.eval.patience > 0 && state_.evals_without_improvement >= config_.eval.patience) {
    state_.stopped_early = true;
    log::info("stopping early: {} validations without an improvement; best loss {:.4f} at step {}",
              state_.evals_without_improvement, state_.best_loss.value_or(NAN), state_.best_step);
  }
  return better;
}

void Trainer::save() {
  save(config_.checkpoint.async ? BackgroundSave::Mode::kBackground : BackgroundSave::Mode::kWait);
  if (saving_->done()) finish_save();
}

void Trainer::save(BackgroundSave::Mode mode) {
  drain();
  if (!folder_.is_in_place() && !std::exchange(told_of_removal_, true))
    log::warn(
        "{} was removed or replaced during the run: metrics.jsonl, config.yaml and train.log are lost from now on; "
        "checkpoints go to a new folder of that name",
        folder_.path());
  const auto start = std::chrono::steady_clock::now();
  finish_save();  // the one before: there is never more than one on its way
  started_save_ = state_.step;
  const auto make = [this](HostCopy* copy) {
    const data::LoaderState position = loader_->state();
    auto request = save_request({*model_, *optimizer_, state_, position, config_, carried_}, copy);
    request.manifest.kernels = kernels_.record;
    request.manifest.versions.insert(options_.versions.begin(), options_.versions.end());
    return request;
  };
  saving_->start(make, mode, start);
}

// Waits for the checkpoint on its way. Throws CheckpointError.
void Trainer::take_save() {
  const SaveOutcome saved = saving_->finish();
  last_checkpoint_ = saved.result.path;
  saved_step_ = saved.step;
  log::info("saved {} ({}, {:.2f} s, stalled {:.2f} s)", saved.result.path, human_bytes(saved.result.bytes),
            saved.seconds, saved.stalled);
}

// The same, if there is one; by policy an error is a line of the log.
void Trainer::finish_save() {
  if (!saving_->pending()) return;
  try {
    take_save();
  } catch (const CheckpointError& e) {
    if (config_.checkpoint.on_error == SaveError::kStop) throw;
    log::error("training goes on without this checkpoint: {}", e.what());
  }
}

TrainResult Trainer::finish(StopReason reason) {
  drain();
  finish_save();
  if (saved_step_ != state_.step) {
    save(BackgroundSave::Mode::kWait);
    try {
      take_save();
    } catch (const CheckpointError& e) {
      progress_.reset();
      fail<CheckpointError>("the last steps are not saved: {}; the newest checkpoint is {}", e.what(),
                            last_checkpoint_.empty() ? "none" : last_checkpoint_);
    }
  }
  metrics_->finish();
  progress_.reset();
  report_drawn();
  TrainResult result{.reason = reason, .signal = signal(), .checkpoint = last_checkpoint_};
  if (reason != StopReason::kSignal) result.unmet = unmet_expectations(config_.expect, state_);
  return result;
}

TrainResult Trainer::run() {
  if (is_over() && !state_.pending_eval) {
    log::info("nothing to do: {} has finished ({} steps{}); give a larger {} to go on", folder_.path(), state_.step,
              state_.stopped_early ? ", stopped early" : "",
              state_.step >= config_.train.max_steps ? "train.max_steps" : "eval.patience");
    return finish(state_.stopped_early ? StopReason::kStoppedEarly : StopReason::kFinished);
  }
  if (state_.pending_eval) {
    if (!validate()) return finish(StopReason::kSignal);
    save();  // the same step, now with its validation
  }
  while (!is_over()) {
    if (signal() != 0) return finish(StopReason::kSignal);
    if (saving_->done()) finish_save();
    step();
    const bool last = state_.step >= config_.train.max_steps;
    if ((last || due(config_.eval.every_steps)) && !validate()) return finish(StopReason::kSignal);
    if (due(config_.checkpoint.every_steps) && started_save_ != state_.step) save();
  }
  return finish(state_.stopped_early ? StopReason::kStoppedEarly : StopReason::kFinished);
}

}  // namespace

TrainResult train(RunConfig config, const TrainOptions& options) {
  return with_memory_report({.config = config}, [&] { return Trainer(config, options).run(); });
}

}  // namespace esm::train
