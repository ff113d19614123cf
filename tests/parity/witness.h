// How far a BF16 model may lie from exact values: not by a fixed number, since conditioning differs by orders of
// magnitude between models and tensors, but by what an independent BF16 program of the same mathematics (Oracle with
// BF16 storage) is off for the very same model and batch.
#pragma once
#include <map>
#include <string>

#include "parity/oracle.h"
#include "support/compare.h"
#include "support/torch.h"

namespace esm::test {

/// Exact loss and gradients of a model on a batch, and the bounds of a BF16 model of the same weights.
class Bf16Witness {
 public:
  Bf16Witness(models::Esm2& weights, const data::Batch& batch)
      : exact_(weights), roundoff_(operation_tolerance(DType::kBF16, batch.real_tokens)) {
    Oracle rounded(weights, DType::kBF16);
    exact_loss_ = exact_.run(batch).loss_sum;
    loss_bound_ = bound(std::abs(rounded.run(batch).loss_sum / exact_loss_ - 1), roundoff_.relative_l2);
    for (const auto& [name, leaf] : exact_.parameters()) {
      const Difference off = difference(rounded.gradient(name), exact_.gradient(name));
      bounds_[name] = {bound(off.relative_l2, roundoff_.relative_l2), bound(off.of_max, roundoff_.of_max)};
    }
  }

  void check_loss(double loss_sum) const {
    CAPTURE(loss_sum, exact_loss_, loss_bound_);
    CHECK(std::abs(loss_sum / exact_loss_ - 1) <= loss_bound_);
  }
  void check_gradients(models::Model& actual) const {
    for_each_gradient(actual, [&](const std::string& name, const std::vector<double>& gradient) {
      check_close(name, gradient, exact_.gradient(name), bounds_.at(name));
    });
  }
  /// A twentieth more or less in any one gradient would be noticed.
  void check_power(models::Model& actual) const {
    for_each_gradient(actual, [&](const std::string& name, std::vector<double> gradient) {
      for (const double factor : {0.95, 1.05}) {
        std::vector<double> planted = gradient;
        for (double& value : planted) value *= factor;
        CAPTURE(name, factor);
        CHECK_FALSE(within(difference(planted, exact_.gradient(name)), bounds_.at(name)));
      }
    });
  }

 private:
  static double bound(double witness, double roundoff) { return 1.5 * witness + roundoff; }

  template <class Body>
  static void for_each_gradient(models::Model& model, const Body& body) {
    for (nn::UnitStorage* unit : model.units())
      for (size_t i = 0; i < unit->entries().size(); ++i)
        body(unit->entries()[i].spec.name, values(unit->view(nn::Role::kGrad, i)));
  }

  Oracle exact_;
  Tolerance roundoff_;
  double exact_loss_ = 0, loss_bound_ = 0;
  std::map<std::string, Tolerance> bounds_;
};

}  // namespace esm::test
