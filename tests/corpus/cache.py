"""Where downloaded packages and their environments live."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs


def cache_folder() -> Path:
    """The folder of VERIFIER_CORPUS_DIR, else a folder in the user's cache."""
    given = os.environ.get("VERIFIER_CORPUS_DIR")
    return Path(given) if given else Path(platformdirs.user_cache_dir("ptx-sass-verifier")) / "corpus"
