#!/usr/bin/env bash
# Builds the wheel of the Python package into dist/, with the program PROGRAM in it, and tries what was built in an
# environment of its own. Skipped where maturin cannot be had.
#   tests/wheel.sh PROGRAM
set -euo pipefail
cd "$(dirname "$0")/.."
program=$1

python=$(tests/venv.sh .venv-wheel tests/python/requirements-wheel.txt maturin)
[ -n "$python" ] || { echo "skipped: no maturin"; exit 0; }

# The program travels as a file of the package, stripped; a checkout has none.
trap 'rm -rf python/confide/bin "${trial:-}"' EXIT
mkdir -p python/confide/bin
strip -o python/confide/bin/confide "$program"
rm -f dist/confide-*.whl
PATH="$(dirname "$python"):$PATH" maturin build --release --locked --out dist

trial=$(mktemp -d)
"$python" -m venv "$trial"
"$trial/bin/pip" install --quiet --disable-pip-version-check dist/confide-*.whl
"$trial/bin/confide" -V
"$trial/bin/python" -P -c 'import confide; print(confide.http_client.__name__, confide.verify.__name__)'
if "$trial/bin/pip" show --files confide | grep '/tests/'; then echo "tests are in the wheel"; exit 1; fi
