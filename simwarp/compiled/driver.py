"""The driver, in LLVM's text: it runs segments in the order in which `Scheduler` runs groups.

The current group goes on until it meets another one, splits, or must be looked at; then the lowest group that
may run is chosen. Where `Scheduler` would do more than that (a foreign step, a spent turn, a sparse group
that runs on a copy), the driver returns before the segment. Looks for endless loops come at the end of turns
alone.
"""

from simwarp.compiled.tables import Context

NONE_LEFT, AT_CURRENT, CHOSEN = range(3)
"""Reasons to return: no group may run; the current group stands at ``segment``; or was only chosen."""
IDLE, READY, LATER = range(3)
"""States of a segment: no group, one that may run, or one that had more turns."""

DRIVER = """
define i64 @drive(
    ptr noalias %slots, ptr noalias %inputs, ptr noalias %masks, ptr noalias %states, ptr noalias %rounds,
    ptr noalias %loop_flags, ptr %ctx
) {
entry:
  %steps.at = getelementptr i64, ptr %ctx, i64 1
  %quota.at = getelementptr i64, ptr %ctx, i64 2
  %budget.at = getelementptr i64, ptr %ctx, i64 3
  %segment.at = getelementptr i64, ptr %ctx, i64 4
  %reason.at = getelementptr i64, ptr %ctx, i64 5
  %loops.at = getelementptr i64, ptr %ctx, i64 6
  %warps.at = getelementptr i64, ptr %ctx, i64 7
  %splits.at = getelementptr i64, ptr %ctx, i64 8
  %warps = load i64, ptr %warps.at
  %splits = load i64, ptr %splits.at
  %all = load i64, ptr @count
  %few = mul i64 %warps, 32
  %k = alloca i64
  %loops = alloca i64
  %w = alloca i64
  %taken = alloca i32
  %passed = alloca i32
  %busy = alloca i64
  %lanes = alloca i64
  %where = alloca i64
  %control = alloca i1
  %x = alloca i64
  %after = alloca i64
  %k.first = load i64, ptr %segment.at
  store i64 %k.first, ptr %k
  %loops.first = load i64, ptr %loops.at
  store i64 %loops.first, ptr %loops
  br label %run

run:
  %r.k = load i64, ptr %k
  %r.kind.at = getelementptr i64, ptr @kind, i64 %r.k
  %r.kind = load i64, ptr %r.kind.at
  %r.steps.at = getelementptr i64, ptr @steps, i64 %r.k
  %r.steps = load i64, ptr %r.steps.at
  %r.back.at = getelementptr i64, ptr @back, i64 %r.k
  %r.back = load i64, ptr %r.back.at
  %r.row = mul i64 %r.k, %warps
  %r.masks = getelementptr i32, ptr %masks, i64 %r.row
  %r.foreign = icmp eq i64 %r.kind, 0
  %r.budget = load i64, ptr %budget.at
  %r.poor = icmp slt i64 %r.budget, %r.steps
  %r.quota = load i64, ptr %quota.at
  %r.tired = icmp slt i64 %r.quota, 1
  %r.no = or i1 %r.foreign, %r.poor
  %r.stop = or i1 %r.no, %r.tired
  br i1 %r.stop, label %at.current, label %look

look:
  %l.isback = icmp ne i64 %r.back, 0
  br i1 %l.isback, label %look.turn, label %begin

look.turn:
  %l.loops = load i64, ptr %loops
  %l.next = add i64 %l.loops, 1
  %l.polls = and i64 %r.back, 4
  %l.ispoll = icmp ne i64 %l.polls, 0
  %l.low = and i64 %l.next, 65535
  %l.lowpoll = and i64 %l.next, 63
  %l.which = select i1 %l.ispoll, i64 %l.lowpoll, i64 %l.low
  %l.turn = icmp eq i64 %l.which, 0
  br i1 %l.turn, label %at.current, label %look.sparse

look.sparse:
  %l.four = and i64 %l.next, 3
  %l.isfour = icmp eq i64 %l.four, 0
  %l.meets = and i64 %r.back, 2
  %l.nomeet = icmp eq i64 %l.meets, 0
  %l.mayfocus = icmp ne i64 %splits, 0
  %l.a = and i1 %l.isfour, %l.nomeet
  %l.b = and i1 %l.a, %l.mayfocus
  store i64 0, ptr %after
  br i1 %l.b, label %count, label %begin

count:
  store i64 0, ptr %w
  store i64 0, ptr %busy
  store i64 0, ptr %lanes
  %c.k = load i64, ptr %k
  %c.row = mul i64 %c.k, %warps
  %c.masks = getelementptr i32, ptr %masks, i64 %c.row
  br label %count.next

count.next:
  %c.w = load i64, ptr %w
  %c.end = icmp eq i64 %c.w, %warps
  br i1 %c.end, label %counted.all, label %count.one

count.one:
  %c.at = getelementptr i32, ptr %c.masks, i64 %c.w
  %c.m = load i32, ptr %c.at
  %c.n = call i32 @llvm.ctpop.i32(i32 %c.m)
  %c.wide = zext i32 %c.n to i64
  %c.lanes = load i64, ptr %lanes
  %c.lanes2 = add i64 %c.lanes, %c.wide
  store i64 %c.lanes2, ptr %lanes
  %c.any = icmp ne i32 %c.m, 0
  %c.one = zext i1 %c.any to i64
  %c.busy = load i64, ptr %busy
  %c.busy2 = add i64 %c.busy, %c.one
  store i64 %c.busy2, ptr %busy
  %c.w2 = add i64 %c.w, 1
  store i64 %c.w2, ptr %w
  br label %count.next

counted.all:
  %c.l = load i64, ptr %lanes
  %c.l4 = mul i64 %c.l, 4
  %c.fewlanes = icmp slt i64 %c.l4, %few
  %c.bz = load i64, ptr %busy
  %c.b4 = mul i64 %c.bz, 4
  %c.w2x = mul i64 %warps, 2
  %c.fewwarps = icmp sle i64 %c.b4, %c.w2x
  %c.sparse = and i1 %c.fewlanes, %c.fewwarps
  %c.after = load i64, ptr %after
  %c.chosen = icmp ne i64 %c.after, 0
  br i1 %c.sparse, label %count.sparse, label %count.goon

count.sparse:
  br i1 %c.chosen, label %at.chosen, label %at.current

count.goon:
  br i1 %c.chosen, label %run, label %begin

begin:
  store i64 0, ptr %w
  store i64 0, ptr %busy
  store i64 0, ptr %lanes
  store i32 0, ptr %taken
  store i32 0, ptr %passed
  %b.k = load i64, ptr %k
  %b.fn.at = getelementptr ptr, ptr @functions, i64 %b.k
  %b.fn = load ptr, ptr %b.fn.at
  %b.target.at = getelementptr i64, ptr @target, i64 %b.k
  %b.target = load i64, ptr %b.target.at
  %b.next.at = getelementptr i64, ptr @next, i64 %b.k
  %b.next = load i64, ptr %b.next.at
  %b.kind.at = getelementptr i64, ptr @kind, i64 %b.k
  %b.kind = load i64, ptr %b.kind.at
  %b.row = mul i64 %b.k, %warps
  %b.masks = getelementptr i32, ptr %masks, i64 %b.row
  %b.trow = mul i64 %b.target, %warps
  %b.tmasks = getelementptr i32, ptr %masks, i64 %b.trow
  %b.nrow = mul i64 %b.next, %warps
  %b.nmasks = getelementptr i32, ptr %masks, i64 %b.nrow
  %b.falls = icmp eq i64 %b.kind, 1
  %b.look.at = getelementptr ptr, ptr @looks, i64 %b.k
  %b.look = load ptr, ptr %b.look.at
  %b.pure = icmp eq ptr %b.look, null
  br i1 %b.pure, label %warp, label %look.next

look.next:
  %a.w = load i64, ptr %w
  %a.end = icmp eq i64 %a.w, %warps
  br i1 %a.end, label %prepare, label %look.one

look.one:
  %a.at = getelementptr i32, ptr %b.masks, i64 %a.w
  %a.m = load i32, ptr %a.at
  %a.after = add i64 %a.w, 1
  store i64 %a.after, ptr %w
  %a.none = icmp eq i32 %a.m, 0
  br i1 %a.none, label %look.none, label %look.run

look.none:
  %a.masks.at = getelementptr ptr, ptr %ctx, i64 MASKS
  %a.masks = load ptr, ptr %a.masks.at
  %a.mask.at = getelementptr i32, ptr %a.masks, i64 %a.w
  store i32 0, ptr %a.mask.at
  br label %look.next

look.run:
  %a.found = call i32 %b.look(ptr %slots, ptr %inputs, i64 %a.w, i32 %a.m, ptr %ctx)
  %a.clean = icmp eq i32 %a.found, 0
  br i1 %a.clean, label %look.next, label %at.current

prepare:
  store i64 0, ptr %w
  %p.number.at = getelementptr i64, ptr @prepared, i64 %b.k
  %p.number = load i64, ptr %p.number.at
  %p.needs = icmp sge i64 %p.number, 0
  br i1 %p.needs, label %prepare.all, label %warp

prepare.all:
  %p.fn.at = getelementptr ptr, ptr %ctx, i64 PREPARE
  %p.fn = load ptr, ptr %p.fn.at
  %p.found = call i32 %p.fn(ptr %ctx, i64 %p.number)
  %p.clean = icmp eq i32 %p.found, 0
  br i1 %p.clean, label %warp, label %at.current

warp:
  %w.w = load i64, ptr %w
  %w.end = icmp eq i64 %w.w, %warps
  br i1 %w.end, label %ran, label %warp.look

warp.look:
  %w.at = getelementptr i32, ptr %b.masks, i64 %w.w
  %w.m = load i32, ptr %w.at
  %w.after = add i64 %w.w, 1
  store i64 %w.after, ptr %w
  %w.none = icmp eq i32 %w.m, 0
  br i1 %w.none, label %warp, label %warp.run

warp.run:
  store i32 0, ptr %w.at
  %w.t0 = call i32 %b.fn(ptr %slots, ptr %inputs, i64 %w.w, i32 %w.m, ptr %ctx)
  %w.t = select i1 %b.falls, i32 0, i32 %w.t0
  %w.not = xor i32 %w.t, -1
  %w.f = and i32 %w.m, %w.not
  %w.n = call i32 @llvm.ctpop.i32(i32 %w.m)
  %w.wide = zext i32 %w.n to i64
  %w.lanes = load i64, ptr %lanes
  %w.lanes2 = add i64 %w.lanes, %w.wide
  store i64 %w.lanes2, ptr %lanes
  %w.busy = load i64, ptr %busy
  %w.busy2 = add i64 %w.busy, 1
  store i64 %w.busy2, ptr %busy
  %w.tat = getelementptr i32, ptr %b.tmasks, i64 %w.w
  %w.told = load i32, ptr %w.tat
  %w.tnew = or i32 %w.told, %w.t
  store i32 %w.tnew, ptr %w.tat
  %w.nat = getelementptr i32, ptr %b.nmasks, i64 %w.w
  %w.nold = load i32, ptr %w.nat
  %w.nnew = or i32 %w.nold, %w.f
  store i32 %w.nnew, ptr %w.nat
  %w.ta = load i32, ptr %taken
  %w.ta2 = or i32 %w.ta, %w.t
  store i32 %w.ta2, ptr %taken
  %w.pa = load i32, ptr %passed
  %w.pa2 = or i32 %w.pa, %w.f
  store i32 %w.pa2, ptr %passed
  br label %warp

ran:
  %e.k = load i64, ptr %k
  %e.steps.at = getelementptr i64, ptr @steps, i64 %e.k
  %e.steps = load i64, ptr %e.steps.at
  %e.counted.at = getelementptr i64, ptr @counted, i64 %e.k
  %e.counted = load i64, ptr %e.counted.at
  %e.lanes = load i64, ptr %lanes
  %e.more = mul i64 %e.lanes, %e.counted
  %e.exec = load i64, ptr %ctx
  %e.exec2 = add i64 %e.exec, %e.more
  store i64 %e.exec2, ptr %ctx
  %e.all = load i64, ptr %steps.at
  %e.all2 = add i64 %e.all, %e.steps
  store i64 %e.all2, ptr %steps.at
  %e.budget = load i64, ptr %budget.at
  %e.budget2 = sub i64 %e.budget, %e.steps
  store i64 %e.budget2, ptr %budget.at
  %e.busy = load i64, ptr %busy
  %e.work = mul i64 %e.busy, %e.steps
  %e.quota = load i64, ptr %quota.at
  %e.quota2 = sub i64 %e.quota, %e.work
  store i64 %e.quota2, ptr %quota.at
  %e.back.at = getelementptr i64, ptr @back, i64 %e.k
  %e.back = load i64, ptr %e.back.at
  %e.isback = icmp ne i64 %e.back, 0
  %e.kind.at = getelementptr i64, ptr @kind, i64 %e.k
  %e.kind = load i64, ptr %e.kind.at
  %e.isfall = icmp eq i64 %e.kind, 1
  %e.iscontrol = xor i1 %e.isfall, true
  store i1 %e.iscontrol, ptr %control
  %e.target.at = getelementptr i64, ptr @target, i64 %e.k
  %e.target = load i64, ptr %e.target.at
  %e.next.at = getelementptr i64, ptr @next, i64 %e.k
  %e.next = load i64, ptr %e.next.at
  %e.t = load i32, ptr %taken
  %e.f = load i32, ptr %passed
  %e.anyt = icmp ne i32 %e.t, 0
  %e.anyf = icmp ne i32 %e.f, 0
  %e.both = and i1 %e.anyt, %e.anyf
  br i1 %e.both, label %split, label %together

together:
  %t.to = select i1 %e.anyt, i64 %e.target, i64 %e.next
  store i64 %t.to, ptr %where
  %t.wentback = and i1 %e.anyt, %e.isback
  %t.add = zext i1 %t.wentback to i64
  %t.loops = load i64, ptr %loops
  %t.loops2 = add i64 %t.loops, %t.add
  store i64 %t.loops2, ptr %loops
  %t.state.at = getelementptr i8, ptr %states, i64 %t.to
  %t.state = load i8, ptr %t.state.at
  %t.there = icmp ne i8 %t.state, 0
  br i1 %t.there, label %merge, label %together.control

together.control:
  %t.control = load i1, ptr %control
  br i1 %t.control, label %lower, label %goon

lower:
  store i64 0, ptr %x
  br label %lower.next

lower.next:
  %o.x = load i64, ptr %x
  %o.end = icmp uge i64 %o.x, %t.to
  br i1 %o.end, label %goon, label %lower.one

lower.one:
  %o.at = getelementptr i8, ptr %states, i64 %o.x
  %o.state = load i8, ptr %o.at
  %o.ready = icmp eq i8 %o.state, 1
  %o.x2 = add i64 %o.x, 1
  store i64 %o.x2, ptr %x
  br i1 %o.ready, label %merge, label %lower.next

goon:
  store i64 %t.to, ptr %k
  br label %run

merge:
  %m.to = load i64, ptr %where
  %m.loops = load i64, ptr %loops
  %m.looped = icmp ne i64 %m.loops, 0
  %m.flag = zext i1 %m.looped to i8
  call void @put(ptr %states, ptr %rounds, ptr %loop_flags, i64 %m.to, i64 %m.loops, i8 %m.flag)
  br label %choose

split:
  %s.loops = load i64, ptr %loops
  call void @put(ptr %states, ptr %rounds, ptr %loop_flags, i64 %e.next, i64 %s.loops, i8 0)
  %s.add = zext i1 %e.isback to i64
  %s.loops2 = add i64 %s.loops, %s.add
  %s.meets = and i64 %e.back, 2
  %s.nomeet = icmp eq i64 %s.meets, 0
  %s.loopflag = and i1 %e.isback, %s.nomeet
  %s.flag = zext i1 %s.loopflag to i8
  call void @put(ptr %states, ptr %rounds, ptr %loop_flags, i64 %e.target, i64 %s.loops2, i8 %s.flag)
  br label %choose

choose:
  store i64 0, ptr %x
  br label %choose.next

choose.next:
  %h.x = load i64, ptr %x
  %h.end = icmp ugt i64 %h.x, %all
  br i1 %h.end, label %none, label %choose.one

choose.one:
  %h.at = getelementptr i8, ptr %states, i64 %h.x
  %h.state = load i8, ptr %h.at
  %h.ready = icmp eq i8 %h.state, 1
  %h.x2 = add i64 %h.x, 1
  store i64 %h.x2, ptr %x
  br i1 %h.ready, label %chosen, label %choose.next

chosen:
  store i8 0, ptr %h.at
  store i64 %h.x, ptr %k
  %h.rounds.at = getelementptr i64, ptr %rounds, i64 %h.x
  %h.rounds = load i64, ptr %h.rounds.at
  store i64 %h.rounds, ptr %loops
  %h.flag.at = getelementptr i8, ptr %loop_flags, i64 %h.x
  %h.flag = load i8, ptr %h.flag.at
  %h.looped = icmp ne i8 %h.flag, 0
  %h.focuses = icmp ne i64 %splits, 0
  %h.check = and i1 %h.looped, %h.focuses
  store i64 1, ptr %after
  br i1 %h.check, label %count, label %run

at.chosen:
  %z.k = load i64, ptr %k
  %z.at = getelementptr i8, ptr %states, i64 %z.k
  store i8 1, ptr %z.at
  store i64 %z.k, ptr %segment.at
  store i64 2, ptr %reason.at
  ret i64 2

at.current:
  %y.k = load i64, ptr %k
  store i64 %y.k, ptr %segment.at
  %y.loops = load i64, ptr %loops
  store i64 %y.loops, ptr %loops.at
  store i64 1, ptr %reason.at
  ret i64 1

none:
  store i64 0, ptr %reason.at
  ret i64 0
}

define internal void @put(ptr %states, ptr %rounds, ptr %loop_flags, i64 %to, i64 %loops, i8 %flag) {
  %state.at = getelementptr i8, ptr %states, i64 %to
  %state = load i8, ptr %state.at
  %rounds.at = getelementptr i64, ptr %rounds, i64 %to
  %flag.at = getelementptr i8, ptr %loop_flags, i64 %to
  %is = icmp ne i8 %state, 0
  br i1 %is, label %there, label %new

new:
  store i8 1, ptr %state.at
  store i64 %loops, ptr %rounds.at
  store i8 %flag, ptr %flag.at
  ret void

there:
  %rounds.old = load i64, ptr %rounds.at
  %more = icmp ugt i64 %loops, %rounds.old
  %rounds.new = select i1 %more, i64 %loops, i64 %rounds.old
  store i64 %rounds.new, ptr %rounds.at
  %flag.old = load i8, ptr %flag.at
  %flag.new = or i8 %flag.old, %flag
  store i8 %flag.new, ptr %flag.at
  ret void
}
""".replace("MASKS", str(int(Context.MASKS))).replace("PREPARE", str(int(Context.PREPARE)))
