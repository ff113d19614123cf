// One process at a time makes a thing of the cache.
#pragma once
#include <functional>
#include <string>

#include "base/files.h"

namespace esm::data {

/// Waits for the lock of what `path` (a file or folder to be made) names, kept in `path`.lock, until the result goes;
/// says so in the log when it has to wait. Where the file system knows no locks nobody waits: whoever calls must live
/// with several makers. `should_stop` (may be empty) is asked five times a second; true ends with PrepareStopped.
FileDescriptor cache_lock(const std::string& path, const std::function<bool()>& should_stop);

}  // namespace esm::data
