#include "parity/training_curve.h"

namespace esm::test {

TEST_CASE("BF16 training follows the FP32 curve") { check_bf16_curve(Context{}); }

}  // namespace esm::test
