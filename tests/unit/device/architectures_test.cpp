#include "device/architectures.h"

#include "support/catch.h"

namespace esm::test {

TEST_CASE("which devices the code of a build runs on") {
  using device::has_code_for;
  CHECK(has_code_for("90a", 90));
  CHECK_FALSE(has_code_for("90a", 100));
  CHECK_FALSE(has_code_for("90a", 80));
  CHECK(has_code_for("80;90a", 86));
  CHECK(has_code_for("80,90a", 120));  // PTX of 80
  CHECK_FALSE(has_code_for("80-real;90a", 120));
  CHECK(has_code_for("80-real", 89));
  CHECK_FALSE(has_code_for("86-real", 80));
  CHECK(has_code_for("100f-real", 103));
  CHECK_FALSE(has_code_for("100f", 120));
  CHECK(has_code_for("90-virtual", 100));
  CHECK_FALSE(has_code_for("", 90));
  CHECK_FALSE(has_code_for("native", 90));
}

}  // namespace esm::test
