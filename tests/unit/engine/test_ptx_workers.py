"""Blocks on several worker processes: results, faults, output and Ctrl-C as with one process."""

import io
import os
import signal
import threading
import time

import numpy as np
import pytest

import simwarp
from simwarp.engine.launch import Launch
from simwarp.faults import DoubleFree, KernelFault, OutOfBounds, RunawayKernel, Trap
from support import small_kernels as small

STORE, NOTHING = small.STORE, small.NOTHING
text, run, fault_of, line_of = small.text, small.run, small.fault_of, small.line_of


def workers(count=2, chunk=64, **options):
    return simwarp.Device(workers=count, chunk_lanes=chunk, **options)


COLLATZ = """add.u32 %r3, %i, 1; mov.u32 %r2, 0;
LOOP: setp.eq.u32 %p1, %r3, 1; @%p1 bra END; add.u32 %r2, %r2, 1; and.b32 %r4, %r3, 1;
setp.eq.u32 %p2, %r4, 0;
@%p2 shr.u32 %r3, %r3, 1; @%p2 bra LOOP; mad.lo.u32 %r3, %r3, 3, 1; bra LOOP;
END: """


@pytest.mark.at_most(1)
@pytest.mark.slow_cases("2", "64", "3")
@pytest.mark.parametrize("count", [2, 3, 64])
def test_any_number_of_workers_gives_equal_results_and_counts(count):
    alone, together = workers(1), workers(count)
    options = {"block": 50, "grid": 40}
    assert run(COLLATZ + STORE, device=together, **options) == run(COLLATZ + STORE, device=alone, **options)
    assert together.executed == alone.executed


def test_parallel_blocks_have_their_own_shared_and_local_memory():
    body = """.local .b32 mine[2]; st.local.u32 [mine+4], %i; setp.eq.u32 %p1, %r1, 63;
@%p1 st.shared.u32 [cell], %i; bar.sync 0;
ld.shared.u32 %r2, [cell]; ld.local.u32 %r3, [mine+4]; sub.u32 %r2, %r2, %r3;
"""
    got = run(body + STORE, block=64, grid=30, device=workers(4), before=".shared .u32 cell;")
    assert got == [63 - t for _ in range(30) for t in range(64)]


def test_a_cluster_runs_on_one_worker():
    body = """setp.eq.u32 %p1, %r1, 0; mov.u32 %r3, %ctaid.x; @%p1 st.shared.u32 [cell], %r3;
barrier.cluster.arrive; barrier.cluster.wait;
mov.u32 %r4, %cluster_ctarank; xor.b32 %r4, %r4, 3; mov.u32 %r5, cell; mapa.shared::cluster.u32 %r5, %r5, %r4;
ld.shared::cluster.u32 %r2, [%r5]; barrier.cluster.arrive; barrier.cluster.wait;
"""
    options = {"before": ".shared .u32 cell;", "directives": ".reqnctapercluster 4, 1, 1"}
    got = run(body + STORE, grid=24, device=workers(), **options)
    assert got == [b ^ 3 for b in range(24) for _ in range(32)]


@pytest.mark.slow
def test_atomics_of_all_workers_add_up():
    body = """mov.u32 %r5, 0;
L: atom.global.add.u32 %r2, [%in], 1; red.global.max.u32 [%in+4], %i;
atom.global.cas.b32 %r6, [%in+8], %r5, %r5;
add.u32 %r5, %r5, 1; setp.lt.u32 %p1, %r5, 5; @%p1 bra L;
"""
    device = workers(4)
    out = device.upload(np.zeros(64 * 50, np.uint32))
    cells = device.upload(np.zeros(3, np.uint32))
    device.load(text(body + STORE)).kernel("k")((50, 1, 1), (64, 1, 1), out, cells)
    assert cells.download().tolist() == [64 * 50 * 5, 64 * 50 - 1, 0]
    old = out.download()
    assert np.unique(old).size == old.size


HEAP = """
.extern .func (.param .b64 r) malloc(.param .b64 size);
.extern .func free(.param .b64 pointer);
"""
MALLOC = """mov.u64 %rd1, 8; mov.u32 %r2, 0;
AGAIN: { .param .b64 a; .param .b64 b; st.param.b64 [a], %rd1; call.uni (b), malloc, (a);
ld.param.b64 %rd2, [b]; }
st.u32 [%rd2], %i; ld.u32 %r3, [%rd2]; setp.ne.u32 %p1, %r3, %i; @%p1 trap;
{ .param .b64 a; st.param.b64 [a], %rd2; call.uni free, (a); }
add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, 3; @%p1 bra AGAIN;
"""


@pytest.mark.slow
def test_malloc_and_free_are_right_with_several_workers():
    device = workers(4, chunk=32)
    assert run(MALLOC + STORE, block=8, grid=60, device=device, before=HEAP) == [3] * 480
    assert device.heap.used == 0


