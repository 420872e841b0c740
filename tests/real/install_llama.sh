#!/bin/sh
# llama.cpp's own server into build/real/llama, an environment of its own: compiled into the wheel of xllamacpp (34 MB, MIT), and a
# tiny random model for it.
# Usage: tests/real/install_llama.sh [FOLDER]
set -eu
here=$(dirname "$0")
folder=${1:-build/real/llama}
[ -e "$folder/.ready" ] && exit 0
python3 -m venv "$folder"
"$folder/bin/python" -m pip install --quiet --disable-pip-version-check --only-binary xllamacpp 'xllamacpp==2026.10.11549' gguf numpy
"$folder/bin/python" "$here/make_tiny_gguf.py" "$folder/tiny.gguf"
touch "$folder/.ready"
