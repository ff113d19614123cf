#include "checkpoint/manifest.h"

#include "base/check.h"
#include "base/hash.h"
#include "fuzz/targets.h"

namespace esm::fuzz {

void run_manifest(std::string_view bytes) {
  const std::string body = std::string(bytes) + "\"hash\": \"", end = "\"\n}\n";
  const std::string text = body + hash_hex(body + std::string(32, '0') + end) + end;
  checkpoint::Manifest manifest;
  try {
    manifest = checkpoint::parse_manifest(text, "manifest.json");
  } catch (const CheckpointError&) {
    return;
  }
  for (const checkpoint::FileEntry& file : manifest.files)
    ESM_CHECK(checkpoint::is_plain_file_name(file.name), "'{}' may lead out of the folder", file.name);
  const std::string written = checkpoint::manifest_text(manifest);
  ESM_CHECK(checkpoint::manifest_text(checkpoint::parse_manifest(written, "written.json")) == written,
            "written and read again, the manifest differs:\n{}", written);
}

}  // namespace esm::fuzz
