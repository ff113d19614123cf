// How the optimizer keeps weights and moments. Defined beside its arithmetic, which host and device share.
#pragma once
#include "kernels/adamw_math.h"

namespace esm::precision {

using kernels::kScaleElements;
using kernels::MasterFormat;
using kernels::MomentFormat;
using kernels::StateFormats;

}  // namespace esm::precision
