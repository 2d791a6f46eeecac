"""The part of SARIF 2.1.0 that the report uses (OASIS, "Static Analysis Results Interchange Format", section 3)."""

from __future__ import annotations

from typing import Literal

import msgspec

VERSION: Literal["2.1.0"] = "2.1.0"
SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


class _Object(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Names as SARIF writes them; what is not said is left out."""


class Message(_Object, frozen=True, kw_only=True):
    text: str
    markdown: str = ""


class ArtifactLocation(_Object, frozen=True, kw_only=True):
    uri: str
    uri_base_id: str = ""


class Region(_Object, frozen=True, kw_only=True):
    start_line: int
    snippet: Message | None = None


class PhysicalLocation(_Object, frozen=True, kw_only=True):
    artifact_location: ArtifactLocation
    region: Region | None = None


class LogicalLocation(_Object, frozen=True, kw_only=True):
    name: str
    fully_qualified_name: str = ""
    kind: str = ""


class Location(_Object, frozen=True, kw_only=True):
    physical_location: PhysicalLocation | None = None
    logical_locations: tuple[LogicalLocation, ...] = ()
    message: Message | None = None


class ThreadFlowLocation(_Object, frozen=True, kw_only=True):
    location: Location
    execution_order: int = -1


class ThreadFlow(_Object, frozen=True, kw_only=True):
    locations: tuple[ThreadFlowLocation, ...]


class CodeFlow(_Object, frozen=True, kw_only=True):
    thread_flows: tuple[ThreadFlow, ...]
    message: Message | None = None


class Suppression(_Object, frozen=True, kw_only=True):
    kind: str
    status: str = ""
    justification: str = ""


class Result(_Object, frozen=True, kw_only=True):
    rule_id: str
    rule_index: int = -1
    kind: str = ""
    level: str
    message: Message
    locations: tuple[Location, ...]
    related_locations: tuple[Location, ...] = ()
    code_flows: tuple[CodeFlow, ...] = ()
    partial_fingerprints: dict[str, str]
    baseline_state: str = ""
    suppressions: tuple[Suppression, ...] = ()
    properties: dict[str, object] = {}


class Configuration(_Object, frozen=True, kw_only=True):
    level: str


class ReportingDescriptor(_Object, frozen=True, kw_only=True):
    id: str
    name: str
    short_description: Message
    full_description: Message
    help: Message
    default_configuration: Configuration
    properties: dict[str, object] = {}


class ToolComponent(_Object, frozen=True, kw_only=True):
    name: str
    semantic_version: str = ""
    rules: tuple[ReportingDescriptor, ...] = ()
    properties: dict[str, object] = {}


class Tool(_Object, frozen=True, kw_only=True):
    driver: ToolComponent


class Notification(_Object, frozen=True, kw_only=True):
    level: str
    message: Message
    descriptor: dict[str, str] = {}


class Invocation(_Object, frozen=True, kw_only=True):
    execution_successful: bool
    tool_execution_notifications: tuple[Notification, ...] = ()


class Automation(_Object, frozen=True, kw_only=True):
    id: str


class Run(_Object, frozen=True, kw_only=True):
    tool: Tool
    invocations: tuple[Invocation, ...] = ()
    automation_details: Automation | None = None
    column_kind: str = ""
    results: tuple[Result, ...]


class Log(msgspec.Struct, frozen=True, kw_only=True):
    schema: str = msgspec.field(name="$schema", default=SCHEMA)
    version: Literal["2.1.0"] = VERSION
    runs: tuple[Run, ...]
