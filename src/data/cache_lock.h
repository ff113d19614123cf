// One process at a time makes a thing of the cache.
#pragma once
#include <string>

#include "base/files.h"

namespace esm::data {

/// Waits for the lock of what `path` (a file or folder to be made) names, kept in `path`.lock, until the result goes.
/// Where the file system knows no locks nobody waits: whoever calls must live with several makers.
FileDescriptor cache_lock(const std::string& path);

}  // namespace esm::data
