#!/usr/bin/env bash
# What has to pass before a change is handed in; CI runs the same (.ci/run).
#
#   scripts/check.sh                    format, then cpu
#   scripts/check.sh format             clang-format 14 and shellcheck, where they are installed
#   scripts/check.sh cpu [--cpu-only]   builds cpu and (where there is an nvcc) cuda; the tests labelled cpu
#   scripts/check.sh asan               the same tests under AddressSanitizer and UndefinedBehaviorSanitizer
#   scripts/check.sh fuzz [SECONDS]     each fuzzer of a reader for so long (60); what it finds goes to tests/data/fuzz_cases
#   scripts/check.sh gpu                the tests that need GPUs; one that is skipped counts as failed
#   scripts/check.sh all                format, cpu, asan, and gpu where there is a GPU
#
# Tests labelled slow are left to: ctest --test-dir build/cpu -L slow
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
cd "$repo"

# Of another version clang-format lays out some lines differently, so only this one judges.
clang_format_version=14

check_clang_format() {
  local tool found
  tool=$(command -v "clang-format-$clang_format_version" || command -v clang-format || true)
  found=$([[ -z $tool ]] || "$tool" --version | sed -n 's/.*version \([0-9]*\).*/\1/p')
  if [[ $found != "$clang_format_version" ]]; then
    say "format of C++ and CUDA skipped: clang-format $clang_format_version expected, ${found:-none} found"
    return 0
  fi
  git ls-files -z -- '*.cpp' '*.h' '*.cu' '*.cuh' | xargs -0 --no-run-if-empty "$tool" --dry-run --Werror ||
    die "the lines above are not in the format of .clang-format. Put them right with: git ls-files '*.cpp' '*.h'" \
      "'*.cu' '*.cuh' | xargs $tool -i"
}

check_shellcheck() {
  if ! command -v shellcheck >/dev/null; then
    say "check of the shell scripts skipped: no shellcheck"
    return 0
  fi
  shellcheck --external-sources scripts/*.sh scripts/drills/*.sh .ci/run || die "shellcheck found the above in our scripts"
}

check_format() {
  stage "clang-format" check_clang_format
  stage "shellcheck" check_shellcheck
}

check_cpu() {
  local found
  stage "build cpu" build_preset cpu
  if [[ ${1:-} == --cpu-only ]]; then
    say "cuda preset skipped: --cpu-only"
  elif found=$(find_nvcc); then
    stage "build cuda" build_preset cuda
    stage "start cuda" build/cuda/esmtrain --version # links and loads, on a machine without a GPU too
  else
    say "cuda preset skipped: $found"
  fi
  stage "tests cpu" ctest --preset cpu --no-tests=error
}

check_asan() {
  stage "build asan" build_preset asan
  stage "tests asan" ctest --preset asan --no-tests=error
}

# A fuzzer starts from the kept cases and small test data. Its finding (crash, leak, too slow, more than 512 MiB for 64 KiB)
# is kept, for tests/fuzz/replay_test.cpp to run it from then on. 5 s under the sanitizers are about 1 s without.
run_fuzzer() {
  local name=$1 seconds=$2 corpus=build/fuzz/corpus/$1
  mkdir -p "$corpus"
  ASAN_OPTIONS=quarantine_size_mb=16 build/fuzz/tests/fuzz/fuzz_"$name" "$corpus" "tests/data/fuzz_cases/$name" "${@:3}" -max_total_time="$seconds" \
    -max_len=65536 -timeout=5 -rss_limit_mb=512 -print_final_stats=1 -verbosity=0 \
    -artifact_prefix="tests/data/fuzz_cases/$name/" ||
    die "fuzz $name: a finding, kept in tests/data/fuzz_cases/$name; mend what it shows, and hand the file in too"
}

check_fuzz() {
  local seconds=$1 data=tests/data/oddities
  stage "set-up" scripts/setup.sh fuzz
  stage "build fuzz" build_preset fuzz fuzz
  stage "fuzz fasta" run_fuzzer fasta "$seconds" $data/fasta
  stage "fuzz table" run_fuzzer table "$seconds" $data/csv
  stage "fuzz config" run_fuzzer config "$seconds" $data/config configs
  stage "fuzz safetensors" run_fuzzer safetensors "$seconds" $data/safetensors
  stage "fuzz manifest" run_fuzzer manifest "$seconds"
  stage "fuzz pt" run_fuzzer pt "$seconds" tests/data/fair_esm
}

check_gpu() {
  local gpus report=build/cuda/gpu_tests.xml label skipped
  gpus=$(nvidia-smi --list-gpus 2>/dev/null | grep -c '^GPU' || true)
  ((gpus > 0)) || die "check gpu: a GPU expected, none found by nvidia-smi. Run it on a machine that has one."
  label='^gpu$'
  if ((gpus > 1)); then label='^gpu2?$'; else say "tests labelled gpu2 left out: they need two GPUs, found one"; fi
  stage "build cuda" build_preset cuda
  stage "tests gpu" ctest --test-dir build/cuda -L "$label" -LE slow --output-on-failure --no-tests=error \
    --output-junit "$repo/$report"
  skipped=$(sed -n 's/.*<testcase name="\([^"]*\)".*status="notrun".*/  \1/p' "$report")
  [[ -z $skipped ]] || die "check gpu: these tests were skipped on a machine with $gpus GPU(s);" \
    "see why with ctest --test-dir build/cuda -V -R NAME:"$'\n'"$skipped"
}

mode=${1:-default}
if (($# > 1)) && [[ ! "$*" =~ ^(cpu --cpu-only|fuzz [0-9]+)$ ]]; then mode=; fi
case $mode in
  default)
    check_format
    check_cpu
    ;;
  format) check_format ;;
  cpu) check_cpu "${2:-}" ;;
  asan) check_asan ;;
  fuzz) check_fuzz "${2:-60}" ;;
  gpu) check_gpu ;;
  all)
    check_format
    check_cpu
    check_asan
    if nvidia-smi --list-gpus >/dev/null 2>&1; then check_gpu; else say "check gpu skipped: no GPU on this machine"; fi
    ;;
  *) die "usage: scripts/check.sh [format|cpu [--cpu-only]|asan|fuzz [SECONDS]|gpu|all]; found: $*" ;;
esac
