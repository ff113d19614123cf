// esmtrain inspect PATH [--diff OTHER] [--tensors] [--verify] [--json]
#include <cstdio>
#include <string>

#include "app/args.h"
#include "app/commands.h"
#include "base/check.h"
#include "train/inspect.h"

namespace esm::app {

int cmd_inspect(int argc, char** argv) {
  std::string path, other;
  bool tensors = false, verify = false, json = false;
  Args args("inspect",
            "Says what a model on disk is: format, size, element types, versions and files; for a checkpoint of ours "
            "also when it was made, how far training was, on what it was computed, and how to resume it. Nothing is "
            "changed. Exit code 6 if something is damaged.");
  args.positional(path, "PATH",
                  "A run folder (its newest complete checkpoint), a checkpoint of ours, a Hugging Face or NVIDIA "
                  "folder, a .safetensors file with config.json beside it, or a .pt file of fair-esm.")
      .option(other, "--diff", "OTHER", "Also compare with this model: settings and tensors that differ.")
      .flag(tensors, "--tensors",
            "Also list every stored tensor: element type, shape, L2 norm, mean, largest magnitude, values that are not "
            "finite.")
      .flag(verify, "--verify", "Compare the content of every file of a checkpoint with its hash, not its size only.")
      .flag(json, "--json", "Print one JSON object on standard output.")
      .example("esmtrain inspect runs/esm2", "how far the run is, and the command that resumes it")
      .example("esmtrain inspect runs/esm2/checkpoints/step-000001000 --verify --tensors", "is it sound, what is in it")
      .example("esmtrain inspect runs/a --diff runs/b", "what differs between two runs");
  if (!args.parse(argc, argv)) return 0;

  const auto how = verify ? checkpoint::Verify::kContent : checkpoint::Verify::kSizes;
  train::InspectReport report{.inspection = train::inspect_model(path, how), .tensors = {}, .other = {}};
  const std::vector<std::string>& problems = report.inspection.problems;
  if (problems.empty()) {
    report.with_tensors = tensors;
    if (tensors) report.tensors = train::summarize_tensors(*report.inspection.source);
    if (!other.empty()) {
      const train::Inspection second = train::inspect_model(other, how);
      report.other.emplace(second.path, train::compare(report.inspection, second));
    }
  }
  std::fputs((json ? train::inspect_json(report) : train::inspect_text(report)).c_str(), stdout);
  if (problems.empty()) return 0;
  fail<CheckpointError>("{}{}", problems.front(),
                        problems.size() > 1 ? fmt::format(" ({} problems in all)", problems.size()) : "");
}

}  // namespace esm::app
