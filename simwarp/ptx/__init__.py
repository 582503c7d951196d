"""The PTX language: its text, and the meaning of each instruction. Nothing here runs a kernel.

================  ==============================================================================
the text          `parse` and `grammar`; `syntax` (their result); `mangled_names`
the instructions  `rows` (the form of a row), `kinds` (of their steps), `instructions` (all rows), `forms`
registers         `special_registers` (names and types)
memory            `spaces` (windows of generic addresses), `same_address` (lanes that share an address)
================  ==============================================================================

`simwarp.fragments`, `simwarp.products` and `simwarp.floats` define matrices and floats, `simwarp.chips` the
chips. `simwarp.program` links a kernel, `simwarp.engine` runs it.
"""
