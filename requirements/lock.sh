#!/usr/bin/env bash
# Pin every package of every install: exact versions and the hashes of their files, no paths, no hosts. Needs uv.
# Versions that are pinned already stay while they fit; --upgrade takes the newest.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/.venv/bin:$PATH"
wheels=${UV_FIND_LINKS:-${PIP_FIND_LINKS:-}}
unset UV_FIND_LINKS
pin=(uv pip compile "$@" -q --generate-hashes --python-version 3.11 --no-annotate --no-emit-index-url --no-emit-find-links
    --custom-compile-command "make lock")
compile=("${pin[@]}" pyproject.toml --no-emit-package selfplay-flows)

# torch's CPU build comes from a folder of wheels where one is named, else from PyTorch's own index
if [ -n "$wheels" ]; then torch=(--find-links "$wheels"); else torch=(--torch-backend=cpu); fi
"${compile[@]}" "${torch[@]}" --extra full --extra cpu --override requirements/cpu-overrides.txt -o requirements/cpu.txt >/dev/null
# Its files differ by Python and machine, and only PyTorch's index knows the hashes of all; a folder has one of them.
sed -i -z 's/\(\ntorch==[^ ]*+cpu\) \\\n    --hash=[^\n]*\(\n    --hash=[^\n]*\)*/\1/' requirements/cpu.txt
gpu=(--extra gpu -c requirements/gpu-constraints.in --python-platform x86_64-manylinux_2_28)
"${compile[@]}" --extra full "${gpu[@]}" -o requirements/gpu.txt >/dev/null
# the same versions as on a machine without a GPU, for any Python that the project runs on
"${compile[@]}" --extra dev --universal -c requirements/cpu.txt -o requirements/dev.txt >/dev/null
"${pin[@]}" --universal requirements/companions.in -o requirements/companions.txt >/dev/null
"${pin[@]}" --universal requirements/loaders.in -o requirements/loaders.txt >/dev/null
"${pin[@]/#3.11/3.12}" --python-platform x86_64-manylinux_2_28 requirements/gym.in -o requirements/gym.txt >/dev/null
# only what .venv lacks, in versions that fit it; lm-eval's tables need an older chardet
has=$(sed -nE 's/^([a-z0-9._-]+==[^ ]+).*/\1/p' requirements/cpu.txt | grep -v '^chardet==')
mapfile -t left_out < <(sed 's/==.*//; s/^/--no-emit-package=/' <<<"$has")
"${pin[@]}" -c <(echo "$has") "${left_out[@]}" requirements/harness.in -o requirements/harness.txt >/dev/null
if grep -nE '(file:|https?:|@ |^/)' requirements/{cpu,gpu,dev,harness,companions,loaders,gym}.txt; then
    echo "a lock names a path or a host" >&2
    exit 1
fi
