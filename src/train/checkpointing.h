// Between the trainer's state and a checkpoint folder: what is saved, and how it comes back.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/store.h"
#include "data/loader.h"
#include "models/model.h"
#include "train/host_copy.h"
#include "train/model_io.h"
#include "train/optimizer.h"
#include "train/run_config.h"
#include "train/state.h"

namespace esm::train {

/// What a run does not train but keeps of the model that it began from, so that a later export is complete: its contact
/// head, tensors that we do not use, where all that came from.
struct Carried {
  std::string origin_json;
  std::vector<checkpoint::TensorOut> parameters, passthrough;
  std::optional<ModelSource> source;  // what they are read from
};
/// `own`: copied to memory, so that the files of the source are free to go.
Carried carry(const ModelSource& source, bool own);

/// Parameters are FP32 (two halves are joined), or BF16 of a run that has nothing else; moments as they are kept.
struct ToSave {
  models::Model& model;
  const Optimizer& optimizer;
  const TrainState& state;
  const data::LoaderState& position;
  const RunConfig& config;
  const Carried& carried;
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
