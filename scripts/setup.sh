#!/usr/bin/env bash
# Brings in all that a build needs: packages of the distribution, LibTorch, NVIDIA's libraries.
#
#   scripts/setup.sh [cpu|cuda|fuzz]    cpu (default): what the presets cpu and asan need; cuda: more libraries;
#                                       fuzz: clang 14 besides, for libFuzzer
#
# What is there is left alone, so a second run is quick and needs no network.
#   LIBTORCH=/path          a LibTorch 2.11 of your own (a folder with lib/ and include/); nothing is fetched then
#   ESMTRAIN_CACHE=/path    where LibTorch is kept (default: ~/.cache/esmtrain)
# pip is only the downloader of LibTorch, whose binary package is a Python wheel (a zip); nothing here runs Python code.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

preset=${1:-cpu}
if (($# > 1)) || [[ ! $preset =~ ^(cpu|cuda|fuzz)$ ]]; then
  die "usage: scripts/setup.sh [cpu|cuda|fuzz]; found: $*"
fi

packages=(g++ cmake ninja-build ccache mold git ca-certificates pkg-config
  libyaml-cpp-dev libhdf5-dev libspdlog-dev libfmt-dev catch2 zlib1g-dev libzstd-dev libminizip-dev
  nlohmann-json3-dev libxxhash-dev libgloo-dev)
if [[ $preset == fuzz ]]; then packages+=(clang-14 libclang-rt-14-dev); fi
downloader_packages=(python3-pip unzip)

libraries=${ESMTRAIN_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/esmtrain}/libtorch-2.11.0-cu130

# A library (or header), the wheel that brings it, and that wheel's SHA-256. The folders are those of the wheels:
# LibTorch's own RPATH looks into ../../nvidia/*/lib. The CUDA toolkit has the first two; the rest are not in it as
# NVIDIA ships it.
cpu_wheels=(
  "torch/lib/libtorch_cpu.so torch==2.11.0 manylinux_2_28_x86_64 7aa2f9bbc6d4595ba72138026b2074be1233186150e9292865e04b7a63b8c67a"
  "nvidia/cu13/lib/libcudart.so.13 nvidia-cuda-runtime==13.0.96 manylinux2014_x86_64 7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548"
  "nvidia/cu13/lib/libcupti.so.13 nvidia-cuda-cupti==13.0.85 manylinux_2_25_x86_64 4eb01c08e859bf924d222250d2e8f8b8ff6d3db4721288cf35d14252a4d933c8"
)
cuda_wheels=(
  "nvidia/cu13/lib/libcufile.so.0 nvidia-cufile==1.15.1.6 manylinux2014_x86_64 08a3ecefae5a01c7f5117351c64f17c7c62efa5fffdbe24fc7d298da19cd0b44"
  "nvidia/cusparselt/lib/libcusparseLt.so.0 nvidia-cusparselt-cu13==0.8.0 manylinux2014_x86_64 25e30a8a7323935d4ad0340b95a0b69926eee755767e8e0b1cf8dd85b197d3fd"
  "nvidia/nvshmem/lib/libnvshmem_host.so.3 nvidia-nvshmem-cu13==3.4.5 manylinux2014_x86_64 290f0a2ee94c9f3687a02502f3b9299a9f9fe826e6d0287ee18482e78d495b80"
  "nvidia/nccl/lib/libnccl.so.2 nvidia-nccl-cu13==2.28.9 manylinux_2_18_x86_64 e4553a30f34195f3fa1da02a6da3d6337d28f2003943aa0a3d247bbc25fefc42"
  "nvidia/cudnn/lib/libcudnn.so.9 nvidia-cudnn-cu13==9.19.0.56 manylinux_2_27_x86_64 d20e1734305e9d68889a96e3f35094d733ff1f83932ebe462753973e53a572bf"
  "cudnn-frontend/include/cudnn_frontend.h nvidia-cudnn-frontend==1.32.0 manylinux_2_28_x86_64 c6006556017a4d1c914c52a556c71b1267f2d6a0500f742e7b4edef539878df0"
)
if [[ $preset == cuda ]]; then wheels=("${cpu_wheels[@]}" "${cuda_wheels[@]}"); else wheels=("${cpu_wheels[@]}"); fi

# Tries a few times with growing pauses: registries and mirrors fail for a minute now and then.
retry() {
  local pause
  for pause in 5 20 60; do
    if "$@"; then return 0; fi
    say "that failed; once more in $pause s"
    sleep "$pause"
  done
  "$@"
}

# --- packages of the distribution ------------------------------------------------------------------------------------

apt_install() {
  # A package manager that was killed at work refuses every further job until this has run.
  "${as_root[@]}" dpkg --configure -a
  # An index that fails only matters if a package then is not found.
  "${as_root[@]}" apt-get update -q || true
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends \
    -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 "$@" </dev/null
}

install_packages() {
  local distribution package missing=() as_root=()
  # shellcheck source=/dev/null
  distribution=$(source /etc/os-release && echo "$ID ${VERSION_ID:-}")
  if [[ $distribution != "debian 12" && $distribution != "ubuntu 24.04" ]]; then
    say "this is '$distribution'; packages are installed by this script on Debian 12 and Ubuntu 24.04 only."
    say "Needed here (Debian's names, install your distribution's): $*"
    return 0
  fi
  for package in "$@"; do
    if [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) != installed ]]; then missing+=("$package"); fi
  done
  if ((${#missing[@]} == 0)); then return 0; fi
  if ((EUID != 0)); then
    command -v sudo >/dev/null || die "packages are missing and this user is neither root nor has sudo." \
      "Let root run: apt-get install -y ${missing[*]}"
    as_root=(sudo)
  fi
  say "installing ${#missing[@]} packages: ${missing[*]}"
  retry apt_install "${missing[@]}" || die "apt-get could not install: ${missing[*]}." \
    "Its messages above say why; set that right and run $me again."
}

# --- LibTorch and NVIDIA's libraries ---------------------------------------------------------------------------------

# Folders with libraries of an installed CUDA 13 toolkit, one a line; none if there is no such toolkit.
toolkit_folders() {
  local home nvcc folder
  nvcc=$(command -v nvcc || true)
  for home in "${CUDA_HOME:-}" "${nvcc%/bin/nvcc}" /usr/local/cuda; do
    for folder in "$home"/{lib64,lib,targets/x86_64-linux/lib}; do
      if [[ -n $home && -e $folder/libcudart.so.13 ]]; then
        echo "$folder"
        if [[ -d $home/extras/CUPTI/lib64 ]]; then echo "$home/extras/CUPTI/lib64"; fi
        return 0
      fi
    done
  done
}

# Links the toolkit's libraries to where LibTorch looks for them. All of them: they find each other in their own folder.
link_toolkit() {
  local folder library target
  while IFS= read -r folder; do
    for library in "$folder"/lib{cudart,cupti,cublas,cublasLt,cufft,curand,cusolver,cusparse,cufile,nvJitLink}.so.[0-9]* \
      "$folder"/lib{nvrtc,nvrtc-builtins,nccl,cusparseLt,nvshmem_host}.so.[0-9]* "$folder"/libcudnn*.so.[0-9]*; do
      target=$libraries/nvidia/cu13/lib/$(basename "$library")
      if [[ -e $library && ! -e $target ]]; then
        mkdir -p "$(dirname "$target")"
        ln -sfn "$library" "$target" # replaces a link to a toolkit that has gone
      fi
    done
  done < <(toolkit_folders)
}

# The rows of `wheels` whose library is neither unpacked nor linked.
missing_wheels() {
  local row library
  for row in "${wheels[@]}"; do
    library=${row%% *}
    if [[ ! -e $libraries/$library && ! -e $libraries/nvidia/cu13/lib/${library##*/} ]]; then echo "$row"; fi
  done
}

pip_download() {
  local package=$1 platform=$2 folder=$3 python
  for python in /usr/bin/python3 python3; do
    if "$python" -m pip --version >/dev/null 2>&1; then break; fi
  done
  # The same file on every host, whatever its own Python. No cache: pip would keep a second copy of half a gigabyte.
  local arguments=(--no-deps --no-cache-dir --disable-pip-version-check --only-binary=:all: --dest "$folder"
    --python-version 3.11 --implementation cp --abi cp311 --platform "$platform" "$package")
  if [[ ! -t 1 ]]; then arguments+=(--quiet); fi
  TMPDIR=$folder.part "$python" -m pip download "${arguments[@]}"
}

# Downloads the wheel into the empty folder; fails on a download that fails and on a file of another content.
get_wheel() {
  local package=$1 platform=$2 expected=$3 folder=$4 found
  rm -rf "$folder" "$folder.part"
  mkdir -p "$folder" "$folder.part"
  pip_download "$package" "$platform" "$folder" || return 1
  found=$(sha256sum "$folder"/*.whl | cut -d' ' -f1)
  if [[ $found != "$expected" ]]; then
    say "$package: expected SHA-256 $expected, found $found in $(basename "$folder"/*.whl)"
    return 1
  fi
}

die_by_hand() {
  local library package platform sum
  printf '[%s] What is missing, as wheels for Python 3.11 (pip download --no-deps gets them):\n' "$me" >&2
  while read -r library package platform sum; do
    printf '  %s for %s, SHA-256 %s\n' "$package" "$platform" "$sum" >&2
  done < <(missing_wheels)
  die "could not get $1; the messages above say why. Try later, or by hand: put the wheels listed above into a folder" \
    "and run PIP_NO_INDEX=1 PIP_FIND_LINKS=/that/folder scripts/setup.sh $preset," \
    "or give a LibTorch 2.11 of your own with LIBTORCH=/path."
}

# Unpacks beside the final place and renames, so a run that is killed leaves nothing that looks complete.
install_wheel() {
  local library=$1 package=$2 platform=$3 sum=$4 work=$5 file
  retry get_wheel "$package" "$platform" "$sum" "$work/wheel" || die_by_hand "$package"
  rm -rf "$work/unpacked"
  if [[ $library == torch/* ]]; then
    unzip -q "$work"/wheel/*.whl 'torch/lib/*' 'torch/include/*' '*.dist-info/*' -x 'torch/lib/libtorch_python.so' \
      -d "$work/unpacked"
    rm -rf "$libraries/torch"
    mv "$work/unpacked/torch" "$libraries/torch"
  elif [[ $library == cudnn-frontend/* ]]; then # headers only; the rest of that wheel is Python
    unzip -q "$work"/wheel/*.whl 'include/*' '*.dist-info/licenses/*' -d "$work/unpacked"
    rm -rf "$libraries/cudnn-frontend"
    mv "$work/unpacked" "$libraries/cudnn-frontend"
  else
    unzip -q "$work"/wheel/*.whl -d "$work/unpacked"
    # The library that missing_wheels looks for comes last.
    while IFS= read -r file; do
      mkdir -p "$libraries/${file%/*}"
      mv -f "$work/unpacked/$file" "$libraries/$file"
    done < <(cd "$work/unpacked" && find . -type f ! -path "./$library" -printf '%P\n' && echo "$library")
  fi
}

fetch_libraries() {
  local rows row free_mb work=$libraries/.work
  mkdir -p "$libraries"
  exec 9>"$libraries/.lock"
  if ! flock -n 9; then
    say "another set-up is at work in $libraries; waiting for it"
    flock 9
  fi
  mapfile -t rows < <(missing_wheels)
  if ((${#rows[@]} == 0)); then return 0; fi
  [[ $(uname -sm) == "Linux x86_64" ]] || die "LibTorch is fetched for Linux x86_64 only; this is $(uname -sm)." \
    "Give LIBTORCH=/path of a LibTorch 2.11 for this machine."
  free_mb=$(df --output=avail -BM "$libraries" | tail -n 1 | tr -dc 0-9)
  ((free_mb >= 3000)) || die "3000 MB free are needed in $libraries, found $free_mb MB." \
    "Make room, or name another place with ESMTRAIN_CACHE=/path."
  # shellcheck disable=SC2064 # the folder of now
  trap "rm -rf '$work'" EXIT
  for row in "${rows[@]}"; do
    rm -rf "$work" # also what a killed run left
    # shellcheck disable=SC2086 # four words
    set -- $row
    stage "$2" install_wheel "$@" "$work"
  done
}

check_own_libtorch() {
  local version
  [[ -e $LIBTORCH/lib/libtorch_cpu.so ]] || die "LIBTORCH=$LIBTORCH is no LibTorch: lib/libtorch_cpu.so expected there," \
    "not found. Name the folder that has lib/ and include/, or unset LIBTORCH and let $me fetch one."
  # The second place is that of versions before 2.10.
  version=$(cat "$LIBTORCH"/include/torch/{headeronly,csrc/api/include/torch}/version.h 2>/dev/null |
    sed -n 's/^#define TORCH_VERSION_\(MAJOR\|MINOR\) //p' | paste -sd.) || true
  [[ $version == 2.11 ]] || die "LIBTORCH=$LIBTORCH: version 2.11 expected, ${version:-no version.h} found." \
    "Name a LibTorch 2.11, or unset LIBTORCH and let $me fetch one."
}

# Whatever the way it came: LibTorch must find every library that it loads.
check_loads() {
  local torch=$1 half=libtorch_cpu.so unresolved
  if [[ $preset == cuda ]]; then half=libtorch_cuda.so; fi
  [[ -e $torch/lib/$half ]] || die "$torch/lib/$half expected for the preset $preset, not found." \
    "Name a LibTorch built for CUDA 13, or unset LIBTORCH and let $me fetch one."
  unresolved=$(LD_LIBRARY_PATH=$(toolkit_folders | paste -sd:):${LD_LIBRARY_PATH:-} ldd "$torch/lib/$half" 2>&1 |
    grep 'not found' | sort -u || true)
  [[ -z $unresolved ]] || die "$torch/lib/$half does not load here:"$'\n'"$unresolved"$'\n'"Expected in an installed" \
    "CUDA 13 toolkit (CUDA_HOME, /usr/local/cuda) or in $torch/../nvidia/*/lib. Install the toolkit's libraries."
}

main() {
  local found
  if [[ $preset == cuda ]]; then
    found=$(find_nvcc) || die "the preset cuda needs a CUDA 13 toolkit, which this script does not install: $found." \
      "Install it, and name its folder with CUDA_HOME if it is not /usr/local/cuda."
  fi
  if [[ -n ${LIBTORCH:-} ]]; then
    check_own_libtorch
    install_packages "${packages[@]}"
    check_loads "$LIBTORCH"
    say "ready for the preset $preset: LibTorch of LIBTORCH=$LIBTORCH"
  else
    link_toolkit
    if [[ -n $(missing_wheels) ]]; then
      install_packages "${packages[@]}" "${downloader_packages[@]}"
      fetch_libraries
    else
      install_packages "${packages[@]}"
    fi
    check_loads "$libraries/torch"
    say "ready for the preset $preset: LibTorch 2.11.0 in $libraries/torch"
  fi
}
main
