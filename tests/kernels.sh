#!/usr/bin/env bash
# The CUDA kernels without a GPU: every one through NVRTC for sm_80, sm_90 and sm_100, then their arithmetic on the CPU
# against vectors/ and the crates' own. Where a GPU is there, the same test bodies run on it. Builds .venv-kernels
# (200 MB); skipped where the wheels cannot be had for this Python.
set -euo pipefail
cd "$(dirname "$0")/.."

python=$(tests/venv.sh .venv-kernels tests/python/requirements-kernels.txt "numpy")
[ -n "$python" ] || { echo "skipped: no numpy and nvidia-cuda-nvrtc wheels"; exit 0; }
command -v "${CXX:-c++}" >/dev/null || { echo "c++ is missing: ask for g++, the kernels' CPU form is C++"; exit 1; }

export PYTHONPATH=python
"$python" -m confide.cuda.compile --arch sm_80,sm_90,sm_100 --check
"$python" -m unittest discover -s python/confide/cuda -t python
