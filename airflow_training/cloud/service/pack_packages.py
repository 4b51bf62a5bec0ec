"""What an instance runs that has installed packages for others: it packs them into its output, and says their digest.

Python 3.8 and newer, standard library only: its text goes into the image.
"""

import hashlib
import json
import os
import sys
import tarfile
from pathlib import Path


def main() -> None:
    """Pack the folder beside the code."""
    packages = Path(os.environ["TRAINING_CODE_DIR"] + "-packages")
    archive = Path(os.environ["TRAINING_OUTPUT_DIR"], "packages.tar")
    with tarfile.open(str(archive), "w") as tar:
        for each in sorted(packages.iterdir()):
            tar.add(str(each), each.name)  # with their times: what was compiled holds
    digest = hashlib.sha256()
    with archive.open("rb") as file:
        while data := file.read(1 << 20):
            digest.update(data)
    said = {"digest": f"sha256:{digest.hexdigest()}", "bytes": archive.stat().st_size}
    sys.stdout.write(f"{json.dumps(said)}\n")


if __name__ == "__main__":
    main()
