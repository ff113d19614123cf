#!/usr/bin/env bash
# From nothing to a trained protein model: sets up, builds, trains configs/quickstart.yaml on the CPU, evaluates,
# exports. Safe to run again: what is installed, built or trained already is kept.
#
#   scripts/quickstart.sh
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
(($# == 0)) || die "usage: scripts/quickstart.sh (it takes no arguments); found: $*"

cd "$repo"
run=runs/quickstart
esmtrain=build/cpu/esmtrain

stage "1/5 set-up" scripts/setup.sh cpu
stage "2/5 build" build_preset cpu esmtrain
stage "3/5 training" "$esmtrain" train configs/quickstart.yaml --set "run.dir=$run" --resume auto
stage "4/5 evaluation" "$esmtrain" eval "$run" --data tests/data/protein/tiny_valid.fasta
stage "5/5 export" "$esmtrain" convert "$run" "$run/hf" --to hf --force

cat <<END

Done in $SECONDS s. In $repo:
  $esmtrain          the program; '$esmtrain --help' lists what it does
  $run/metrics.jsonl    losses, one line a step
  $run/config.yaml      every setting of this run
  $run/checkpoints/     to go on from: the same train command with --resume auto
  $run/hf/              the model as a Hugging Face folder (EsmForMaskedLM)
Your own proteins: copy configs/quickstart.yaml, set data.train and data.valid to your FASTA files, and train it.
END
