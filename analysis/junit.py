"""``junit.xml``: one test case for each SLO line and each validity rule, so that a CI server shows them like tests."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from analysis.result import Result
from analysis.text import plain


def render(result: Result) -> bytes:
    """The document. A missed SLO is a failure; an unmet rule, or an SLO line that the run cannot support, is an error."""
    run = result.run
    slos = ET.Element("testsuite", name=plain(f"{run.scenario.name}: SLO lines"))
    for slo in result.slos:
        case = _case(slos, "slo", slo.text)
        text = f"{slo.text}: measured {slo.measured}, n = {slo.n}, failed = {slo.failed}; {slo.sure}"
        if slo.met is None or (slo.met and not slo.supported):
            _add(case, "error", text)
        elif not slo.met:
            _add(case, "failure", text)
    rules = ET.Element("testsuite", name=plain(f"{run.scenario.name}: may the run be believed"))
    for rule in result.rules:
        case = _case(rules, "validity", rule.name)
        if rule.met is False:
            _add(case, "error", rule.text)
        elif rule.met is None:
            ET.SubElement(case, "skipped", message=plain(rule.text))
    root = ET.Element("testsuites", name=plain(run.manifest.run_id))
    for suite in (slos, rules):
        suite.set("tests", str(len(suite)))
        for kind in ("failure", "error", "skipped"):
            suite.set(
                {"failure": "failures", "error": "errors", "skipped": "skipped"}[kind], str(len(suite.findall(f"*/{kind}")))
            )
        root.append(suite)
    ET.indent(root)
    return b"<?xml version='1.0' encoding='utf-8'?>\n" + ET.tostring(root, encoding="utf-8") + b"\n"


def _case(suite: ET.Element, kind: str, name: str) -> ET.Element:
    return ET.SubElement(suite, "testcase", classname=f"truetail.{kind}", name=plain(name))


def _add(case: ET.Element, kind: str, text: str) -> None:
    ET.SubElement(case, kind, message=plain(text), type="truetail").text = plain(text, 2000)
