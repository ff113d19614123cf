// The sets that training draws from.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "data/clusters.h"
#include "data/data_config.h"
#include "data/dataset.h"

namespace esm::data {

struct TrainingSet {
  std::string name;
  Dataset data;
  double weight = 1;                             // relative to those of the other sets
  std::shared_ptr<const ClusterIndex> clusters;  // null: an epoch draws every sequence
};

/// Opens data.train: one set, or with data.weights one for each name, in the order of the names; and data.clusters.
/// Throws DataError.
std::vector<TrainingSet> open_training_sets(const DataConfig& config, const DatasetOptions& options);

/// Shares of the draws, in the order of `sets`; their sum is 1.
std::vector<double> shares(const std::vector<TrainingSet>& sets);

/// Changes with the content of any set: what a checkpoint's data position belongs to.
std::string fingerprint(const std::vector<TrainingSet>& sets);

}  // namespace esm::data
