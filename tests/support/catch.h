// The one place that knows which Catch2 is installed (2 on Debian 12, 3 on Ubuntu 24.04).
#pragma once
#if ESM_CATCH2_MAJOR >= 3
#include <catch2/catch_all.hpp>
using Catch::Approx;
using Catch::Matchers::ContainsSubstring;
#else
#include <catch2/catch.hpp>
inline auto ContainsSubstring(const std::string& text) { return Catch::Matchers::Contains(text); }
#endif
