# shellcheck shell=bash
# Sourced by the drills: a small run that nobody disturbs, and the comparison of others with it, bit for bit.

# shellcheck source-path=SCRIPTDIR source=../common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
cd "$repo" || exit

esmtrain=$(realpath -m "${ESMTRAIN:-build/cpu/esmtrain}")
[[ -x $esmtrain ]] || die "no program at $esmtrain; build it with: cmake --build --preset cpu --target esmtrain"
steps=60 # of a run
every=4  # steps between two checkpoints
last=checkpoints/step-$(printf '%09d' $steps)
work=$(mktemp -d)
child= # process of the disturbed run
unequal=0

clean_up() {
  [[ -z $child ]] || kill -KILL "$child" 2>/dev/null || true
  rm -rf "$work"
}
trap clean_up EXIT

cat >"$work/config.yaml" <<YAML
seed: 11
precision: fp32
model: {layers: 1, hidden: 32, heads: 2}
data:
  train: tests/data/protein/tiny_train.fasta
  valid: tests/data/protein/tiny_valid.fasta
  cache_dir: $work/cache
  max_tokens: 128
  tokens_per_batch: 512
train: {max_steps: $steps, threads: 1}
optimizer: {lr: 1e-3}
schedule: {warmup_steps: 4}
eval: {every_steps: 12}
checkpoint: {every_steps: $every, keep_last: 2}
YAML

# train FOLDER LOG [MORE...]; takes the place of the shell that calls it.
train() {
  local folder=$1 log=$2
  shift 2
  exec "$esmtrain" train "$work/config.yaml" --set "run.dir=$folder" --run.log_every_steps 1 "$@" >"$log" 2>&1
}

# Rows of a metrics file without the wall clock. A last row that a kill cut is left to the resume.
rows() {
  grep '}$' "$1" 2>/dev/null | sed -E 's/"(seconds|tokens_per_s)":[^,}]*,?//g; s/,}/}/g' || true
}

# Sleeps for $1 milliseconds.
nap() { sleep "$(printf '%d.%03d' $(($1 / 1000)) $(($1 % 1000)))"; }

differs() {
  unequal=$((unequal + 1))
  say "NOT EQUAL: $*"
}

# Whether every row so far of run $1 is one of the undisturbed run's.
rows_are_equal() { [[ -z $(rows "$1/metrics.jsonl" | grep -vxFf "$work/straight.rows" || true) ]]; }

# Whether the newest checkpoint of run $1 has the tensors of the undisturbed run at that step.
newest_checkpoint_is_equal() {
  local newest file
  newest=$(find "$1/checkpoints" -maxdepth 1 -regex '.*/step-[0-9]+' 2>/dev/null | sort | tail -1)
  [[ -n $newest ]] || return 0
  for file in "$work/straight/checkpoints/$(basename "$newest")"/*.safetensors; do
    cmp -s "$file" "$newest/$(basename "$file")" || return 1
  done
}

# Compares run $1, which has come to its end, called $2.
compare_run() {
  local file
  cmp -s <(rows "$1/metrics.jsonl") "$work/straight.rows" || differs "metrics of $2"
  for file in "$work/straight/$last"/*.safetensors; do
    cmp -s "$file" "$1/$last/$(basename "$file")" || differs "$(basename "$file") of $2"
  done
  rm -rf "$work/hf"
  "$esmtrain" convert "$1/$last" "$work/hf" --to hf >"$work/log" 2>&1 || differs "export of $2"
  cmp -s "$work/hf/model.safetensors" "$work/straight.hf/model.safetensors" || differs "exported tensors of $2"
}

say "the run that nobody disturbs: $steps steps, a checkpoint every $every"
(train "$work/straight" "$work/log" --set checkpoint.keep_every_steps=$every) ||
  die "it failed:"$'\n'"$(cat "$work/log")"
rows "$work/straight/metrics.jsonl" >"$work/straight.rows"
"$esmtrain" convert "$work/straight/$last" "$work/straight.hf" --to hf >"$work/log" 2>&1 ||
  die "its export failed:"$'\n'"$(cat "$work/log")"
