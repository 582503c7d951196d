"""Tables of a report, from plain data."""

import json

from simwarp.draw.report import table, to_text

REPORT = json.loads("""{
"fidelity": {"text": "12 thread-instructions, all exact: hardware gives the same bits"},
"divergence": {"lines": {"a.cu:3": {"warp_instructions": 1200, "active_lanes": 31.5}},
               "total": {"warp_instructions": 1200, "active_lanes": 31.5}},
"banks": {"lines": {}, "total": {"conflicts": 0}, "opcodes": {}},
"sectors": {"lines": {"a.cu:3": {"sectors": 4}}, "total": {"sectors": 4},
            "opcodes": {"ld.f32": {"sectors": 4}}},
"traffic": {"spaces": {"global": {"loaded": 4096, "stored": 0}},
            "units": {"lanes": {"global": {"loaded": 96, "stored": 0}},
                      "bulk copies": {"global": {"loaded": 4000, "stored": 0}}},
            "requested": 4096, "compulsory_read": 128, "compulsory_written": 0, "operations": {"f32": 12345}},
"coverage": {"rows": {"add": {"section": "9.7.1.1", "fidelity": "exact", "count": 7,
             "forms": {"add.s32": 3, "add.u32": 4}, "operands": {"a": ["one", "zero"], "b": []}}},
             "not_met": ["sub"]}
}""")


def test_a_report_has_every_section():
    expected = """
Fidelity

12 thread-instructions, all exact: hardware gives the same bits


Divergence: active lanes of warps

line    warp instructions  active lanes
a.cu:3              1,200         31.50
total               1,200         31.50


Bank conflicts: wavefronts of accesses to shared memory

none


Sectors: 32-byte pieces of global memory

line    sectors
a.cu:3        4
total         4

opcode  sectors
ld.f32        4


Traffic

space   loaded  stored
global   4,096       0

by           space   loaded  stored
lanes        global      96       0
bulk copies  global   4,000       0

global memory        bytes
requested            4,096
compulsory, read       128
compulsory, written      0

type  operations
f32       12,345


Coverage: instructions, and the classes of their operand values

row  thread-instructions  forms            operands
add                    7  add.s32 add.u32  a: one, zero

1 rows of 2
"""
    assert to_text(REPORT) == expected.strip()


def test_a_report_without_observations_advises_observe():
    assert to_text({}) == 'nothing was observed: simwarp.Device(observe="all") counts everything'


def test_a_missing_number_is_drawn_as_a_dash():
    assert table(["a", "b"], [["x", None], ["y", 1.5]]) == "a     b\nx     -\ny  1.50"
    assert table(["a", "b"], []) == "a  b"
