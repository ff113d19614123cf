#!/usr/bin/env bash
# Fills the disk under a small training run again and again, each time while a checkpoint is being written, and makes
# room again. Training must go on, say in one line what happened, keep the checkpoints that it had, save again at the
# next interval, write the rows of metrics that had to wait, and end as an undisturbed run does, bit for bit.
#
#   scripts/drills/disk_full.sh [TIMES [SEED]]      default 30 times, seed 1
#
# ESMTRAIN: the program (default build/cpu/esmtrain). The disk is a small one in memory, mounted for this script alone
# (unshare -rm: no rights needed where users may make namespaces). The exit code is 0 when everything was as above.
set -euo pipefail
usage="usage: scripts/drills/disk_full.sh [TIMES [SEED]]; found: $*"
times_wanted=${1:-30}
seed=${2:-1}
if [[ ${ESMTRAIN_OWN_MOUNTS:-} != yes ]]; then ESMTRAIN_OWN_MOUNTS=yes exec unshare -rm "$0" "$@"; fi
# shellcheck source-path=SCRIPTDIR source=undisturbed.sh
source "$(dirname "${BASH_SOURCE[0]}")/undisturbed.sh"
if (($# > 2)) || ! [[ $times_wanted =~ ^[1-9][0-9]*$ && $seed =~ ^[0-9]+$ ]]; then die "$usage"; fi
RANDOM=$seed

disk=$work/disk
run=$disk/run
full=0 runs=0
trap 'umount "$disk" 2>/dev/null || true; clean_up' EXIT

lines_with() { grep -c "$1" "$work/log" 2>/dev/null || true; }

# Waits for one more line with $1 than $2 in the log; fails when the run ends before.
wait_for_more() {
  while (($(lines_with "$1") <= $2)); do
    kill -0 "$child" 2>/dev/null || return 1
    nap 5
  done
}

make_room() { rm -f "$disk/filler"; }

# Fills the disk at a random moment of the next save, unless that is the last: without it a run has to fail.
fill_once() {
  local failed saved before
  failed=$(lines_with 'training goes on without')
  saved=$(lines_with '^saved ')
  while [[ -z $(compgen -G "$run/checkpoints/step-*.tmp-*") ]]; do
    kill -0 "$child" 2>/dev/null || return 0
    nap 5
  done
  if [[ -n $(compgen -G "$run/$last.tmp-*") ]]; then
    wait_for_more '^saved ' "$saved" || true
    return 0
  fi
  before=$(compgen -G "$run/checkpoints/step-?????????" || true)
  nap $((RANDOM % 150))
  dd if=/dev/zero of="$disk/filler" bs=1k status=none 2>/dev/null || true
  nap 30
  make_room
  while (($(lines_with 'training goes on without') == failed && $(lines_with '^saved ') == saved)); do
    kill -0 "$child" 2>/dev/null || break
    nap 5
  done
  if (($(lines_with 'training goes on without') > failed)); then
    full=$((full + 1))
    [[ $(compgen -G "$run/checkpoints/step-?????????" || true) == "$before" ]] || (($(lines_with '^saved ') > saved)) ||
      differs "the checkpoints kept, time $full"
    newest_checkpoint_is_equal "$run" || differs "the newest checkpoint, time $full"
  fi
  wait_for_more '^saved ' "$saved" || true
}

# Until the run has come to its end. One that could not save its last steps is resumed, as its user would do.
run_to_end() {
  local code=6
  while ((code == 6)); do
    train "$run" "$work/log" --resume auto --test-slow-writes 3 &
    child=$!
    while ((full < times_wanted)) && kill -0 "$child" 2>/dev/null; do fill_once; done
    make_room
    code=0
    wait "$child" || code=$?
    child=
    ((code == 0)) || grep -q 'the last steps are not saved' "$work/log" ||
      die "the run ended with exit code $code:"$'\n'"$(cat "$work/log")"
  done
}

while ((full < times_wanted)); do
  mkdir -p "$disk"
  mount -t tmpfs -o size=2m esmtrain-drill "$disk"
  run_to_end
  [[ $(lines_with 'the disk (or the quota) is full\|are needed') -ge $(lines_with 'training goes on without') ]] ||
    differs "a message that does not say what happened"
  runs=$((runs + 1))
  compare_run "$run" "run $runs"
  umount "$disk"
done

if ((unequal == 0)); then equal=yes; else equal="no ($unequal differences)"; fi
printf '%-30s %s\n' "disk full within a save" "$full" "runs at their end" "$runs" \
  "equal to the undisturbed run" "$equal" seconds "$SECONDS"
((unequal == 0)) || die "something differs from the undisturbed run (see above)"
