// CUDA's handle types by name only, so that headers of device/ need no toolkit. They equal cudaStream_t and its kin.
#pragma once

struct CUstream_st;
struct CUevent_st;
struct CUgraphExec_st;

namespace esm::device {

using StreamHandle = CUstream_st*;
using EventHandle = CUevent_st*;
using GraphExecHandle = CUgraphExec_st*;

}  // namespace esm::device
