"""Linking: each kernel on request, once per text; deep, wide and cyclic call graphs."""

import numpy as np
import pytest

import simwarp
from simwarp.faults import Livelock, UnsupportedInstruction
from simwarp.program.barrier_regions import meeting
from simwarp.program.call_graph import CallGraph
from simwarp.program.copies import Copies
from simwarp.program.exits import ways_out
from simwarp.program.frames import local_variables
from simwarp.program.link import link
from simwarp.program.liveness import live_registers
from simwarp.program.provenance import known_origins, lending_steps
from simwarp.ptx.kinds import BARRIER, BRANCH
from simwarp.ptx.parse import parse
from support import small_kernels as small

STORE, text, run, fault_of = small.STORE, small.text, small.run, small.fault_of
HEAD = ".version 9.0 .target sm_90 .address_size 64\n"
UNSUPPORTED = ".visible .entry other() {\nsured.p.2d.add.u32; ret; }\n"


# ---- one kernel at a time --------------------------------------------------------------------------------


def test_a_kernel_loads_beside_an_unsupported_one():
    device = simwarp.Device()
    module = device.load(text("mov.u32 %r2, 7;" + STORE, before=UNSUPPORTED))
    assert module.kernels == ["other", "k"]
    out = device.upload(np.zeros(4, np.uint32))
    module.kernel("k")((1, 1, 1), (4, 1, 1), out, out)
    assert out.download().tolist() == [7] * 4
    with pytest.raises(UnsupportedInstruction, match=r"line 5.*sured\.p"):
        module.kernel("other")


def test_an_unsupported_only_kernel_is_refused_at_load():
    with pytest.raises(UnsupportedInstruction, match=r"sured\.p"):
        simwarp.Device().load(HEAD + UNSUPPORTED)


def test_a_ptx_text_is_parsed_and_linked_once(monkeypatch):
    made = []
    for name in ("parse", "CallGraph", "link"):
        original = getattr(simwarp.device.module, name)
        monkeypatch.setattr(
            f"simwarp.device.module.{name}", lambda *args, f=original, n=name: made.append(n) or f(*args)
        )
    ptx = text("mov.u32 %r2, 7234;" + STORE, before=".global .u32 v = 5;" + UNSUPPORTED)
    for _ in range(3):
        module = simwarp.Device().load(str(ptx))
        assert module.kernel("k").program is module.kernel("k").program
        assert module.variable("v").download().tolist() == [5, 0, 0, 0]
    assert made == ["parse", "CallGraph", "link"]


# ---- call graphs -----------------------------------------------------------------------------------------


def chain(n):
    """A chain of ``n`` functions, each of which calls its predecessor."""
    yield ".func (.reg .b32 r) f0(.reg .b32 a) { add.u32 r, a, 1; ret; }"
    for i in range(1, n):
        yield (
            f".func (.reg .b32 r) f{i}(.reg .b32 a) "
            f"{{ .reg .b32 t; call (t), f{i - 1}, (a); add.u32 r, t, 1; ret; }}"
        )


@pytest.mark.slow
def test_a_call_chain_of_1500_functions_is_linked():
    body = "call (%r2), f1499, (%i);" + STORE
    assert run(body, before="\n".join(chain(1500)), block=2) == [1500, 1501]


def test_a_call_graph_with_exponentially_many_paths_is_linked():
    """On each of 60 levels two functions call both functions of the level below."""
    frame = ".local .b8 frame[16];"
    levels = [f".func a0() {{ {frame} ret; }} .func b0() {{ {frame} ret; }}"]
    for i in range(1, 60):
        calls = f"{{ {frame} call a{i - 1}; call b{i - 1}; ret; }}"
        levels.append(f".func a{i}() {calls} .func b{i}() {calls}")
    module = parse(text("call a59; ret;", before="\n".join(levels)))
    program = link(module, module.entries["k"])
    assert program.local_size == 60 * 16
    assert not program.recursive


CYCLE = """.func a(); .func b(); .func c();
.func leaf() { .local .b8 frame[64]; ret; }
.func a() { .local .b8 frame[16]; call b; ret; }
.func b() { .local .b8 frame[32]; call c; call leaf; ret; }
.func c() { .local .b8 frame[48]; call a; call leaf; ret; }
.func self() { .local .b8 frame[16]; call self; call a; ret; }
"""


