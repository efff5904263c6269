#!/usr/bin/env bash
# `install.sh KIND...`: install the locked packages of the first KIND (cpu, gpu or dev) and this project into .venv, unless
# one of the others is installed: then that one is brought up to date.
# Nothing is resolved (--no-deps): the lock is complete. A warm cache or a folder of wheels (PIP_FIND_LINKS) works offline.
set -euo pipefail
cd "$(dirname "$0")/.."
python=.venv/bin/python
stamp=.venv/installed
have=$(cut -d ' ' -f 1 "$stamp" 2>/dev/null || true)
kind=$1
for other in "$@"; do if [ "$other" = "$have" ]; then kind=$other; fi; done
lock=requirements/$kind.txt
state="$kind $(cat "$lock" pyproject.toml "$0" | sha256sum) $PWD"
export UV_FIND_LINKS=${UV_FIND_LINKS:-${PIP_FIND_LINKS:-}}

if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$state" ]; then exit 0; fi
if [ -n "$have" ] && [ "$have" != "$kind" ]; then
    echo "replacing the $have install in .venv"
    rm -rf .venv
fi
[ -x "$python" ] || "${PYTHON:-python3}" -m venv .venv
if ! "$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))'; then
    echo "selfplay needs Python 3.11, 3.12 or 3.13: remove .venv and name one, as in \`make install PYTHON=python3.11\`" >&2
    exit 1
fi
rm -f "$stamp"

uv=(uv)
if ! uv --version >/dev/null 2>&1; then
    "$python" -m pip install -q uv
    uv=("$python" -m uv)
fi
install=("${uv[@]}" pip install --python "$python" --no-deps)
# Every file is compared with the lock's hash. Only torch's CPU build has none there (see lock.sh).
if [ "$kind" = cpu ]; then check=--verify-hashes; else check=--require-hashes; fi
echo "installing $lock into .venv"
if ! "${install[@]}" --offline "$check" -r "$lock" 2>/dev/null; then
    # torch's CPU build is on PyTorch's own index, unless a folder has it
    if [ "$kind" = cpu ] && [ -z "$UV_FIND_LINKS" ]; then install+=(--torch-backend=cpu); fi
    "${install[@]}" "$check" -r "$lock"
fi
"${install[@]}" --offline --no-build-isolation -e .
if [ "$kind" != dev ]; then
    echo "compiling bytecode: vLLM starts in a third of the time with it"
    env -u PYTHONDONTWRITEBYTECODE "$python" -m compileall -q -j 0 "$("$python" -c 'import site; print(site.getsitepackages()[0])')" >/dev/null || true
    "$python" -m flows.app.service.prepare
fi
echo "$state" >"$stamp"
