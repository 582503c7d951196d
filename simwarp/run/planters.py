"""The faults that `simwarp check --self-check` plants in a kernel: one entry for each kind of check.

A planter yields mutants of statements that the launch executes. Those that are faults in most kernels only
come first, since they are mistakes that people make; the last one is a fault in every kernel.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from simwarp.program.link import is_compiled
from simwarp.ptx.syntax import Address, Register
from simwarp.run.planting import Code, Plant, Statement

_FAR = 1 << 30
_LANE = "{ .reg .pred %planted_p; .reg .b32 %planted_l; mov.u32 %planted_l, %laneid;"
_TYPE = re.compile(r"\.[bsuf](?:8|16|32|64)$")


@dataclass(frozen=True)
class Planter:
    """The search for places to plant faults of a kind."""

    needs: str  # the end of "this launch executes no …"
    plants: Callable[[Code], Iterator[Plant]]


def _is_access(statement: Statement) -> bool:
    return statement.seen.space in ("global", "shared") and statement.parts[0] in ("ld", "st", "atom", "red")


def _is_store(statement: Statement) -> bool:
    """True for a store of one register to global memory."""
    if statement.parts[0] != "st" or statement.seen.space != "global" or not _TYPE.search(statement.opcode):
        return False
    return isinstance(statement.instruction.operands[1], Register)


def _is_barrier(statement: Statement) -> bool:
    """True for an unconditional aligned barrier of the whole block."""
    barriers = ("bar.sync", "barrier.sync.aligned", "bar.cta.sync", "barrier.cta.sync.aligned")
    return statement.opcode in barriers and len(statement.operands) == 1 and not statement.guard


def _begins(*heads: str) -> Callable[[Statement], bool]:
    """A predicate of statements: whether the opcode begins with one of ``heads``."""
    return lambda statement: any(f"{statement.opcode}.".startswith(f"{head}.") for head in heads)


def _bounds(code: Code) -> Iterator[Plant]:
    for at in code.ran(_is_access):
        if moved := at.moved(_FAR):
            yield Plant(at, "1 GiB is added to the address", moved)


def _alignment(code: Code) -> Iterator[Plant]:
    found = code.ran(lambda at: _is_access(at) and at.seen.width > 1)
    for at in sorted(
        found, key=lambda at: at.seen.space
    ):  # in global memory first: variables there are larger
        if moved := at.moved(1):
            yield Plant(at, "1 is added to the address", moved)


def _freed(code: Code) -> Iterator[Plant]:
    for at in code.ran(lambda at: bool(at.seen.addresses)):
        array = code.array_at(at.seen.addresses)
        if array is not None:
            yield Plant(at, f"{array.value.name} is freed before the launch", at.text(), freed=array.position)


def _registers(code: Code) -> Iterator[Plant]:
    for at in code.ran(lambda at: _is_store(at) or _is_access(at)):
        stored = _is_store(at)
        operand = at.instruction.operands[1 if stored or at.parts[0] == "ld" else 0]
        register = operand.base if isinstance(operand, Address) else operand
        if not isinstance(register, Register) or register.name not in at.function.registers:
            continue
        declared = f"{{ .reg .{at.function.registers[register.name]} %planted;"
        if stored:
            yield Plant(
                at,
                "the stored register is one that nothing wrote",
                f"{declared} {at.with_operand(1, '%planted')} }}",
            )
        else:
            addressed = re.sub(r"(?<=\[)\s*[%\w$]+", "%planted", at.text(), count=1)
            yield Plant(at, "the address is in a register that nothing wrote", f"{declared} {addressed} }}")


def _uninitialised(code: Code) -> Iterator[Plant]:
    for at in code.ran(lambda at: at.parts[0] == "st" and at.seen.space == "shared"):
        yield Plant(at, "the store is left out", "", sure=False)
    for at in code.ran(lambda at: at.parts[0] == "ld" and _is_access(at)):
        opcode = ".".join(["ld.local", *(part for part in at.parts if re.fullmatch(r"v\d|[bsuf]\d+", part))])
        text = (
            f"{{ .local .align 16 .b8 planted[32]; {at.text(at.operands[0], '[planted]', opcode=opcode)} }}"
        )
        yield Plant(at, "a variable without a value is read instead", text, sure=False)
    for at in code.ran(_is_access):
        unset = "{ .local .b32 planted; .reg .b32 %planted; ld.local.b32 %planted, [planted];"
        yield Plant(at, "a branch depends on a variable without a value", f"{unset} {_branch(at)}")


def _division(code: Code) -> Iterator[Plant]:
    for at in code.ran(lambda at: at.parts[0] in ("div", "rem") and at.opcode[-3] in "su"):
        yield Plant(at, "the divisor is 0", at.with_operand(2, "0"), sure=False)
    for at in code.ran(_is_access):
        zero = "{ .reg .b32 %planted; mov.b32 %planted, 0; div.u32 %planted, %planted, %planted;"
        yield Plant(at, "a branch depends on 0 / 0", f"{zero} {_branch(at)}")


def _branch(at: Statement) -> str:
    """A branch that depends on the register ``%planted``, and the statement behind it."""
    branch = "setp.eq.u32 %planted_p, %planted, 0; @%planted_p bra $planted;"
    return f".reg .pred %planted_p; {branch} $planted: {at.text()} }}"


def _barriers(code: Code) -> Iterator[Plant]:
    for at in code.ran(lambda at: _is_barrier(at) and at.seen.lanes > 1):
        others = f"{_LANE} setp.ne.u32 %planted_p, %planted_l, 0;"
        yield Plant(
            at, "lane 0 skips the barrier", f"{others} {at.text(guard='@%planted_p ')} }}", sure=False
        )
        odd = f"{_LANE} and.b32 %planted_l, %planted_l, 1; setp.ne.u32 %planted_p, %planted_l, 0;"
        both = f"{at.text(guard='@%planted_p ')} {at.text(guard='@!%planted_p ')}"
        yield Plant(at, "odd and even lanes of a warp reach it by two instructions", f"{odd} {both} }}")


def _members(code: Code) -> Iterator[Plant]:
    heads = (
        "shfl.sync",
        "vote.sync",
        "bar.warp.sync",
        "match.any.sync",
        "match.all.sync",
        "redux.sync",
        "elect.sync",
    )
    for at in code.ran(_begins(*heads)):
        mask, last = f"{1 << at.seen.lane ^ 0xFFFFFFFF:#x}", len(at.operands) - 1
        copied = f"{{ .reg .b32 %planted; mov.b32 %planted, {at.operands[last]};"
        cleared = f"{copied} and.b32 %planted, %planted, {mask};"
        what = f"lane {at.seen.lane} is left out of the mask"
        yield Plant(at, what, f"{cleared} {at.with_operand(last, '%planted')} }}")


def _sources(code: Code) -> Iterator[Plant]:
    for at in code.ran(lambda at: _begins("shfl.sync")(at) and at.seen.lanes > 1):
        alone = "{ .reg .b32 %planted; mov.u32 %planted, %lanemask_eq;"
        text = at.text(*at.operands[:2], "1", "31", "%planted", opcode="shfl.sync.bfly.b32")
        yield Plant(at, "a lane reads its neighbour, which does not take part", f"{alone} {text} }}")


def _races(code: Code) -> Iterator[Plant]:
    for at in code.ran(lambda at: _is_barrier(at) or _begins("bar.warp.sync")(at)):
        yield Plant(at, "the barrier is left out", "", sure=False)
    for at in code.ran(lambda at: at.parts[0] == "red" and at.seen.space == "global"):
        store = ".".join(part for part in ("st", "global", at.parts[-1]))
        yield Plant(at, "a store takes the place of the atomic update", at.text(opcode=store), sure=False)
    for at in code.ran(lambda at: _is_store(at) and at.seen.threads > 1 and at.function is code.work.kernel):
        array = code.array_at(at.seen.addresses)
        if array is None or array.value.nbytes < 4:
            continue
        parameter = code.work.kernel.parameters[array.position].name
        declared = "{ .reg .b64 %planted_a; .reg .b32 %planted, %planted_c;"
        number = (
            "mov.u32 %planted, %laneid; mov.u32 %planted_c, %ctaid.x; xor.b32 %planted, %planted, %planted_c;"
        )
        store = f"ld.param.u64 %planted_a, [{parameter}]; {at.guard}st.b32 [%planted_a], %planted;"
        what = f"all threads write {array.value.name}[0], too"
        yield Plant(at, what, f"{declared} {number} {store} {at.text()} }}")


def _copies(code: Code) -> Iterator[Plant]:
    for at in code.ran(_begins("cp.async.wait_group", "cp.async.wait_all", "cp.async.bulk.wait_group")):
        yield Plant(at, "the wait is left out", "", sure=False)
    for at in code.ran(lambda at: _is_test(at) and not at.guard):
        yield Plant(at, "the wait ends at once", f"setp.eq.u32 {at.operands[0]}, 0, 0;", sure=False)
    for at in code.ran(lambda at: _is_copy(at) and "shared" in _target(at)):
        touched = f"{at.guard}st.shared.b8 [{_inner(at.operands[0])}], 0;"
        yield Plant(at, "the target is written behind the copy", f"{at.text()} {touched}")


def _is_test(at: Statement) -> bool:
    return _begins("mbarrier.try_wait", "mbarrier.test_wait")(at)


def _is_copy(at: Statement) -> bool:
    """Whether a statement is an asynchronous copy (``cp.async…``)."""
    return at.opcode.startswith("cp.async.") and bool(re.search(r"\.(?:shared|global)", at.opcode))


def _target(at: Statement) -> str:
    """The state space that a copy writes to: the first one of the opcode."""
    found = re.search(r"\.(shared|global)", at.opcode)
    return found[1] if found and ".prefetch." not in at.opcode else ""


def _inner(operand: str) -> str:
    """The address in an operand: the text in the brackets."""
    return operand.strip("[] ")


def _textures(code: Code) -> Iterator[Plant]:
    for at in code.ran(lambda at: at.parts[0] in ("tex", "tld4", "suld", "sust", "sured")):
        i = next((i for i, operand in enumerate(at.operands) if operand.startswith("[")), None)
        if i is not None and (found := re.match(r"\[\s*(%[\w$]+)", at.operands[i])):
            changed = f"{{ .reg .b64 %planted; add.u64 %planted, {found[1]}, 4096;"
            text = at.with_operand(i, at.operands[i].replace(found[1], "%planted", 1))
            yield Plant(at, "4096 is added to the handle", f"{changed} {text} }}")


def _proxies(code: Code) -> Iterator[Plant]:
    for at in code.ran(_begins("fence.proxy.async")):
        yield Plant(at, "the fence is left out", "", sure=False)
    for at in code.ran(lambda at: at.opcode.startswith("cp.async.bulk.global.shared")):
        written = f"{at.guard}st.shared.b8 [{_inner(at.operands[1])}], 0;"
        yield Plant(at, "the source is written without a fence", f"{written} {at.text()}")


def _products(code: Code) -> Iterator[Plant]:
    for at in code.ran(_begins("wgmma.wait_group", "wgmma.fence")):
        yield Plant(at, f"{at.opcode} is left out", "", sure=False)
    for at in code.ran(_begins("wgmma.mma_async")):
        register = at.operands[0].strip("{} ").split(",")[0].strip()
        kind = at.function.registers.get(register, "b32")
        yield Plant(
            at,
            "an accumulator is written behind the product",
            f"{at.text()} mov.{kind} {register}, {_ZEROS.get(kind, '0')};",
        )


_ZEROS = {"f32": "0f00000000", "f64": "0d0000000000000000"}


def _deadlock(code: Code) -> Iterator[Plant]:
    x, y, z = code.work.block
    threads = x * y * z
    for at in code.ran(_is_barrier):
        count = -(-threads // 32) * 32 + 32
        yield Plant(at, f"the barrier waits for {count} threads", at.text(at.operands[0], str(count)))


def _runaway(code: Code) -> Iterator[Plant]:
    accesses = code.ran(_is_access)
    for at in accesses or code.ran(lambda at: at.parts[0] not in ("ret", "exit")):
        yield Plant(at, "an endless loop stands before it", f"{{ $planted: bra $planted; {at.text()} }}")


def _unreachable(code: Code) -> Iterator[Plant]:
    *others, last = code.work.kernel.instructions
    if not others or not is_compiled(code.work.kernel):
        return
    for at in code.ran(lambda at: at.instruction is last and at.parts[0] in ("ret", "exit") and not at.guard):
        yield Plant(at, "the return is left out", "")


def _exits(code: Code) -> Iterator[Plant]:
    for at in code.ran(lambda at: _is_barrier(at) and at.seen.lanes > 1):
        leaves = f"{_LANE} setp.eq.u32 %planted_p, %planted_l, 0; @%planted_p exit;"
        yield Plant(at, "lane 0 returns before the barrier", f"{leaves} {at.text()} }}")


PLANTERS = {
    "bounds": Planter("access of global or shared memory", _bounds),
    "alignment": Planter("access of more than a byte", _alignment),
    "freed": Planter("access of an array argument", _freed),
    "registers": Planter("access through a register", _registers),
    "uninitialised": Planter("access of global or shared memory", _uninitialised),
    "division": Planter("integer division, and no access of global or shared memory", _division),
    "barriers": Planter("barrier of the block in two lanes of a warp", _barriers),
    "members": Planter("operation with a member mask", _members),
    "sources": Planter("shuffle of two lanes", _sources),
    "races": Planter("barrier, and no store to an array by two threads", _races),
    "copies": Planter("asynchronous copy", _copies),
    "textures": Planter("access of a texture or surface", _textures),
    "proxies": Planter("proxy fence, and no bulk store", _proxies),
    "products": Planter("product of a warpgroup", _products),
    "deadlock": Planter("barrier of the block", _deadlock),
    "runaway": Planter("instruction except its return", _runaway),
    "unreachable": Planter("return at the end of what a compiler wrote", _unreachable),
    "exits": Planter("barrier of the block in two lanes of a warp", _exits),
}
"""Kind of check → how its faults are planted."""

UNPLANTED = {"dependents": "it takes two launches, and this is one"}
"""Kind of check → why it cannot be planted in one launch."""