def test_recursive_functions_and_cycles_are_found():
    module = parse(text("call self; ret;", before=CYCLE))
    graph = CallGraph(module)
    assert graph.recursive == {"a", "b", "c", "self"}
    assert [set(cycle) for cycle in graph.cycles] == [{"leaf"}, {"a", "b", "c"}, {"self"}, {"k"}]
    program = link(module, module.entries["k"], graph)
    assert program.local_size == 16 + (16 + 32 + 48) + 64
    assert {r.name for r in program.routines.values() if r.recursive} == graph.recursive


def test_callees_precede_their_callers():
    """The order in random call graphs is compared with reachability."""
    rng = np.random.default_rng(3)
    for _ in range(40):
        n = int(rng.integers(2, 9))
        edges = rng.random((n, n)) < rng.uniform(0.05, 0.5)
        calls = ["".join(f"call f{j};" for j in np.flatnonzero(row)) for row in edges]
        declared = "".join(f".func f{i}();" for i in range(n))
        defined = "".join(f".func f{i}() {{ {calls[i]} ret; }}" for i in range(n))
        graph = CallGraph(parse(text("call f0; ret;", before=declared + defined)))
        reached = {name: graph.reached(name) for name in graph.callees}
        assert graph.recursive == {name for name in reached if name in reached[name]}
        done = set()
        for cycle in graph.cycles:
            for name in cycle:
                together = {other for other in reached[name] if name in reached[other]} | {name}
                assert set(cycle) == together
                assert reached[name] <= done | set(cycle)
            done |= set(cycle)
        assert done == set(graph.callees)


# ---- loops that poll through calls -----------------------------------------------------------------------

LOAD = ".func (.reg .b32 r) look(.reg .b64 a) { ld.volatile.global.u32 r, [a]; ret; }\n"
DEEPER = LOAD + ".func (.reg .b32 r) f(.reg .b64 a) { call (r), look, (a); ret; }\n"
POLL = """setp.eq.u32 %p1, %lane, 0; @%p1 bra SET;
AGAIN: {call} setp.eq.u32 %p2, %r2, 0; @%p2 bra AGAIN; bra DONE;
SET: mov.u32 %r3, 5; st.volatile.global.u32 [%in], %r3; mov.u32 %r2, 1;
DONE: """
POINTER = "mov.u64 %rd5, look;"
PROTOTYPE = "P: .callprototype (.reg .b32 _) _ (.reg .b64 _);"


@pytest.mark.parametrize(
    ("functions", "call", "before"),
    [
        (LOAD, "call (%r2), look, (%in);", ""),
        (DEEPER, "call (%r2), f, (%in);", ""),
        (LOAD, "call (%r2), %rd5, (%in), P;", POINTER + PROTOTYPE),
    ],
    ids=["a call", "a call of a call", "an indirect call"],
)
def test_a_loop_polling_through_a_call_lets_other_lanes_run(functions, call, before):
    """Lanes 1 to 31 poll a word that lane 0 writes further below in the text."""
    device = simwarp.Device(instruction_budget=5000)
    body = before + POLL.format(call=call) + STORE
    assert run(body, before=functions, device=device) == [1] + [5] * 31


def test_a_loop_polling_an_unwritten_flag_through_a_call_is_a_livelock():
    body = POLL.format(call="call (%r2), look, (%in);").replace("[%in], %r3", "[%in+4], %r3")
    fault_of(
        Livelock, body + STORE, before=LOAD, given=(0, 0), device=simwarp.Device(instruction_budget=50_000)
    )


def test_a_loop_with_a_non_polling_call_is_not_a_polling_loop():
    functions = ".func (.reg .b32 r) f(.reg .b64 a) { ld.global.u32 r, [a]; ret; }" + LOAD
    body = (
        "AGAIN: call (%r2), f, (%in); setp.eq.u32 %p1, %r2, 0; @%p1 bra AGAIN; call (%r2), look, (%in); ret;"
    )
    module = parse(text(body, before=functions))
    (branch,) = (s for s in link(module, module.entries["k"]).steps if s.kind is BRANCH)
    assert not branch.polls


