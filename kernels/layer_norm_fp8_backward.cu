#include <algorithm>

#include "kernels/bulk_copy.cuh"
#include "kernels/fp8.cuh"
#include "kernels/fp8_tile.cuh"
#include "kernels/layer_norm_columns.cuh"
#include "kernels/layer_norm_fp8.h"
#include "kernels/partials.h"

// One block a multiprocessor. Its warps form teams, each with a row in work; a thread owns eight columns of every row
// of its team, so that the column sums stay in registers. Rows come by bulk copies into a ring of each team, which
// keeps tens of KiB on their way without registers, also while the block turns the bytes of a group of rows, which wait
// in shared memory. 32 rows make whole sectors of the transposed copies, 128 whole lines; neighbouring blocks have
// neighbouring groups, so that the lines fill up while they are in the L2 cache, which rows leave first.
namespace esm::kernels {
namespace {

constexpr int kMaxWarps = 20;                     // of a block: 96 registers a thread
constexpr int kMaxTeams = 15;                     // a barrier each
constexpr int kMaxSlots = 8;                      // of a team
constexpr int kSharedBytes = (227 << 10) - 6144;  // beside what is declared as arrays
constexpr int kStagedBytes = 164 << 10;  // at most, of rows that wait to be turned: two slots a team fit beside

struct Plan {
  int group_rows;  // rows that wait in shared memory
  int team_warps;  // that share a row
  int teams;
  int blocks;
  int step;  // rows from a group of a block to its next one
};

// turned: outputs that are wanted transposed; of two there may be more blocks.
Plan plan(int64_t rows, int64_t cols, int turned) {
  Plan p{};
  const int most = cols <= kLayerNormFp8MaxCols / 4 ? 128 : cols <= kLayerNormFp8MaxCols / 2 ? 64 : 32;
  p.group_rows = turned > 1 && 2 * most * cols > kStagedBytes ? most / 2 : most;
  while (p.group_rows > 32 && ceil_div(rows, p.group_rows) < kMultiprocessors) p.group_rows /= 2;
  p.team_warps = static_cast<int>(ceil_div(cols / 8, 32));
  p.teams = std::min(kMaxTeams, kMaxWarps / p.team_warps);
  p.blocks = static_cast<int>(std::min<int64_t>(kMultiprocessors, ceil_div(rows, p.group_rows)));
  p.step = p.blocks * p.group_rows;
  return p;
}

Plan plan(const LayerNormFp8BackwardArgs& a) {
  return plan(a.rows, a.cols, (a.dx8.transposed != nullptr) + (a.y8.transposed != nullptr));
}

// How the dynamic shared memory is used: offsets in bytes.
struct Layout {
  int staged_dx, staged_y;  // bytes of a group; -1: not wanted transposed
  int ring;
  int slot_bytes;  // x, dy and, if there is one, the residual gradient of a row
  int slots;       // of a team
  int all;
};

// A group's share of this lies behind every 16 staged rows, so that what a warp turns at once, rows r, r + 16, ... of
// the group, is in different banks.
constexpr int kGaps = 2048;

Layout layout(const Plan& p, const LayerNormFp8BackwardArgs& a) {
  const int cols = static_cast<int>(a.cols), staged = p.group_rows * cols + p.group_rows / 16 * (kGaps / p.group_rows);
  Layout l{-1, -1, 0, 0, 0, 0};
  if (a.dx8.transposed != nullptr) {
    l.staged_dx = l.ring;
    l.ring += staged;
  }
  if (a.y8.transposed != nullptr) {
    l.staged_y = l.ring;
    l.ring += staged;
  }
  l.slot_bytes = (a.residual_gradient != nullptr ? 6 : 4) * cols;
  l.slots = std::min(kMaxSlots, (kSharedBytes - l.ring) / (l.slot_bytes * p.teams));
  l.all = std::max(l.ring + p.teams * l.slots * l.slot_bytes, 12 * p.teams * cols);  // the sums at the end
  return l;
}

// Turns the bytes of a group: each thread four columns of 16 rows, 16 bytes of each column.
template <int kGroup>
__device__ void write_columns(const uint8_t* staged, int64_t row0, int64_t rows, int cols, uint8_t* to) {
  constexpr int kParts = kGroup / 16;
  const int part = threadIdx.x % kParts;
  row0 += 16 * part;
  if (row0 >= rows) return;
  for (int column = threadIdx.x / kParts * 4; column < cols; column += blockDim.x / kParts * 4) {
    const uint8_t* from = staged + part * (16 * cols + kGaps / kGroup) + column;
    write_four_columns(to + column * rows + row0, rows,
                       [&](int r) { return *reinterpret_cast<const uint32_t*>(from + r * cols); });
  }
}

// kTeamWarps: at least plan.team_warps. kAhead: what is fetched next comes to the L2 cache already, which pays where a
// row has more to move than to compute.
template <int kTeamWarps, int kGroup, bool kAhead, DType kGradient>
__global__ void __launch_bounds__(32 * kMaxWarps, 1)
    layer_norm_fp8_backward_kernel(const __grid_constant__ LayerNormFp8BackwardArgs a, const Plan plan,
                                   const Layout layout) {
  extern __shared__ __align__(128) uint8_t shared[];  // [dx, y][group], if wanted transposed; [teams][slots]
  __shared__ CopyBarrier arrived[kMaxTeams][kMaxSlots];
  __shared__ float2 sums[2][kMaxTeams][kTeamWarps];
  constexpr uint32_t kOtherSums = sizeof(sums) / 2;
  const int warp = threadIdx.x / 32 % plan.team_warps, team = threadIdx.x / 32 / plan.team_warps;
  const uint32_t cols = static_cast<uint32_t>(a.cols), column = 8 * (threadIdx.x - 32 * plan.team_warps * team);
  const bool has_columns = column < cols;
  const int rows = static_cast<int>(a.rows), counted = static_cast<int>(counted_rows(a.rows, a.row_count));
  const int tensors = a.residual_gradient != nullptr ? 3 : 2;
  const float inverse = 1.0f / static_cast<float>(cols);
  const bool turn_dx = layout.staged_dx >= 0, turn_y = layout.staged_y >= 0;
  const bool wants_dx8 = turn_dx || a.dx8.rows != nullptr;
  const uint32_t staged = shared_address(shared) + column, team_barriers = shared_address(arrived[team]);
  const uint32_t ring = shared_address(shared) + layout.ring + team * layout.slots * layout.slot_bytes;
  uint32_t team_sums = shared_address(sums[0][team]);
  const float dx_scale = scale_of(a.dx8), y_scale = scale_of(a.y8);

  Vec8<Bf16> held_gamma = zero8<Bf16>(), held_beta = zero8<Bf16>();
  if (has_columns) {
    held_gamma = load8_shared(static_cast<const Bf16*>(a.gamma) + column);
    held_beta = load8_shared(static_cast<const Bf16*>(a.beta) + column);
  }
  for (int i = threadIdx.x; i < 2 * kMaxTeams * kTeamWarps; i += blockDim.x) (&sums[0][0][0])[i] = make_float2(0, 0);
  if (column == 0)
#pragma unroll 1
    for (int slot = 0; slot < layout.slots; ++slot) init(team_barriers + 8 * slot, tensors);
  __syncthreads();

  // Rows of the team on their way and in work: `team`, `team + teams`, ... of each group of the block.
  const auto next = [&](int& group0, int& in_group) {
    in_group += plan.teams;
    if (in_group < kGroup) return;
    in_group = team;
    group0 += plan.step;
  };
  const auto fetch = [&](int slot, int group0, int in_group) {  // each tensor by a warp of its own, if there are enough
    if (threadIdx.x % 32 != 0) return;
    const int row = group0 + in_group, in_later = in_group + plan.teams;
    const int later = group0 + in_later + (in_later < kGroup ? 0 : plan.step - kGroup);  // the next, to the L2 cache
    for (int t = warp; t < tensors; t += plan.team_warps) {
      const Bf16* from = static_cast<const Bf16*>(t == 0 ? a.x : t == 1 ? a.dy : a.residual_gradient);
      if (row < counted)
        copy_bytes(ring + slot * layout.slot_bytes + t * 2 * cols,
                   from + static_cast<uint64_t>(static_cast<uint32_t>(row)) * cols, 2 * cols, team_barriers + 8 * slot);
      if (kAhead && later < counted)
        prefetch_bytes(from + static_cast<uint64_t>(static_cast<uint32_t>(later)) * cols, 2 * cols);
    }
  };
  int ahead0 = static_cast<int>(blockIdx.x) * kGroup, ahead_in_group = team;
#pragma unroll 1
  for (int slot = 0; slot < layout.slots; ++slot) {
    fetch(slot, ahead0, ahead_in_group);
    next(ahead0, ahead_in_group);
  }

  Columns<Bf16, true> columns;
  Amax<Bf16> dx_amax, y_amax;
  int slot = 0;
  uint32_t phase = 0, other = kOtherSums;
  int group0 = static_cast<int>(blockIdx.x) * kGroup, in_group = team;
  float next_mean = 0, next_rstd = 0;
  const auto read_statistics = [&](int row) {
    next_mean = row < counted ? __ldg(a.mean + static_cast<uint32_t>(row)) : 0.0f;
    next_rstd = row < counted ? __ldg(a.rstd + static_cast<uint32_t>(row)) : 0.0f;
  };
  read_statistics(group0 + in_group);
  while (group0 < rows) {
    const int this_group0 = group0;
    if (const int row = group0 + plan.step + 32 * static_cast<int>(threadIdx.x / 2);
        threadIdx.x < 2 * kGroup / 32 && row < counted)  // the next group's statistics: lines of 32
      prefetch((threadIdx.x % 2 == 0 ? a.mean : a.rstd) + row);
#pragma unroll 1
    do {
      const int row = group0 + in_group, row_in_group = in_group;
      if (row >= rows) {  // part of a group at the end
        next(group0, in_group);
        continue;
      }
      next(group0, in_group);
      const float mean = next_mean, rstd = next_rstd;
      read_statistics(group0 + in_group);
      Vec8<Bf16> x = zero8<Bf16>(), dy = zero8<Bf16>(), residual = zero8<Bf16>();
      if (row < counted) {
        wait(team_barriers + 8 * slot, phase);
        if (has_columns) {
          const uint32_t from = ring + slot * layout.slot_bytes + 2 * column;
          x.a = read16(from);
          dy.a = read16(from + 2 * cols);
          if (tensors == 3) residual.a = read16(from + 4 * cols);
        }
      }
      float gamma[8], beta[8], pair[2] = {};
      hide(held_gamma.a);  // as FP32 they would stay in registers beside it
      unpack(held_gamma, gamma);
      columns.first(x, dy, gamma, mean, rstd, pair[0], pair[1]);
#pragma unroll
      for (int k = 0; k < 8; ++k) asm volatile("" : "+f"(columns.dbeta[k]));  // the compiler would add twice
      const float sum = lanes_sums<2>(pair);
      if (threadIdx.x % 16 == 0) write_float(team_sums + 8 * warp + threadIdx.x % 32 / 4, sum);
      sync_threads(1 + team, 32 * plan.team_warps);  // one a row: the next row writes the other half of the sums
      fetch(slot, ahead0, ahead_in_group);
      next(ahead0, ahead_in_group);
      if (++slot == layout.slots) {
        slot = 0;
        phase ^= 1;
      }
      float mean_g = 0, mean_gx = 0;
#pragma unroll
      for (int w = 0; w < kTeamWarps; ++w) {
        const float2 of_warp = read_pair(team_sums + 8 * w);
        mean_g += of_warp.x;
        mean_gx += of_warp.y;
      }
      team_sums += other;
      other = -other;
      hide(held_beta.a);
      unpack(held_beta, beta);
      float dx[8], y[8];
      columns.second<true>(x, dy, residual, gamma, beta, mean, rstd, mean_g * inverse, mean_gx * inverse, dx, y);
      Vec8<Bf16> dx_bf16;
      pack(dx, dx_bf16);
      round_bf16(y, y_amax, row < counted);  // beta alone otherwise; dx is 0 already
      if (has_columns) {                     // the other lanes have no dx of their own
        dx_amax.see(dx_bf16);
        const uint64_t to = static_cast<uint64_t>(static_cast<uint32_t>(row)) * cols + column;
        store16_first(static_cast<Bf16*>(a.dx) + to, dx_bf16.a);
        const uint32_t at = staged + row_in_group * cols + row_in_group / 16u * (kGaps / kGroup);
        if (wants_dx8) {
          unpack(dx_bf16, dx);
          const uint2 dx_bytes = fp8_bytes<kGradient>(dx, dx_scale);
          if (a.dx8.rows != nullptr) store8_bytes_first(a.dx8.rows + to, dx_bytes);
          if (turn_dx) write8(at + layout.staged_dx, dx_bytes);
        }
        if (turn_y) write8(at + layout.staged_y, fp8_bytes<DType::kF8E4M3>(y, y_scale));
      }
    } while (group0 == this_group0);
    if (!turn_dx && !turn_y) continue;
    __syncthreads();
    if (turn_dx) write_columns<kGroup>(shared + layout.staged_dx, this_group0, a.rows, cols, a.dx8.transposed);
    if (turn_y) write_columns<kGroup>(shared + layout.staged_y, this_group0, a.rows, cols, a.y8.transposed);
    __syncthreads();
  }

  // The teams' sums in their order.
  float *folded = reinterpret_cast<float*>(shared),
        *partials = static_cast<float*>(a.workspace) + blockIdx.x * 3 * cols;
  __syncthreads();
  if (has_columns)
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      folded[3 * team * cols + column + k] = columns.dgamma[k];
      folded[(3 * team + 1) * cols + column + k] = columns.dbeta[k];
      folded[(3 * team + 2) * cols + column + k] = columns.dx_sum[k];
    }
  __syncthreads();
  for (uint32_t c = threadIdx.x; c < 3 * cols; c += blockDim.x) {
    float total = 0;
    for (int t = 0; t < plan.teams; ++t) total += folded[3 * t * cols + c];
    partials[c] = total;
  }
  raise_by_block<0>(a.dx8.amax, dx_amax.bits());
  raise_by_block<1>(a.y8.amax, y_amax.bits());
}

template <DType kGradient>
cudaError_t run(const LayerNormFp8BackwardArgs& a, cudaStream_t stream) {
  const Plan p = plan(a);
  const Layout l = layout(p, a);
  const auto go = [&](void (*kernel)(LayerNormFp8BackwardArgs, Plan, Layout)) {
    const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, l.all);
    if (error != cudaSuccess) return error;
    return start(kernel, dim3(p.blocks), dim3(32 * p.team_warps * p.teams), l.all, stream, a, p, l);
  };
  constexpr bool kAhead = true;
  if (p.team_warps < 4) {
    if (p.group_rows == 128) return go(layer_norm_fp8_backward_kernel<5, 128, !kAhead, kGradient>);
    if (p.group_rows == 64) return go(layer_norm_fp8_backward_kernel<5, 64, !kAhead, kGradient>);
    return go(layer_norm_fp8_backward_kernel<5, 32, !kAhead, kGradient>);
  }
  if (p.group_rows == 128) return go(layer_norm_fp8_backward_kernel<5, 128, kAhead, kGradient>);
  if (p.group_rows == 16) return go(layer_norm_fp8_backward_kernel<20, 16, kAhead, kGradient>);
  if (p.group_rows == 64)
    return p.team_warps > 5 ? go(layer_norm_fp8_backward_kernel<10, 64, kAhead, kGradient>)
                            : go(layer_norm_fp8_backward_kernel<5, 64, kAhead, kGradient>);
  return p.team_warps > 10 ? go(layer_norm_fp8_backward_kernel<20, 32, kAhead, kGradient>)
                           : go(layer_norm_fp8_backward_kernel<10, 32, kAhead, kGradient>);
}

}  // namespace

