"""Random kernels that load, store, meet and exchange: about a third of them have a fault."""

from __future__ import annotations

from random import Random

HEAD = """
.version 9.0
.target sm_90
.address_size 64
.visible .entry kernel(.param .u64 out, .param .u64 given) {
    .reg .b32 %r<24>; .reg .b64 %rd<12>; .reg .pred %p<8>; .reg .b16 %h<4>;
    .shared .align 16 .b8 s[4096];
    ld.param.u64 %rd1, [out]; ld.param.u64 %rd8, [given];
    mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mad.lo.u32 %r4, %r2, %r3, %r1;
    mov.u32 %r5, s; mov.u32 %r6, 0; mov.u32 %r7, %r1; mov.u32 %r20, 7; mov.u32 %r21, 3; mov.u64 %rd5, 9;
    mov.u16 %h1, 5; mov.u32 %r22, 0; mov.u32 %r23, 0; setp.lt.u32 %p3, %r1, 20; setp.lt.u32 %p4, %r1, 9;
"""
FILL = """
    mov.u32 %r10, %r1;
F:  mad.lo.u32 %r11, %r10, 4, %r5; st.shared.u32 [%r11], %r10; add.u32 %r10, %r10, %r3;
    setp.lt.u32 %p1, %r10, 1024; @%p1 bra F;
    bar.sync 0;
"""
END = """
    mul.wide.u32 %rd4, %r4, 4; add.s64 %rd4, %rd4, %rd1; add.u32 %r20, %r20, %r21;
    st.global.u32 [%rd4+8192], %r20; ret; }
"""
WIDTHS = {"u8": 1, "u16": 2, "u32": 4, "u64": 8, "v2.u32": 8, "v4.u32": 16}
LOADED = {"u8": "%h1", "u16": "%h1", "u32": "%r20", "u64": "%rd5", "v2.u32": "{%r20,%r21}"}
LOADED["v4.u32"] = "{%r20,%r21,%r22,%r23}"
STORED = {**LOADED, "v4.u32": "{%r20,%r21,%r6,%r7}"}
VOTES = (
    "vote.sync.ballot.b32 %r20, %p3, 0xffffffff;",
    "vote.sync.any.pred %p3, %p3, 0xffffffff;",
    "vote.sync.uni.pred %p4, %p3, 0xffffffff;",
    "redux.sync.add.u32 %r20, %r7, 0xffffffff;",
    "redux.sync.min.s32 %r20, %r7, 0xffffffff;",
    "activemask.b32 %r20;",
)
STATEMENTS = (
    "load",
    "load",
    "store",
    "read",
    "write",
    "take",
    "barrier",
    "meet",
    "shuffle",
    "vote",
    "skip",
    "compute",
)


