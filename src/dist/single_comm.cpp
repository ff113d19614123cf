#include <algorithm>

#include "base/check.h"
#include "dist/comm.h"

namespace esm::dist {
namespace {

class SingleComm final : public Comm {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void all_reduce(std::span<std::byte> data, DType dtype, ReduceOp) override {
    ESM_CHECK(static_cast<int64_t>(data.size()) % size_of(dtype) == 0, "all_reduce of {} bytes of {}", data.size(),
              dtype_name(dtype));
  }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override { copy(mine, all); }
  void reduce_scatter(std::span<const std::byte> all, std::span<std::byte> mine, DType) override { copy(all, mine); }
  void broadcast(std::span<std::byte>, int root) override { ESM_CHECK(root == 0, "broadcast from rank {} of 1", root); }
  void barrier() override {}

 private:
  static void copy(std::span<const std::byte> from, std::span<std::byte> to) {
    ESM_CHECK(from.size() == to.size(), "{} bytes for {}", from.size(), to.size());
    if (from.data() != to.data()) std::copy(from.begin(), from.end(), to.begin());
  }
};

}  // namespace

std::unique_ptr<Comm> make_single_comm() { return std::make_unique<SingleComm>(); }

}  // namespace esm::dist
