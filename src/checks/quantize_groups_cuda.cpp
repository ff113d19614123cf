// MXFP8 and NVFP4 against their CPU twin: codes and scales byte for byte, padding of scales included, and what they
// stand for against the emulation of these formats, bit for bit.
#include "kernels/quantize_groups.h"

#include <optional>

#include "checks/cases/quantize_groups.h"
#include "checks/fp8_harness.h"
#include "checks/group_reference.h"
#include "kernels/fake_quantize.h"

namespace esm::checks {
namespace {

using kernels::GroupFormat;

/// One operand of the device: where its codes and scales go.
struct Order {
  explicit Order(const GroupOperand& want) : codes(want.codes.size()), scales(want.scales.size()) {}
  DeviceBuffer<uint8_t> codes, scales;
};

class Check {
 public:
  Check(const cases::QuantizeGroupsCase& c, std::vector<float> x, const char* what)
      : c_(c), what_(what), x_(std::move(x)), count_(c.counted) {
    counted_ = counted_of(c.rows, c.counted);
    const size_t counted_elements = static_cast<size_t>(counted_ * c.cols);
    poison_padding(x_, counted_elements);
    device_.emplace(DType::kBF16, x_);
    amax_ = amax_of(x_, counted_elements);
  }

  void run(GroupFormat format, Report& report) const {
    const bool nv = format == GroupFormat::kNv16;
    std::string name = text("quantize_groups %s %lldx%lld%s", name_of(format), static_cast<long long>(c_.rows),
                            static_cast<long long>(c_.cols), what_);
    if (c_.counted >= 0) name += text(" of %lld rows", static_cast<long long>(c_.counted));
    const GroupOperand want_rows = group_operand(x_, c_.rows, c_.cols, counted_, format, false, amax_),
                       want_columns = group_operand(x_, c_.rows, c_.cols, counted_, format, true, amax_);
    const Order rows(want_rows), columns(want_columns);
    const DeviceBuffer<float> amax(std::vector<float>{amax_}), inverse(1);
    const kernels::QuantizeGroupsArgs both{.format = format,
                                           .rows = c_.rows,
                                           .cols = c_.cols,
                                           .from = device_->get(),
                                           .row_count = count_.get(),
                                           .amax = nv ? amax.get() : nullptr,
                                           .to_rows = rows.codes.get(),
                                           .to_transposed = columns.codes.get(),
                                           .row_scales = rows.scales.get(),
                                           .column_scales = columns.scales.get(),
                                           .tensor_inverse = nv ? inverse.get() : nullptr};
    CHECK_CUDA(launch(both, nullptr));
    report.same(name + " rows", rows.codes.download(), want_rows.codes);
    report.same(name + " row scales", rows.scales.download(), want_rows.scales);
    report.same(name + " columns", columns.codes.download(), want_columns.codes);
    report.same(name + " column scales", columns.scales.download(), want_columns.scales);
    if (nv) report.same(name + " inverse of the tensor", inverse.download(), {1.0f / kernels::nv_tensor_scale(amax_)});

    for (const bool along_rows : {false, true}) {  // one order alone
      const Order& order = along_rows ? columns : rows;
      const GroupOperand& want = along_rows ? want_columns : want_rows;
      order_alone(both, along_rows, order);
      report.same(name + (along_rows ? " columns alone" : " rows alone"), order.codes.download(), want.codes);
      report.same(name + (along_rows ? " column scales alone" : " row scales alone"), order.scales.download(),
                  want.scales);
      report.equal(name + (along_rows ? " columns as emulated" : " rows as emulated"),
                   unlike(emulated(both, along_rows), rounded(want.values)));
    }
  }

 private:
  static void order_alone(kernels::QuantizeGroupsArgs args, bool along_rows, const Order& order) {
    CHECK_CUDA(cudaMemset(order.codes.get(), 0xff, order.codes.size()));
    CHECK_CUDA(cudaMemset(order.scales.get(), 0xff, order.scales.size()));
    (along_rows ? args.to_rows : args.to_transposed) = nullptr;
    (along_rows ? args.row_scales : args.column_scales) = nullptr;
    args.tensor_inverse = nullptr;
    CHECK_CUDA(launch(args, nullptr));
  }

  static std::vector<float> rounded(std::vector<float> values) {
    Activations::round(DType::kBF16, values);
    return values;
  }

  std::vector<float> emulated(const kernels::QuantizeGroupsArgs& args, bool along_rows) const {
    const Activations y(DType::kBF16, x_.size());
    CHECK_CUDA(launch(kernels::FakeQuantizeArgs{.format = args.format,
                                                .along_rows = along_rows,
                                                .rows = args.rows,
                                                .cols = args.cols,
                                                .x = args.from,
                                                .row_count = args.row_count,
                                                .amax = args.amax,
                                                .y = y.get()},
                      nullptr));
    return y.download();
  }

  cases::QuantizeGroupsCase c_;
  const char* what_;
  std::vector<float> x_;
  RowCount count_;
  int64_t counted_ = 0;
  std::optional<Activations> device_;
  float amax_ = 0;
};

}  // namespace

void quantize_groups_checks(Random& random, Report& report) {
  const auto check = [&](const cases::QuantizeGroupsCase& c, std::vector<float> x, const char* what) {
    const Check one(c, std::move(x), what);
    for (const GroupFormat format : {GroupFormat::kMx32, GroupFormat::kNv16}) one.run(format, report);
  };
  check({256, 256, -1}, every_bf16(false), ", every value");
  check({256, 256, -1}, every_bf16(true), ", every finite value");
  for (const cases::QuantizeGroupsCase& c : cases::quantize_groups_cases())
    check(c, uneven(c.rows, c.cols, random), "");
}

}  // namespace esm::checks
