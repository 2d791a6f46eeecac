"""Small cubins of the PyPI package `flashinfer-cubin`: machine code that comes without PTX.

The wheel (460 MB, 16,000 cubins) is downloaded once, into the cache folder; the smallest few of each family, all
different, are taken out of it. Runs in any Python: nothing is compiled.
"""

from __future__ import annotations

import argparse
import collections
import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path, PurePosixPath

from tests.corpus.cache import cache_folder

DISTRIBUTION = "flashinfer-cubin==0.6.13"
COUNT = 50


def wheel(cache: Path) -> Path:
    """The package's wheel; it is downloaded the first time."""
    folder = cache / "packages" / DISTRIBUTION.replace("==", "-")
    if not (found := sorted(folder.glob("*.whl"))):
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), DISTRIBUTION]
        subprocess.run(command, check=True)
        found = sorted(folder.glob("*.whl"))
    return found[0]


def smallest(archive: zipfile.ZipFile, count: int) -> list[zipfile.ZipInfo]:
    """The smallest cubins, an equal share of each family; a family is a folder of the package."""
    families: dict[str, list[zipfile.ZipInfo]] = collections.defaultdict(list)
    for info in sorted(archive.infolist(), key=lambda info: (info.file_size, info.filename)):
        if info.filename.endswith(".cubin"):
            families[PurePosixPath(info.filename).parent.name].append(info)
    chosen: list[zipfile.ZipInfo] = []
    for left, infos in zip(range(len(families), 0, -1), sorted(families.values(), key=len), strict=True):
        chosen += _different(archive, infos, (count - len(chosen)) // left)
    return chosen


def _different(archive: zipfile.ZipFile, infos: list[zipfile.ZipInfo], count: int) -> list[zipfile.ZipInfo]:
    seen: dict[bytes, zipfile.ZipInfo] = {}
    for info in infos:
        if len(seen) == count:
            break
        seen.setdefault(hashlib.sha256(archive.read(info)).digest(), info)
    return list(seen.values())


def main() -> int:
    """Write the cubins into `OUT/FAMILY/`."""
    parser = argparse.ArgumentParser(description="Take small cubins out of flashinfer-cubin.")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--count", type=int, default=COUNT)
    options = parser.parse_args()
    with zipfile.ZipFile(wheel(cache_folder())) as archive:
        for info in smallest(archive, options.count):
            inside = PurePosixPath(info.filename)
            target = options.out / inside.parent.name / inside.name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(archive.read(info))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
