#!/usr/bin/env bash
# Sets up, builds and tests: the preset cpu, and the preset cuda where there is an nvcc (built, not tested on a GPU).
#
#   scripts/test.sh [--cpu-only]
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
if (($# > 1)) || [[ ${1:---cpu-only} != --cpu-only ]]; then
  die "usage: scripts/test.sh [--cpu-only]; found: $*"
fi

preset=cpu
if (($# == 0)) && find_nvcc >/dev/null; then preset=cuda; fi
stage "set-up" "$repo/scripts/setup.sh" "$preset"
"$repo/scripts/check.sh" cpu "$@"
say "all passed in $SECONDS s"