class Maker:
    """Draws one kernel."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.labels = 0
        self.threads = self.random.choice([32, 64, 96, 128, 40])
        self.kinds = self.random.sample(list(WIDTHS), self.random.choice([1, 1, 2, 3]))
        self.is_careful = self.random.random() < 0.6
        """Whether a thread stores to elements of its own, between barriers."""

    def kernel(self) -> tuple[str, int, int]:
        """The text, and the threads and blocks."""
        start = FILL if self.random.random() < 0.8 else ""
        body = "\n".join(
            getattr(self, self.random.choice(STATEMENTS))() for _ in range(self.random.randrange(3, 10))
        )
        rounds = self.random.choice([1, 2, 5])
        loop = f"L:\n{body}\n add.u32 %r6, %r6, 1; setp.lt.u32 %p5, %r6, {rounds}; @%p5 bra L;\n"
        return HEAD + start + loop + END, self.threads, self.random.choice([1, 2, 3])

    def kind(self) -> tuple[str, str, str]:
        """A type of an access, as in the opcode, its width, and a guard."""
        kind = self.random.choice(self.kinds)
        return kind, str(WIDTHS[kind]), self.random.choice(["", "", "", "@%p3 "])

    def offset(self, width: int, room: int) -> str:
        """Put the offset of an element within ``room`` bytes into %r10."""
        random, count = self.random, room // width
        change = random.choice(
            [
                f"xor.b32 %r10, %r10, {random.choice([1, 2, 16, 32])};",
                f"mad.lo.u32 %r10, %r10, 5, {random.randrange(9)};",
                f"shr.u32 %r10, %r10, {random.choice([1, 5])};",
                f"mov.u32 %r10, {random.randrange(count)};",
                "add.u32 %r10, %r10, %r6;",
                f"add.u32 %r10, %r10, {random.choice([1, 32, count // 2])};",
                "",
                "",
            ]
        )
        base = random.choice(["%r1", "%r1", "%r1", "%r7", "%r4" if room > 4096 else "%r1"])
        beyond = f"add.u32 %r10, %r10, {random.choice([1, 4096, 70000])};" if random.random() < 0.02 else ""
        scaled = f"and.b32 %r10, %r10, {count - 1}; mul.lo.u32 %r10, %r10, {width};"
        return f"mov.u32 %r10, {base}; {change} {scaled} {beyond}"

    def load(self) -> str:
        kind, width, guard = self.kind()
        at = f"{self.offset(int(width), 4096)} add.u32 %r10, %r10, %r5;"
        text = f"{at} {guard}ld.shared.{kind} {LOADED[kind]}, [%r10];"
        return text + " bar.sync 0;" * self.is_careful

    def store(self) -> str:
        kind, width, guard = self.kind()
        at, wait = self.offset(int(width), 4096), ""
        if self.is_careful:
            at, wait = f"mul.lo.u32 %r10, %r1, {width};", "bar.sync 0;"
        return f"{wait} {at} add.u32 %r10, %r10, %r5; {guard}st.shared.{kind} [%r10], {STORED[kind]}; {wait}"

    def _global(self, width: str) -> str:
        at = f"mul.lo.u32 %r10, %r4, {width};" if self.is_careful else self.offset(int(width), 8192)
        return f"{at} cvt.u64.u32 %rd3, %r10; add.s64 %rd3, %rd3, %rd1;"

    def read(self) -> str:
        kind, width, guard = self.kind()
        return f"{self._global(width)} {guard}ld.global.{kind} {LOADED[kind]}, [%rd3];"

    def write(self) -> str:
        kind, width, guard = self.kind()
        return f"{self._global(width)} {guard}st.global.{kind} [%rd3], {STORED[kind]};"

    def take(self) -> str:
        kind, width, _ = self.kind()
        cache = self.random.choice(["", ".nc"])
        at = f"{self.offset(int(width), 8192)} cvt.u64.u32 %rd3, %r10; add.s64 %rd3, %rd3, %rd8;"
        return f"{at} ld.global{cache}.{kind} {LOADED[kind]}, [%rd3];"

    def barrier(self) -> str:
        return "bar.sync 0;"

    def meet(self) -> str:
        return f"bar.warp.sync {self.random.choice(['0xffffffff'] * 6 + ['0xffff'])};"

    def shuffle(self) -> str:
        mode = self.random.choice(["bfly", "down", "up", "idx"])
        b, c = self.random.choice(["1", "5", "%r21"]), self.random.choice(["0x1f", "0x181f", "0"])
        return f"shfl.sync.{mode}.b32 %r7|%p4, %r7, {b}, {c}, 0xffffffff; and.b32 %r7, %r7, 1023;"

    def vote(self) -> str:
        return self.random.choice(VOTES)

    def skip(self) -> str:
        self.labels += 1
        test = (
            f"setp.lt.u32 %p2, %r{self.random.choice([1, 7, 6])}, {self.random.randrange(1, self.threads)};"
        )
        meets = "bar.warp.sync 0xffffffff;" if self.random.random() < 0.1 else ""
        return f"{test} @%p2 bra S{self.labels}; add.u32 %r20, %r20, 1; {meets}\nS{self.labels}:"

    def compute(self) -> str:
        return (
            "mad.lo.u32 %r20, %r20, 1664525, %r7; and.b32 %r21, %r20, 31; setp.gt.u32 %p3, %r21, 9;"
            " xor.b32 %r7, %r7, 1;"
        )
