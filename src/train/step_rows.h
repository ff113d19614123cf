// Files of a run that hold one line a step: what a resumed run may keep of them.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace esm::train {

/// Rewrites `path` (if it is there) so that only the lines remain that `keep` accepts; it sees each without its
/// newline; `ended`: it had one, or a kill tore it. Throws DataError.
void cut_lines(const std::string& path, const std::function<bool(std::string_view line, bool ended)>& keep);

/// Cuts rows of steps after `through_step` from a file of JSON objects with an integer "step", and what is no such
/// object; rows of `through_step` itself go too when they have the key `repeated` (""; no such key). Returns `path`.
const std::string& cut_json_rows(const std::string& path, int64_t through_step, std::string_view repeated = "");

}  // namespace esm::train
