#!/usr/bin/env bash
# Kills a small training run again and again with SIGKILL, most often inside a save, and resumes it each time with
# --resume auto. What comes out must be what an undisturbed run comes to: metrics, weights and moments, bit for bit.
#
#   scripts/drills/kill.sh [KILLS [SEED]]      default 200 kills, seed 1
#
# ESMTRAIN: the program (default build/cpu/esmtrain). After each kill the rows of metrics and the newest checkpoint are
# compared; a run that has ended is compared as a whole and the next one begun, until there were KILLS kills. Half of
# them at least must fall inside a save: the hidden option --test-slow-writes slows the disk down.
# The exit code is 0 when everything was equal.
set -euo pipefail
usage="usage: scripts/drills/kill.sh [KILLS [SEED]]; found: $*"
kills_wanted=${1:-200}
seed=${2:-1}
# shellcheck source-path=SCRIPTDIR source=undisturbed.sh
source "$(dirname "${BASH_SOURCE[0]}")/undisturbed.sh"
if (($# > 2)) || ! [[ $kills_wanted =~ ^[1-9][0-9]*$ && $seed =~ ^[0-9]+$ ]]; then die "$usage"; fi
RANDOM=$seed

pause_ms=4 # before each write
run=$work/run
kills=0 in_save=0 resumes=0 runs=0

end_of_run() {
  runs=$((runs + 1))
  compare_run "$run" "run $runs"
  rm -rf "$run"
}

count_resume() { [[ ! -e $run/metrics.jsonl ]] || resumes=$((resumes + 1)); }

saved() { grep -c '^saved ' "$work/log" || true; }
alive() { kill -0 "$child" 2>/dev/null; }

# Starts or resumes the run and kills it at a random moment. It may end before.
one_life() {
  local code=0 inside saves
  count_resume
  : >"$work/log"
  train "$run" "$work/log" --resume auto --test-slow-writes $pause_ms &
  child=$!
  inside="$run/checkpoints/step-*.tmp-*-$child-*"
  if ((in_save * 5 < (kills + 1) * 3)); then # inside a save, some time after its folder is there: the first or a later one
    saves=$((RANDOM % 4))
    while alive && { (($(saved) < saves)) || [[ -z $(compgen -G "$inside") ]]; }; do nap 5; done
    nap $((RANDOM % 200))
  else # while it starts, or some time after the first step
    if ((RANDOM % 4 > 0)); then while alive && ! grep -q '^step ' "$work/log"; do nap 5; done; fi
    nap $((RANDOM % 1500))
  fi
  kill -KILL "$child" 2>/dev/null || true
  wait "$child" 2>/dev/null || code=$?
  case $code in
    137)
      kills=$((kills + 1))
      [[ -z $(compgen -G "$inside") ]] || in_save=$((in_save + 1))
      rows_are_equal "$run" || differs "a row of metrics after kill $kills"
      newest_checkpoint_is_equal "$run" || differs "the newest checkpoint after kill $kills"
      ((kills % 20 != 0)) || say "$kills kills, $in_save of them inside a save, $runs runs at their end, $SECONDS s"
      ;;
    0) end_of_run ;;
    *) die "the run ended with exit code $code after $kills kills:"$'\n'"$(cat "$work/log")" ;;
  esac
  child=
}

while ((kills < kills_wanted)); do one_life; done
count_resume
(train "$run" "$work/log" --resume auto) || die "the last resume failed:"$'\n'"$(cat "$work/log")"
end_of_run

if ((unequal == 0)); then equal=yes; else equal="no ($unequal differences)"; fi
printf '%-30s %s\n' kills "$kills" "  inside a save" "$in_save" resumes "$resumes" "runs at their end" "$runs" \
  "equal to the undisturbed run" "$equal" seconds "$SECONDS"
((in_save * 2 >= kills)) || die "fewer than half of the kills fell inside a save"
((unequal == 0)) || die "something differs from the undisturbed run (see above)"
