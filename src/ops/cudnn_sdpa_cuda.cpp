#include "ops/cudnn_sdpa.h"

// Without its JSON library (plans as text), which costs a fifth of the compile time.
#define CUDNN_FRONTEND_SKIP_JSON_LIB
#include <cudnn_frontend.h>

#include <array>
#include <cmath>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include "base/check.h"
#include "ops/version.h"

namespace esm::ops {
namespace {

namespace fe = cudnn_frontend;
using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;

// Names of the tensors in a plan.
enum Uid : int64_t {
  kQ = 1,
  kK,
  kV,
  kOut,
  kLse,
  kDout,
  kDq,
  kDk,
  kDv,
  kLengths,
  kQkvOffsets,
  kOutOffsets,
  kLseOffsets
};

void check_cudnn(cudnnStatus_t status, const char* what) {
  if (status != CUDNN_STATUS_SUCCESS) fail<DeviceError>("cuDNN: {} from {}", cudnnGetErrorString(status), what);
}

void check_frontend(fe::error_t error, const char* what) {
  if (error.is_bad()) fail<DeviceError>("cuDNN {}: {} from {}", cudnn_version(), error.get_message(), what);
}

struct HandleDeleter {
  void operator()(cudnnHandle_t handle) const { cudnnDestroy(handle); }
};

/// A graph under construction, with what forward and backward have in common.
class Builder {
 public:
  explicit Builder(const AttentionSizes& sizes) : sizes_(sizes), graph_(std::make_unique<fe::graph::Graph>()) {
    graph_->set_io_data_type(fe::DataType_t::BFLOAT16)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    lengths = index(kLengths, "lengths", sizes.capacity);
    qkv_offsets = index(kQkvOffsets, "qkv_offsets", sizes.capacity + 1);
    out_offsets = index(kOutOffsets, "out_offsets", sizes.capacity + 1);
    lse_offsets = index(kLseOffsets, "lse_offsets", sizes.capacity + 1);
  }

  fe::graph::Graph& graph() { return *graph_; }
  std::unique_ptr<fe::graph::Graph> take() { return std::move(graph_); }

  /// [B, H, S, K] over rows of `row` elements; a sequence's rows begin at its offset, so the first stride is not used.
  Tensor rows(Tensor tensor, Uid uid, int64_t row, const Tensor& offsets) const {
    tensor->set_uid(uid)
        .set_dim({sizes_.capacity, sizes_.heads, sizes_.max_seqlen, sizes_.head_dim})
        .set_stride({sizes_.max_seqlen * row, sizes_.head_dim, row, 1})
        .set_ragged_offset(offsets);
    return tensor;
  }
  Tensor input(Uid uid, const char* name) {
    return graph_->tensor(fe::graph::Tensor_attributes().set_name(name).set_uid(uid));
  }
  Tensor qkv_rows(Tensor tensor, Uid uid) const {
    return rows(tensor, uid, 3 * sizes_.heads * sizes_.head_dim, qkv_offsets);
  }
  Tensor out_rows(Tensor tensor, Uid uid) const {
    return rows(tensor, uid, sizes_.heads * sizes_.head_dim, out_offsets);
  }
  /// [B, H, S, 1], token-major: with head-major statistics cuDNN's backward gives zeros (cudnn-frontend issue 462).
  Tensor lse_rows(Tensor tensor) const {
    tensor->set_uid(kLse)
        .set_dim({sizes_.capacity, sizes_.heads, sizes_.max_seqlen, 1})
        .set_stride({sizes_.max_seqlen * sizes_.heads, 1, sizes_.heads, 1})
        .set_data_type(fe::DataType_t::FLOAT)
        .set_ragged_offset(lse_offsets);
    return tensor;
  }
  float scale() const { return static_cast<float>(1.0 / std::sqrt(static_cast<double>(sizes_.head_dim))); }

  Tensor lengths, qkv_offsets, out_offsets, lse_offsets;

 private:
  Tensor index(Uid uid, const char* name, int64_t n) {
    return graph_->tensor(fe::graph::Tensor_attributes()
                              .set_name(name)
                              .set_uid(uid)
                              .set_dim({n, 1, 1, 1})
                              .set_stride({1, 1, 1, 1})
                              .set_data_type(fe::DataType_t::INT32));
  }

  const AttentionSizes& sizes_;
  std::unique_ptr<fe::graph::Graph> graph_;
};

struct Plan {
  std::unique_ptr<fe::graph::Graph> graph;
  int64_t workspace_bytes = 0;

