# shellcheck shell=bash
# Sourced by the scripts beside it: messages, timed stages, build jobs, the CUDA compiler.

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
me=$(basename "$0")

# A relative path means the caller's folder, not the repository, where the builds run.
for variable in LIBTORCH ESMTRAIN_CACHE; do
  if [[ -n ${!variable:-} ]]; then export "$variable=$(realpath -m "${!variable}")"; fi
done

say() { printf '[%s] %s\n' "$me" "$*"; }

die() {
  printf '[%s] error: %s\n' "$me" "$*" >&2
  exit 1
}

# stage TITLE COMMAND [ARGUMENT...]: a line before, and one after with the seconds it took.
stage() {
  local title=$1 start=$SECONDS
  shift
  say "$title ..."
  "$@"
  say "$title: done in $((SECONDS - start)) s (total $SECONDS s)"
}

# Compilations at a time: one takes up to 1.5 GB (ATen headers), so memory may allow fewer than there are cores.
build_jobs() {
  local cores by_memory
  cores=$(nproc)
  by_memory=$(awk '/^MemAvailable:/ {print int($2 / 1500000)}' /proc/meminfo)
  if ((by_memory < 1)); then by_memory=1; fi
  echo $((by_memory < cores ? by_memory : cores))
}

# Prints the path of a CUDA 13 nvcc. Without one it prints why there is none, and fails.
find_nvcc() {
  local nvcc release others=
  for nvcc in "${CUDACXX:-}" "${CUDA_HOME:-}/bin/nvcc" "$(command -v nvcc || true)" /usr/local/cuda/bin/nvcc; do
    [[ -x $nvcc ]] || continue
    release=$("$nvcc" --version | sed -n 's/.*release \([0-9.]*\).*/\1/p')
    if [[ $release == 13.* ]]; then
      echo "$nvcc"
      return 0
    fi
    others="; $nvcc is of CUDA ${release:-unknown}, LibTorch here needs 13"
  done
  echo "no nvcc$others"
  return 1
}

# build_preset PRESET [TARGET]: configures and builds (everything, or one target).
# LIBTORCH goes along always, so that the environment decides and not an older configuration.
build_preset() {
  local preset=$1
  (
    cd "$repo" || exit
    if [[ $preset == cuda ]]; then
      CUDACXX=$(find_nvcc) || die "preset cuda: $CUDACXX"
      export CUDACXX
    fi
    cmake --preset "$preset" "-DLIBTORCH=${LIBTORCH:-}"
    cmake --build --preset "$preset" --parallel "$(build_jobs)" --target "${2:-all}"
  )
}
