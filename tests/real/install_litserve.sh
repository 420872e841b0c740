#!/bin/sh
# LitServe into build/real/litserve: a small OpenAI-compatible streaming server that is not ours.
# Usage: tests/real/install_litserve.sh [FOLDER]
set -eu
folder=${1:-build/real/litserve}
[ -e "$folder/.ready" ] && exit 0
python3 -m venv "$folder"
"$folder/bin/python" -m pip install --quiet --disable-pip-version-check 'litserve==0.2.19'
touch "$folder/.ready"
