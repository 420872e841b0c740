#!/bin/sh
# Triton (CPU) into build/real/triton, an environment of its own: the server comes inside of the nvidia-pytriton package.
# Usage: tests/real/install_triton.sh [FOLDER]
set -eu
folder=${1:-build/real/triton}
[ -e "$folder/.ready" ] && exit 0
python3 -m venv "$folder"
# numpy 2 makes Triton's Python stub return garbage tensors, without an error.
"$folder/bin/python" -m pip install --quiet --disable-pip-version-check 'nvidia-pytriton==0.7.0' 'numpy<2'
site=$("$folder/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
minor=$("$folder/bin/python" -c 'import sys; print(f"3.{sys.version_info.minor}")')
parts="$site/pytriton/tritonserver"
mkdir -p "$folder/backends/python"
cp -r "$parts/backends/python/." "$folder/backends/python/"
cp "$parts/python_backend_stubs/$minor/triton_python_backend_stub" "$folder/backends/python/"
# The second tool: perf_analyzer comes in the last client package that runs on glibc 2.36 (Debian: apt-get install libb64-0d).
"$folder/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps 'tritonclient==2.49.0'
mkdir -p "$folder/perf_lib"
ln -sf "$(find "$(realpath "$site")/nvidia_pytriton.libs" -name 'libcudart-*.so.12*')" "$folder/perf_lib/libcudart.so.12"
touch "$folder/.ready"
