"""Compile the registered kernels of one source tree into the artifact store: `python -m verifier.cli.tree`.

Reads a job from standard input and writes the folders of the artifacts to standard output, both as JSON. A process of
its own, because the tree has a registry of the same name as the one of this verifier.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from verifier.cli import output, registry
from verifier.errors import VerifierError


def main() -> int:
    """0 when every kernel compiled, 2 when one did not."""
    job: dict[str, Any] = json.load(sys.stdin)
    sys.path.insert(0, job["root"])
    try:
        known = registry.load_registry()
        wanted = registry.requests(registry.choose(known, job["kernels"], None), job["archs"], None)
        results = list(registry.compile_all(wanted, jobs=job["jobs"], timeout=job["timeout"]))
    except VerifierError as error:
        output.show_error(error)
        return error.exit_code
    failures = [result for result in results if isinstance(result, VerifierError)]
    for failure in failures:
        output.show_error(failure)
    bundles = [result for result in results if not isinstance(result, VerifierError)]
    sys.stdout.write(json.dumps([str(b.compiled.path) for b in bundles if b.compiled]))
    return failures[0].exit_code if failures else 0


if __name__ == "__main__":
    sys.exit(main())
