// Between the trainer's state and a checkpoint folder: what is saved, and how it comes back.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "checkpoint/store.h"
#include "data/loader.h"
#include "models/model.h"
#include "train/host_copy.h"
#include "train/model_io.h"
#include "train/optimizer.h"
#include "train/run_config.h"
#include "train/state.h"

namespace esm::train {

/// Parameters are FP32 (two halves are joined), or BF16 of a run that has nothing else; moments as they are kept.
struct ToSave {
  models::Model& model;
  const Optimizer& optimizer;
  const TrainState& state;
  const data::LoaderState& position;
  const RunConfig& config;
  /// The model that the run started from; its contact head and the tensors that we do not use travel on, so that a
  /// later export is complete.
  const std::optional<ModelSource>& carried;
};

/// A request whose spans point into the model, valid until the next step; or, with `copy`, into a copy of its tensors
/// there, for which copy->wait() is due: such a request depends on nothing but `copy` and `carried`. Throws
/// std::bad_alloc when there is no memory for the copy.
checkpoint::SaveRequest save_request(const ToSave& what, HostCopy* copy = nullptr);

/// Bytes that one checkpoint of this model, with moments, takes on disk, roughly.
int64_t checkpoint_bytes(models::Model& model);

/// Fills the parameters of `model` from `source` (converted to FP32) and syncs the compute copies. Throws
/// CheckpointError naming what is missing or of another shape.
void load_parameters(models::Model& model, const ModelSource& source);

/// Fills parameters, moments, state and data position from a checkpoint of ours.
struct Restored {
  TrainState state;
  data::LoaderState position;
};
Restored restore(const checkpoint::OpenCheckpoint& checkpoint, models::Model& model, Optimizer& optimizer);

}  // namespace esm::train
