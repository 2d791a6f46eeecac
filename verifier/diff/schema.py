"""The JSON Schema of a comparison: `python -m verifier.diff.schema` writes schema_v1.json beside this file."""

from __future__ import annotations

from pathlib import Path

import msgspec

from verifier.diff.json_v1 import Refusal, Report

PATH = Path(__file__).with_name("schema_v1.json")


def schema() -> str:
    """The schema as text, for draft 2020-12."""
    either, components = msgspec.json.schema_components((Report, Refusal), ref_template="#/$defs/{name}")
    dialect = "https://json-schema.org/draft/2020-12/schema"
    document = {"$schema": dialect, "anyOf": list(either), "$defs": components}
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


if __name__ == "__main__":
    PATH.write_text(schema())
