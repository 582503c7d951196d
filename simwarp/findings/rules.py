"""The rules of findings: for each kind, the check that finds it, and its help text."""

from __future__ import annotations

from typing import NamedTuple

from simwarp.findings.finding import Finding

DOCUMENTATION = "see the page Checks of the documentation of simwarp"


class Rule(NamedTuple):
    """The faults that a check reports, in a line, and the advice."""

    summary: str
    help: str


RULES = {
    "bounds": Rule(
        "An access outside its array or window, or a write to read-only memory", "check the index"
    ),
    "alignment": Rule("An address that is not a multiple of the access's width", "align the address"),
    "freed": Rule(
        "A use of freed memory, or of shared memory of a block that may not be there", "free later"
    ),
    "registers": Rule("A use of an uninitialised register", "set the variable on every path"),
    "uninitialised": Rule("A use of uninitialised memory", "write the memory before it is read"),
    "division": Rule("An integer division by zero whose result is used", "check the divisor"),
    "barriers": Rule(
        "A divergent, skipped or mismatched barrier", "let all threads that it names reach the barrier"
    ),
    "members": Rule("A .sync operation whose mask does not fit its lanes", "name the lanes that execute it"),
    "sources": Rule("A shuffle that reads a lane which does not take part", "let the source lane take part"),
    "races": Rule("Two unordered accesses of the same bytes, one of them a write", "order them by a barrier"),
    "copies": Rule("Memory touched while an asynchronous copy of it is in flight", "wait for the copy first"),
    "textures": Rule("A handle that is not one of a texture or surface of this kind", "create the texture"),
    "proxies": Rule(
        "Memory written by ordinary instructions and read by a copy or product without a proxy fence",
        "put fence.proxy.async between the two",
    ),
    "dependents": Rule(
        "A dependent launch that touches what the launch before it does, before its wait", "wait first"
    ),
    "products": Rule(
        "Registers used while a warpgroup's product of them is in flight", "wait for the product"
    ),
    "deadlock": Rule("All remaining lanes wait for one another", "let every waiting lane be released"),
    "runaway": Rule("An infinite loop", "let the loop end"),
    "unreachable": Rule(
        "Control that runs off the end of a function", "look for undefined behaviour, a missing return"
    ),
    "exits": Rule("Lanes that returned before a barrier that names them", "return behind the barrier"),
    "trap": Rule("The kernel executed trap", "see the line of the trap"),
    "assertion-failed": Rule("A failed assert of the kernel", "see the asserted condition"),
    "schedules": Rule("A result that depends on the order of threads", "order the accesses"),
    "unwritten": Rule("Elements of an output array that the kernel did not write", "write all of them"),
    "expected": Rule(
        "An output array that differs from the expected one", "see the first element that differs"
    ),
    "calls": Rule("A call of CUDA that returned an error", "check the call's result and its arguments"),
    "compiler": Rule("A warning of the compiler", "see the line"),
}
"""Identifier of a rule → the rule; see `Finding.rule`."""


def rule_of(found: Finding) -> Rule:
    """The rule of a finding; for a kind without an entry, a rule made from the finding's words."""
    return RULES.get(found.rule) or Rule(f"A finding of the kind {found.kind}", found.advice or DOCUMENTATION)
