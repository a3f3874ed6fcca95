#!/usr/bin/env bash
# The torch worker, the blind protocol's Python ends and bench/gpu/run.py's rehearsal, on the CPU; where torch sees a
# GPU, the same test bodies run on it. Skipped where no Python has torch and transformers. To have them (5.6 GB on disk,
# a minute or two to fetch): tests/worker.sh --install
set -euo pipefail
cd "$(dirname "$0")/.."

venv=.venv-worker
requirements=tests/python/requirements-worker.txt
if [ "${1:-}" = --install ]; then
  python=$(PIP_LOG=/dev/stderr tests/venv.sh "$venv" "$requirements" torch python3)
  [ -n "$python" ] || { echo "the wheels of $requirements cannot be had"; exit 1; }
  echo "$venv is ready"
  exit 0
fi

for candidate in "${CONFIDE_TORCH_PYTHON:-}" "$venv/bin/python" python3; do
  [ -n "$candidate" ] && command -v "$candidate" >/dev/null || continue
  if "$candidate" -c 'import aiohttp, safetensors, torch, transformers' 2>/dev/null; then python=$candidate; break; fi
done
if [ -z "${python:-}" ]; then
  echo "skipped: no torch with transformers, safetensors and aiohttp (tests/worker.sh --install fetches them, 5.6 GB)"
  exit 0
fi

# One thread: the shapes are tiny, and a test machine has other work.
export PYTHONPATH=python OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1
# The kernels' own tests are those of tests/kernels.sh, but for those that are of torch; on a GPU, which that one's
# Python does not reach, all of them run here.
without=confide.cuda
if "$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; then without=nothing; fi
modules=$(cd python && find confide -name 'test_*.py' | sort | sed 's/\.py$//; s#/#.#g' |
  awk -v without="$without" 'index($0, without ".") != 1 || /_torch$/')
# The rehearsal next to the others: both wait for processes of their own most of the time.
log=$(mktemp)
trap 'rm -f "$log"' EXIT
"$python" -m unittest discover -s bench/gpu/tests -t bench/gpu >"$log" 2>&1 &
rehearsal=$!
# shellcheck disable=SC2086
"$python" -m unittest $modules || failed=1
wait "$rehearsal" || failed=1
cat "$log"
exit "${failed:-0}"
