#include "data/training_set.h"

#include "base/hash.h"

namespace esm::data {

std::vector<TrainingSet> open_training_sets(const DataConfig& config, const DatasetOptions& options) {
  std::vector<TrainingSet> sets;
  if (config.weights.empty())
    sets.push_back({.name = config.train.begin()->first, .data = open_all(config.train, options)});
  else
    for (const auto& [name, paths] : config.train)
      sets.push_back({.name = name, .data = open_dataset(paths, options), .weight = config.weights.at(name)});
  for (TrainingSet& set : sets)
    if (const auto tables = config.clusters.find(set.name); tables != config.clusters.end())
      set.clusters = open_clusters(tables->second, set.data, options);
  return sets;
}

std::vector<double> shares(const std::vector<TrainingSet>& sets) {
  double all = 0;
  for (const TrainingSet& set : sets) all += set.weight;
  std::vector<double> result;
  for (const TrainingSet& set : sets) result.push_back(set.weight / all);
  return result;
}

std::string fingerprint(const std::vector<TrainingSet>& sets) {
  if (sets.size() == 1 && sets.front().clusters == nullptr) return sets.front().data.fingerprint();
  Hasher hasher;
  for (const TrainingSet& set : sets) {
    hasher.update(set.data.fingerprint());
    hasher.update(set.clusters != nullptr ? set.clusters->fingerprint() : "-");
  }
  return hasher.hex();
}

}  // namespace esm::data
