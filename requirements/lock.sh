#!/usr/bin/env bash
# Pin every package for both engines: exact versions, no paths, no hosts. Needs uv.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/.venv/bin:$PATH"
wheels=${UV_FIND_LINKS:-${PIP_FIND_LINKS:-}}
unset UV_FIND_LINKS
compile=(uv pip compile -q pyproject.toml --extra dev --python-version 3.11 --no-annotate --no-emit-index-url
    --no-emit-find-links --custom-compile-command "make lock")

# torch's CPU build comes from a folder of wheels where one is named, else from PyTorch's own index
if [ -n "$wheels" ]; then torch=(--find-links "$wheels"); else torch=(--torch-backend=cpu); fi
"${compile[@]}" "${torch[@]}" --extra cpu --override requirements/cpu-overrides.txt -o requirements/cpu.txt >/dev/null
"${compile[@]}" --extra gpu --python-platform x86_64-manylinux_2_28 -o requirements/gpu.txt >/dev/null
if grep -nE '(file:|https?:|@ |^/)' requirements/cpu.txt requirements/gpu.txt; then
    echo "a lock names a path or a host" >&2
    exit 1
fi
