#!/usr/bin/env bash
# Trains tests/bench/reference_4x128.yaml and compares the validation losses with those of Hugging Face's implementation
# (steps 250 and 500: 2.708 and 2.694 nats); exit code 1 when one is further away than 0.015.
#
#   tests/bench/reference_curve.sh [ESMTRAIN] [SETTING...]     about 10 minutes on two cores
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
exe=${1:-build/cpu/esmtrain}
shift || true
run=$(mktemp -d)
trap 'rm -rf "$run"' EXIT
echo "\$ $exe train tests/bench/reference_4x128.yaml $*"
"$exe" train tests/bench/reference_4x128.yaml --run.dir "$run/run" "$@" 2>&1 | grep -vE '^  '
awk -F'[:,}]' '
  BEGIN { want[250] = 2.708; want[500] = 2.694 }
  /"valid"/ {
    for (i = 1; i < NF; i++) if ($i ~ /"loss"/) loss = $(i + 1)
    step = $2 + 0
    if (step in want) {
      d = loss - want[step]; n++
      printf "step %d: validation loss %.4f, reference %.3f, difference %+.4f\n", step, loss, want[step], d
      if (d > 0.015 || d < -0.015) bad = 1
    }
  }
  END { if (n < 2 || bad) { print "NOT within 0.015 nats"; exit 1 } print "within 0.015 nats" }
' "$run/run/metrics.jsonl"