# ---- analyses of a program -------------------------------------------------------------------------------


def program_of(body, parameters=""):
    module = parse(f"{HEAD}.entry k({parameters}) {{ {body} ret; }}")
    return link(module, module.entries["k"])


def test_a_load_may_race_with_stores_between_the_same_barriers():
    program = program_of(
        """.shared .b32 c; .reg .b32 %r; st.shared.u32 [c], 1; bar.sync 0; ld.shared.u32 %r, [c]; bar.sync 0;
        st.shared.u32 [c], 2; ld.shared.u32 %r, [c];"""
    )
    assert meeting(program, {2, 5}, {0, 4}) == {5}


def test_copies_of_structures_bit_fields_and_fills_are_found():
    program = program_of(
        """.local .align 8 .b8 s[8]; .reg .b64 %a; .reg .b32 %r<5>; ld.param.u64 %a, [to];
        ld.local.u32 %r1, [s]; ld.local.u32 %r2, [s+4]; st.global.u32 [%a], %r1; st.global.u32 [%a+4], %r2;
        and.b32 %r4, %r1, -8; or.b32 %r4, %r4, 5; st.global.u32 [%a], %r4;
        or.b32 %r0, %r1, %r1; st.global.v2.u32 [%a], {%r0, %r3};""",
        ".param .u64 to",
    )
    assert Copies.of(program) == (frozenset({3, 4}), frozenset({7}), frozenset({(9, 1)}))


def test_paths_around_a_barrier_end_at_an_exit_or_a_store():
    program = program_of(
        """.reg .pred %p, %q; .reg .b64 %a; mov.b64 %a, 0; @%p bra END; @%q bra OTHER; bar.sync 0; bra END;
        OTHER: st.global.u32 [%a], 1; END:"""
    )
    ways = ways_out(program, lambda step: step.kind is BARRIER)
    assert ways == [{1: {6: 1}, 2: {5: 2}}]


def test_local_variables_start_where_their_addresses_are_taken():
    module = parse(
        HEAD
        + """.entry k() { .local .align 8 .b8 __local_depot0[24]; .reg .b64 %SPL, %a<3>;
        mov.u64 %SPL, __local_depot0; add.u64 %a1, %SPL, 16; add.u64 %a2, %SPL, 0;
        add.s64 %a2, %a2, 4; ret; }"""
    )
    assert local_variables(module.entries["k"], {"__local_depot0": 0}, {"__local_depot0": 24}) == {
        "__local_depot0": (0, 24),
        "__local_depot0+0": (0, 16),
        "__local_depot0+16": (16, 24),
    }


def test_a_register_is_live_until_it_is_read():
    program = program_of(".reg .b32 %a, %b; mov.b32 %a, 1; add.u32 %b, %a, 1; add.u32 %a, %b, %b;")
    assert live_registers(program.steps, program.registers)[:4] == [0b00, 0b01, 0b10, 0b00]


def test_addresses_come_from_parameters_and_memory():
    program = program_of(
        """.reg .b64 %r<4>; .reg .b32 %x; ld.param.u64 %r0, [a]; ld.param.u64 %r1, [n];
        add.u64 %r2, %r0, %r1; ld.global.u64 %r3, [%r2]; ld.global.u32 %x, [%r3+4];""",
        ".param .u64 a, .param .u64 n",
    )
    origins = known_origins(program, ())
    assert {step: set(found) for step, found in origins.items()} == {
        3: {"parameter a", "parameter n"},
        4: {"anything"},
    }
    assert known_origins(program, ()) is origins


@pytest.mark.parametrize(("value", "lending"), [("%c", {3}), ("%p", set())])
def test_storing_the_address_of_a_shared_variable_lends_it(value, lending):
    program = program_of(
        f""".shared .b32 c; .reg .b64 %p, %c; ld.param.u64 %p, [p]; mov.u64 %c, c; cvta.shared.u64 %c, %c;
        st.global.u64 [%p], {value};""",
        ".param .u64 p",
    )
    assert lending_steps(program, ()) == lending