size_t layer_norm_fp8_backward_workspace(int64_t rows, int64_t cols) {
  return rows <= 0 ? 0 : static_cast<size_t>(plan(rows, cols, 2).blocks) * 3 * cols * sizeof(float);
}

cudaError_t launch(const LayerNormFp8BackwardArgs& args, cudaStream_t stream) {
  if (args.rows <= 0) return cudaSuccess;
  if (args.rows > INT32_MAX / 2 || args.rows % kFp8Multiple != 0 || args.cols < kFp8Multiple ||
      args.cols % kFp8Multiple != 0 || args.cols > kLayerNormFp8MaxCols || !aligned16(args.x) || !aligned16(args.dy) ||
      !aligned16(args.residual_gradient) || !aligned16(args.gamma) || !aligned16(args.beta) || args.dx == nullptr ||
      !aligned16(args.dx) || !usable(args.dx8, false) || !usable(args.y8, false) || args.y8.rows != nullptr ||
      args.y8.dtype != DType::kF8E4M3 || args.workspace == nullptr || !aligned16(args.workspace))
    return cudaErrorInvalidValue;
  const cudaError_t error =
      with_fp8(args.dx8.dtype, [&](auto gradient) { return run<decltype(gradient)::value>(args, stream); });
  if (error != cudaSuccess) return error;
  return launch(AddPartialsArgs{.partials = static_cast<const float*>(args.workspace),
                                .count = plan(args).blocks,
                                .width = args.cols,
                                .n_outs = 3,
                                .outs = {args.dgamma, args.dbeta, args.dx_sum}},
                stream);
}

}  // namespace esm::kernels
