"""The JSON Schema of the report: generated from `json_v1`, stored beside it.

`python -m verifier.report.schema` writes it; a test says when it is stale.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from verifier.report import json_v1

STORED = Path(__file__).with_name("schema_v1.json")


def generate() -> str:
    """The schema as stored: JSON, indented, with a trailing newline."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **msgspec.json.schema(json_v1.Report)}
    return msgspec.json.format(msgspec.json.encode(schema), indent=2).decode() + "\n"


if __name__ == "__main__":
    STORED.write_text(generate(), encoding="utf-8")
