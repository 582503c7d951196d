"""PTX: from text to what the lanes of a grid do.

================  ==============================================================================
the text          `parse` and `grammar`; `syntax` is what they make
the instructions  `rows` (what a row is), `instructions` (all of them), `forms`, `evidence`
linking           `link`, `bind`, `operands`, `call_graph`, `liveness`; `program` is what they make
running           `execute` (a launch), `workers`, `chunk` (the state), `schedule` (who goes when),
                  `branches`, `meetings`, `barriers`, `calls`, `host` (printf, malloc)
memory            `spaces` (addresses), `accesses` (loads, stores, atomics), `special` (registers)
================  ==============================================================================
"""
