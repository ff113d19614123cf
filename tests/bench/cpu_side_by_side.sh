#!/bin/bash
# esmtrain and Hugging Face's EsmForMaskedLM side by side on CPU cores: the same proteins, threads and FP32, in turn.
#
#   tests/bench/cpu_side_by_side.sh ESMTRAIN PYTHON [THREADS]
#
# ESMTRAIN: the program (build/cpu/esmtrain). PYTHON: one that imports torch and transformers. THREADS: 2 unless given.
# Prints a table: real tokens/s (<cls> and <eos> counted, padding not), tokens per second of processor time and peak
# memory of each way, how many times as fast esmtrain is, and what share of the machine's FP32 product it reaches.
# About five minutes on two cores. Wants a machine that does nothing else.
set -euo pipefail
usage="usage: cpu_side_by_side.sh ESMTRAIN PYTHON [THREADS]"
esmtrain=$(realpath "${1:?$usage}")
python=${2:?$usage}
threads=${3:-2}
cd "$(dirname "$0")/../.."
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Every 28th training protein, cut as both sides would cut it: 1,024 sequences.
zcat tests/data/protein/train_*.fasta.gz | awk '
  function flush() { if (seq != "" && n % 28 == 0) printf ">p%d\n%s\n", n, substr(seq, 1, 1022); seq = "" }
  /^>/ { flush(); n++; next }
  { seq = seq $0 }
  END { flush() }' > "$scratch/pool.fasta"

# Lines of: name|tokens/s|tokens a second of processor time|MiB|remark

ours() {  # what (step, forward), config, steps
  "$esmtrain" bench "$1" --config "$2" --precision fp32 --device cpu --train.threads "$threads" --real-data \
    --data.train "$scratch/pool.fasta" --data.cache_dir "$scratch/cache" --data.tokens_per_batch 9216 \
    --warmup 2 --steps "$3" > "$scratch/ours.txt" 2> "$scratch/ours.err" || { cat "$scratch/ours.err" >&2; return 1; }
  awk '
    function number(text) { gsub(",", "", text); return text + 0 }
    /^tokens a /      { tokens = number($4) }
    /^tokens\/s/      { rate = number($2) }
    /^processor time/ { processor = $3 }
    /^peak memory/    { memory = $4 == "GiB" ? $3 * 1024 : $3 }
    /^share of/       { share = $5; product = $8 }
    END { printf "esmtrain, packed|%.0f|%.0f|%.0f|%s %% of %s GFLOP/s\n", rate, 1000 * tokens / processor, memory,
                 share, product }' "$scratch/ours.txt"
}

theirs() {  # name, what (train, embed), layers, hidden, heads, then options
  "$python" tests/bench/hugging_face_cpu.py --fasta "$scratch/pool.fasta" --threads "$threads" --what "$2" \
    --layers "$3" --hidden "$4" --heads "$5" "${@:6}" > "$scratch/theirs.json" 2> "$scratch/theirs.err" ||
    { cat "$scratch/theirs.err" >&2; return 1; }
  "$python" -c 'import json, sys
r = json.load(open(sys.argv[2]))
print("%s|%.0f|%.0f|%.0f|%.0f %% of the slots are real" % (
    sys.argv[1], r["tokens_per_s"], r["tokens_per_processor_s"], r["peak_bytes"] / 2**20, 100 * r["real_share"]))
' "$1" "$scratch/theirs.json"
}

compare() {  # title, what (step, forward), config, steps, what (train, embed), layers, hidden, heads, batches of 32
  {
    ours "$2" "$3" "$4"
    theirs "Hugging Face, 32 by length" "${@:5:4}" --sorted --batches "$9"
    theirs "Hugging Face, 32 unsorted" "${@:5:4}" --batches "$(($9 / 2))"
    theirs "Hugging Face, 8 unsorted" "${@:5:4}" --batch 8 --batches "$((2 * $9))"
  } > "$scratch/rows.txt"
  echo
  awk -F'|' -v title="$1" '
    NR == 1 { rate = $2; processor = $3
              printf "%-28s %9s %14s %7s %9s %13s\n", title, "tokens/s", "a processor s", "MiB", "esmtrain", "by processor" }
    { printf "%-28s %9d %14d %7d %9s %13s  %s\n", $1, $2, $3, $4, NR == 1 ? "" : sprintf("%.1f x", rate / $2),
             NR == 1 ? "" : sprintf("%.1f x", processor / $3), $5 }' "$scratch/rows.txt"
}

load() { cut -d' ' -f1 /proc/loadavg; }

echo "$(date -u +%F), $(grep -m1 "model name" /proc/cpuinfo | sed 's/.*: //'), $threads threads, load before $(load)"
"$esmtrain" --version | head -1
"$python" -c 'import torch, transformers; print("torch", torch.__version__, "transformers", transformers.__version__)'
small=tests/bench/reference_4x128.yaml
large=tests/bench/reference_8m.yaml
compare "4 x 128, training step" step $small 20 train 4 128 4 8
compare "4 x 128, embeddings" forward $small 40 embed 4 128 4 8
compare "8M, training step" step $large 5 train 6 320 20 4
compare "8M, embeddings" forward $large 12 embed 6 320 20 4
echo
"$esmtrain" bench data --config $small 2> "$scratch/ours.err"
echo "load after $(load), $SECONDS s"