  void build(cudnnHandle_t handle, const char* what) {
    check_frontend(graph->build(handle, {fe::HeurMode_t::A}), what);
    check_frontend(graph->get_workspace_size(workspace_bytes), what);
  }
  void run(cudnnHandle_t handle, std::unordered_map<int64_t, void*>& pointers, void* workspace,
           const char* what) const {
    ESM_CHECK(workspace != nullptr || workspace_bytes == 0, "{} needs a workspace of {} bytes", what, workspace_bytes);
    check_frontend(graph->execute(handle, pointers, workspace), what);
  }
};

Plan forward_plan(const AttentionSizes& sizes, cudnnHandle_t handle) {
  Builder b(sizes);
  const Tensor q = b.qkv_rows(b.input(kQ, "q"), kQ), k = b.qkv_rows(b.input(kK, "k"), kK),
               v = b.qkv_rows(b.input(kV, "v"), kV);
  auto [out, lse] = b.graph().sdpa(q, k, v,
                                   fe::graph::SDPA_attributes()
                                       .set_name("attention")
                                       .set_generate_stats(true)
                                       .set_attn_scale(b.scale())
                                       .set_padding_mask(true)
                                       .set_seq_len_q(b.lengths)
                                       .set_seq_len_kv(b.lengths));
  b.out_rows(out, kOut)->set_output(true);
  b.lse_rows(lse)->set_output(true);
  Plan plan{.graph = b.take()};
  plan.build(handle, "the forward plan of attention");
  return plan;
}

Plan backward_plan(const AttentionSizes& sizes, cudnnHandle_t handle) {
  Builder b(sizes);
  const Tensor q = b.qkv_rows(b.input(kQ, "q"), kQ), k = b.qkv_rows(b.input(kK, "k"), kK),
               v = b.qkv_rows(b.input(kV, "v"), kV);
  const Tensor out = b.out_rows(b.input(kOut, "out"), kOut), dout = b.out_rows(b.input(kDout, "dout"), kDout);
  const Tensor lse = b.lse_rows(b.input(kLse, "lse"));
  auto [dq, dk, dv] = b.graph().sdpa_backward(q, k, v, out, dout, lse,
                                              fe::graph::SDPA_backward_attributes()
                                                  .set_name("attention_backward")
                                                  .set_attn_scale(b.scale())
                                                  .set_padding_mask(true)
                                                  .set_seq_len_q(b.lengths)
                                                  .set_seq_len_kv(b.lengths)
                                                  .set_max_total_seq_len_q(sizes.tokens)
                                                  .set_max_total_seq_len_kv(sizes.tokens)
                                                  .set_deterministic_algorithm(sizes.deterministic));
  b.qkv_rows(dq, kDq)->set_output(true);
  b.qkv_rows(dk, kDk)->set_output(true);
  b.qkv_rows(dv, kDv)->set_output(true);
  Plan plan{.graph = b.take()};
  plan.build(handle, "the backward plan of attention");
  return plan;
}

// cuDNN's interface has no const.
void* plain(const void* pointer) { return const_cast<void*>(pointer); }

}  // namespace

struct CudnnSdpa::Impl {
  AttentionSizes sizes;
  std::unique_ptr<std::remove_pointer_t<cudnnHandle_t>, HandleDeleter> handle;
  Plan forward, backward;
  device::StreamHandle stream = nullptr;  // the handle's

  void use(device::StreamHandle wanted) {
    if (wanted == stream) return;
    check_cudnn(cudnnSetStream(handle.get(), wanted), "cudnnSetStream");
    stream = wanted;
  }
  /// Pointers of q, k, v inside one [T, 3, H, K] buffer, and of the sequences.
  void add_common(std::unordered_map<int64_t, void*>& pointers, const CudnnSequences& s, const void* qkv) const {
    const std::array<void*, 3> parts = split(qkv);
    pointers[kQ] = parts[0];
    pointers[kK] = parts[1];
    pointers[kV] = parts[2];
    pointers[kLengths] = plain(s.lengths);
    pointers[kQkvOffsets] = plain(s.qkv);
    pointers[kOutOffsets] = plain(s.out);
    pointers[kLseOffsets] = plain(s.lse);
  }
  std::array<void*, 3> split(const void* qkv) const {
    const int64_t part = 2 * sizes.heads * sizes.head_dim;  // bytes
    char* begin = static_cast<char*>(plain(qkv));
    return {begin, begin + part, begin + 2 * part};
  }
};

CudnnSdpa::CudnnSdpa(const AttentionSizes& sizes) : impl_(std::make_unique<Impl>()) {
  impl_->sizes = sizes;
  cudnnHandle_t handle = nullptr;
  check_cudnn(cudnnCreate(&handle), "cudnnCreate");
  impl_->handle.reset(handle);
  impl_->forward = forward_plan(impl_->sizes, handle);
  impl_->backward = backward_plan(impl_->sizes, handle);
}

CudnnSdpa::~CudnnSdpa() = default;

int64_t CudnnSdpa::forward_workspace_bytes() const { return impl_->forward.workspace_bytes; }
int64_t CudnnSdpa::backward_workspace_bytes() const { return impl_->backward.workspace_bytes; }

void CudnnSdpa::forward(const CudnnSequences& sequences, const Forward& args, device::StreamHandle stream) {
  impl_->use(stream);
  std::unordered_map<int64_t, void*> pointers;
  impl_->add_common(pointers, sequences, args.qkv);
  pointers[kOut] = args.out;
  pointers[kLse] = args.lse;
  impl_->forward.run(impl_->handle.get(), pointers, args.workspace, "attention");
}

void CudnnSdpa::backward(const CudnnSequences& sequences, const Backward& args, device::StreamHandle stream) {
  impl_->use(stream);
  std::unordered_map<int64_t, void*> pointers;
  impl_->add_common(pointers, sequences, args.qkv);
  const std::array<void*, 3> grads = impl_->split(args.dqkv);
  pointers[kOut] = plain(args.out);
  pointers[kDout] = plain(args.dout);
  pointers[kLse] = plain(args.lse);
  pointers[kDq] = grads[0];
  pointers[kDk] = grads[1];
  pointers[kDv] = grads[2];
  impl_->backward.run(impl_->handle.get(), pointers, args.workspace, "attention's backward");
}

namespace {

std::string version_text(size_t v) { return fmt::format("{}.{}.{}", v / 10000, v % 10000 / 100, v % 100); }

}  // namespace

std::string cudnn_version() { return version_text(cudnnGetVersion()); }

std::vector<device::LibraryVersion> cudnn_versions() {
  return {{"cuDNN", version_text(CUDNN_VERSION), cudnn_version()}};
}

}  // namespace esm::ops