def test_the_fault_of_the_lowest_block_is_raised():
    """Every block from block 2 on faults; block 2 is the last to do so, after a long loop."""
    body = """mov.u32 %r3, %ctaid.x; setp.lt.u32 %p1, %r3, 2; mov.u32 %r2, 1; @%p1 bra END;
setp.ne.u32 %p1, %r3, 2; mov.u32 %r4, 0;
@%p1 bra BAD;
SLOW: add.u32 %r4, %r4, 1; setp.lt.u32 %p2, %r4, 3000; @%p2 bra SLOW;
BAD: ld.global.u32 %r2, [%in+4096];
END: """
    for _ in range(3):
        fault = fault_of(OutOfBounds, body + STORE, block=64, grid=20, device=workers())
        assert (fault.place.block, fault.place.lane) == ((2, 0, 0), 0)


def test_a_fault_of_the_first_block_stops_the_others():
    """Only block 0 traps; the others never end."""
    body = """mov.u32 %r3, %ctaid.x; setp.eq.u32 %p1, %r3, 0; @%p1 trap;
L: add.u32 %r3, %r3, 1; setp.lt.u32 %p2, %r3, 2000000000; @%p2 bra L;"""
    fault = fault_of(Trap, body, block=64, grid=5, device=workers())
    assert fault.place.block == (0, 0, 0)


def test_the_device_is_usable_after_a_fault():
    device = workers()
    fault_of(Trap, "trap;", block=64, grid=9, device=device)
    assert run(COLLATZ + STORE, block=64, grid=9, device=device) == run(COLLATZ + STORE, block=64, grid=9)


def test_heap_faults_are_reported_with_workers():
    body = MALLOC.replace(
        "add.u32 %r2, %r2, 1;", "{ .param .b64 a; st.param.b64 [a], %rd2; call.uni free, (a); }"
    )
    fault = fault_of(DoubleFree, body + STORE, block=8, grid=10, device=workers(chunk=32), before=HEAP)
    assert fault.place.lane == 0


ENDLESS = """setp.eq.u32 %p1, %lane, 3; mov.u32 %r3, 0;
L: add.u32 %r3, %r3, 1; setp.lt.u32 %p2, %r3, 2000000000; @%p2 bra L;"""


@pytest.mark.at_most(1)
@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="needs signals to one thread")
@pytest.mark.parametrize("count", [1, 2])
def test_ctrl_c_stops_a_launch_and_the_device_stays_usable(count):
    device = workers(count, instruction_budget=None)
    main = threading.main_thread().ident
    timer = threading.Timer(0.3, lambda: signal.pthread_kill(main, signal.SIGINT))
    before = threading.active_count()
    started = time.process_time()
    try:
        with pytest.raises(KeyboardInterrupt):  # noqa: PT012, the timer may be early
            timer.start()
            run(ENDLESS, block=64, grid=8, device=device)
    finally:
        timer.cancel()
        timer.join()
    assert time.process_time() - started < 20
    assert threading.active_count() == before
    assert run(COLLATZ + STORE, block=64, grid=9, device=device) == run(COLLATZ + STORE, block=64, grid=9)


def test_cooperative_launches_run_on_one_worker():
    """All blocks wait for each other, so they complete only if all are in flight."""
    body = """setp.ne.u32 %p1, %r1, 0; mov.u32 %r6, %nctaid.x; @%p1 bra WAIT;
atom.global.add.u32 %r3, [%in], 1;
WAIT: ld.volatile.global.u32 %r2, [%in]; setp.ne.u32 %p2, %r2, %r6; @%p2 bra WAIT;
"""
    assert run(body + STORE, block=64, grid=20, device=workers(), cooperative=True) == [20] * 1280


def test_the_instruction_budget_covers_all_workers():
    device = workers(instruction_budget=2000)
    fault = fault_of(RunawayKernel, COLLATZ + STORE, block=64, grid=40, device=device)
    assert "2000" in str(fault)


def test_clocks_do_not_depend_on_the_number_of_workers():
    body = "mov.u32 %r2, %clock;\n"
    counts = [run(body + STORE, block=64, grid=20, device=workers(n)) for n in (1, 2, 5)]
    assert counts[0] == counts[1] == counts[2]


def test_printf_output_is_in_block_order_with_workers():
    before = """.extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);
.global .align 1 .b8 format[4] = {37, 117, 10, 0};"""
    body = """.local .align 4 .b32 number; st.local.u32 [number], %i; mov.u64 %rd1, format;
cvta.global.u64 %rd1, %rd1; mov.u64 %rd2, number; cvta.local.u64 %rd2, %rd2;
{ .param .b64 f; .param .b64 a; .param .b32 r; st.param.b64 [f], %rd1; st.param.b64 [a], %rd2;
call.uni (r), vprintf, (f, a); ld.param.b32 %r2, [r]; }
"""
    printed = io.StringIO()
    assert (
        run(body + STORE, block=1, grid=40, device=workers(3, chunk=32, stdout=printed), before=before)
        == [1] * 40
    )
    assert printed.getvalue().split() == [str(i) for i in range(40)]


def test_a_dead_worker_process_is_reported(monkeypatch):
    monkeypatch.setattr(Launch, "run_chunk", lambda launch, blocks: os._exit(3))
    with pytest.raises(KernelFault, match="worker process ended"):
        run(COLLATZ + STORE, grid=40, device=workers())
