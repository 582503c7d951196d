"""What PTX is: its text, and what each instruction means. Nothing here runs.

================  ==============================================================================
the text          `parse` and `grammar`; `syntax` is what they make; `mangled_names`
the instructions  `rows` (what a row is), `instructions` (all of them), `forms` (their spellings)
registers         `special_registers` (names and types)
memory            `spaces` (windows of generic addresses), `same_address` (lanes that take turns)
================  ==============================================================================

`simwarp.fragments`, `simwarp.products` and `simwarp.floats` say what matrices and floats are,
`simwarp.chips` what differs between chips. `simwarp.program` links a kernel, `simwarp.engine` runs it.
"""
