"""One kernel's outcome with everything a report can hold."""

from __future__ import annotations

from verifier.findings import Finding, Hazard, Location, Obligation, Severity, Verdict, WitnessStep
from verifier.report.results import Tools
from verifier.rules import KernelOutcome, Role, RuleCount

LOAD = Location(ptx_line=2, sass_offset=0x100, file="gemm.py", line=7)
ARRIVE = Location(ptx_line=3, sass_offset=0x340, file="gemm.py", line=9)
TOOLS = Tools(version="0.1.0", ptxas="13.5.37", nvdisasm="13.5.37", dsl="4.8.1")


def finding(**changes: object) -> Finding:
    facts: dict[str, object] = {
        "rule": "TCG101",
        "name": "release-before-tmem-load-completes",
        "severity": Severity.ERROR,
        "hazard": Hazard.CONTRACT,
        "verdict": Verdict.VIOLATED,
        "kernel": "gemm",
        "role": "epilogue",
        "message": "the stage is released while a load of it may be in flight",
        "fingerprint": "f" * 64,
        "location": ARRIVE,
        "witness": (
            WitnessStep(role="epilogue", fact="the load starts", location=LOAD),
            WitnessStep(role="epilogue", fact="the stage is released; no wait::ld stands between", location=ARRIVE),
        ),
        "fix": "wait for the load before the arrive",
    }
    return Finding(**{**facts, **changes})  # type: ignore[arg-type]


def outcome(**changes: object) -> KernelOutcome:
    unknowns = tuple(
        Obligation(
            rule="MBR201",
            verdict=Verdict.UNKNOWN,
            role="mma",
            location=Location(ptx_line=line),
            reason="the address of the barrier is not resolved",
        )
        for line in (11, 12, 13, 14, 15)
    )
    violated = Obligation(rule="TCG101", verdict=Verdict.VIOLATED, role="epilogue", location=ARRIVE)
    proved = Obligation(rule="TCG101", verdict=Verdict.PROVED, role="epilogue", location=LOAD, reason="waited for")
    facts: dict[str, object] = {
        "name": "gemm",
        "arch": "sm_100a",
        "source": "gemm.ptx",
        "roles": (Role("epilogue", (0, 1, 2, 3)), Role("mma", (4,))),
        "obligations": (proved, violated, *unknowns),
        "findings": (finding(),),
        "ledger": (
            RuleCount(rule="TCG101", proved=1, violated=1),
            RuleCount(rule="MBR201", unknown=5),
            RuleCount(rule="SCP301"),
            RuleCount(rule="PRF601", skipped="needs SASS"),
        ),
        "metrics": {"registers": 40, "spill_ratio": 0.5},
        "toolchain": {"assembler": "ptxas 13.4.59"},
    }
    return KernelOutcome(**{**facts, **changes})  # type: ignore[arg-type]
