"""The report as JUnit XML: a suite for each kernel build, a test case for each rule.

A violation that fails the run is a failure, what could not be checked is an error. An unknown is never a pass: it is
skipped, and under `--strict` a failure; so is a rule whose input was not at hand.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence

from verifier.config import Bar
from verifier.findings import Finding, Severity, Verdict
from verifier.report.concise import where
from verifier.report.results import Results
from verifier.report.text import place
from verifier.rules import KernelOutcome, Rule, RuleCount

_RANK = {Severity.NOTE: 0, Severity.WARNING: 1, Severity.ERROR: 2}
# XML 1.0 ("Characters") forbids these even escaped.
_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render(results: Results, rules: Sequence[Rule], bar: Bar) -> str:
    """The report as one XML document and a newline."""
    names = {rule.code: rule.name for rule in rules}
    suites = ET.Element("testsuites", name="ptx-sass-verifier")
    for kernel in results.kernels:
        _suite(suites, kernel, names, bar)
    if results.failures:
        suite = ET.SubElement(suites, "testsuite", name="inputs")
        for failure in results.failures:
            case = ET.SubElement(suite, "testcase", classname="inputs", name=_clean(failure.where or failure.kind))
            error = ET.SubElement(case, "error", type=failure.kind, message=_clean(failure.what))
            error.text = _clean(failure.do)
    _count(suites)
    ET.indent(suites)
    return ET.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"


def _suite(parent: ET.Element, kernel: KernelOutcome, names: dict[str, str], bar: Bar) -> None:
    builder = kernel.toolchain.get("assembler", "")
    title = f"{kernel.name} {kernel.arch}{f' {builder}' if builder else ''}"
    suite = ET.SubElement(parent, "testsuite", name=_clean(title), file=_clean(kernel.source))
    for count in kernel.ledger:
        name = f"{count.rule} {names.get(count.rule, '')}".strip()
        case = ET.SubElement(suite, "testcase", classname=_clean(f"{kernel.name}.{kernel.arch}"), name=name)
        _judge(case, count, [f for f in kernel.findings if f.rule == count.rule], kernel, bar)
    if kernel.unknown_opcodes:
        case = ET.SubElement(suite, "testcase", classname=_clean(f"{kernel.name}.{kernel.arch}"), name="instructions")
        listed = ", ".join(f"{opcode} x{number}" for opcode, number in sorted(kernel.unknown_opcodes.items()))
        ET.SubElement(case, "failure" if bar.strict else "skipped", message=_clean(f"unknown to the tables: {listed}"))


def _judge(case: ET.Element, count: RuleCount, findings: Sequence[Finding], kernel: KernelOutcome, bar: Bar) -> None:
    failing = [finding for finding in findings if _fails(finding, bar)]
    for finding in failing:
        tag = ET.SubElement(case, "failure", type=finding.severity.value, message=_clean(finding.message))
        tag.text = _clean(_story(finding, kernel))
    unknown = [finding for finding in findings if finding.verdict is Verdict.UNKNOWN]
    if count.skipped:
        ET.SubElement(case, "failure" if bar.strict and count.missed else "skipped", message=_clean(count.skipped))
    elif unknown and not failing:
        ET.SubElement(case, "skipped", message=_clean(f"{len(unknown)} unknown: {unknown[0].message}"))
    told = [finding for finding in findings if finding not in failing and finding.verdict is Verdict.VIOLATED]
    lines = [f"{count.proved} proved, {count.violated} violated, {count.unknown} unknown"]
    lines += [_story(finding, kernel) for finding in told]
    lines += [f"waived: {s.finding.message}: {s.reason}" for s in kernel.suppressed if s.finding.rule == count.rule]
    ET.SubElement(case, "system-out").text = _clean("\n".join(lines))


def _fails(finding: Finding, bar: Bar) -> bool:
    if finding.verdict is Verdict.UNKNOWN:
        return bar.strict
    return _RANK[finding.severity] >= _RANK[bar.fail_on]


def _story(finding: Finding, kernel: KernelOutcome) -> str:
    lines = [f"{':'.join(where(finding, kernel))}: {finding.message}"]
    for number, step in enumerate(finding.witness, 1):
        lines.append(f"{number}. {step.role}: {step.fact} [{place(step.location)}]")
    if finding.fix:
        lines.append(f"help: {finding.fix}")
    return "\n".join(lines)


def _count(suites: ET.Element) -> None:
    for suite in suites:
        cases = list(suite)
        numbers = {"tests": len(cases)}
        for attribute, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            numbers[attribute] = sum(case.find(tag) is not None for case in cases)
        suite.attrib.update({key: str(value) for key, value in numbers.items()})
    for attribute in ("tests", "failures", "errors"):
        suites.set(attribute, str(sum(int(suite.get(attribute, "0")) for suite in suites)))


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text)
