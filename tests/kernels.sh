#!/usr/bin/env bash
# The CUDA kernels without a GPU: every one through NVRTC for sm_80, sm_90 and sm_100, then their arithmetic on the CPU
# against vectors/ and the crates' own. Where a GPU is there, the same test bodies run on it. Builds .venv-kernels
# (200 MB); skipped where the wheels cannot be had for this Python.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=.venv-kernels
requirements=tests/python/requirements-kernels.txt
if ! cmp -s "$requirements" "$venv/ready"; then
  rm -rf "$venv"
  for candidate in python3 python3.12 python3.13 python3.11; do
    command -v "$candidate" >/dev/null && "$candidate" -m venv "$venv" 2>/dev/null || continue
    if "$venv/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: \
      -r "$requirements" 2>/dev/null && "$venv/bin/python" -c 'import numpy' 2>/dev/null
    then
      cp "$requirements" "$venv/ready"
      break
    fi
    rm -rf "$venv"
  done
fi
if [ ! -e "$venv/ready" ]; then
  echo "skipped: no numpy and nvidia-cuda-nvrtc wheels"
  exit 0
fi
command -v "${CXX:-c++}" >/dev/null || { echo "c++ is missing: ask for g++, the kernels' CPU form is C++"; exit 1; }

export PYTHONPATH=python
"$venv/bin/python" -m confide.cuda.compile --arch sm_80,sm_90,sm_100 --check
"$venv/bin/python" -m unittest discover -s python/confide/cuda -t python
