"""Launches of a program held against a second device; simulated devices with edited PTX stand in for the GPU.

`tests/exec/test_exec_both.py` has whole programs.
"""

import os
import struct
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reference.errors import NoGpuError, SchemeError
from simwarp import Device
from simwarp.cli import main
from simwarp.exec import execute
from simwarp.exec.device_memory import DeviceMemory
from simwarp.exec.holder import Holder
from simwarp.exec.protocol import PAGE, Kind, Message, Reply, Request
from simwarp.exec.report import Report
from simwarp.exec.server import Server
from simwarp.faults import KernelFault, LaunchError, OutOfBounds
from simwarp.run import Both, ChipTimeoutError
from simwarp.run.both.devices import Apart, Here
from simwarp.run.both.program_launch import Contents, ProgramLaunch, repeated
from support.fatbins import entry, fatbin

HEAD = ".version 9.0\n.target sm_90\n.address_size 64\n"
SCALE = """
.global .align 4 .u32 total = 40;
.const .align 4 .f32 factor = 0f40400000;
.visible .entry scale(.param .u64 x, .param .u32 n) {
    .reg .b64 %a<4>; .reg .b32 %r<6>; .reg .f32 %f<4>; .reg .pred %p;
    ld.param.u64 %a1, [x];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %tid.x;
    setp.ge.u32 %p, %r2, %r1;
    @%p bra DONE;
    mul.wide.u32 %a2, %r2, 4;
    add.s64 %a3, %a1, %a2;
    ld.global.f32 %f1, [%a3];
    ld.const.f32 %f2, [factor];
    mul.rn.f32 %f3, %f1, %f2;
    st.global.f32 [%a3], %f3;
    setp.ne.u32 %p, %r2, 0;
    @%p bra DONE;
    ld.global.u32 %r3, [total];
    add.u32 %r3, %r3, 1;
    st.global.u32 [total], %r3;
DONE:
    ret;
}
"""
CHAIN = """
.visible .entry chain(.param .u64 table) {
    .reg .b64 %a<3>; .reg .b32 %r<3>;
    ld.param.u64 %a1, [table];
    ld.global.u64 %a2, [%a1+8];
    ld.global.u32 %r1, [%a2];
    add.u32 %r1, %r1, 7;
    st.global.u32 [%a2], %r1;
    ret;
}
"""
SUM = """
.visible .entry sum(.param .u64 x, .param .u64 y) {
    .reg .b64 %a<4>; .reg .b32 %r; .reg .f32 %f;
    ld.param.u64 %a1, [x];
    ld.param.u64 %a3, [y];
    mov.u32 %r, %tid.x;
    mul.wide.u32 %a2, %r, 4;
    add.s64 %a1, %a1, %a2;
    ld.global.f32 %f, [%a1];
    red.global.add.f32 [%a3], %f;
    ret;
}
"""
RACE = """
.visible .entry race(.param .u64 x) {
    .reg .b64 %a; .reg .b32 %r;
    ld.param.u64 %a, [x];
    mov.u32 %r, %tid.x;
    st.global.u32 [%a], %r;
    ret;
}
"""
SUCCESS, ILLEGAL_ADDRESS = 0, 700


@dataclass(frozen=True)
class Edited(Here):
    """A chip that runs PTX with an edit, and keeps the launches that it was asked for."""

    old: str = ""
    new: str = ""
    asked: list[ProgramLaunch] = field(default_factory=list)

    def repeat(self, launch: ProgramLaunch) -> Contents:
        self.asked.append(launch)
        if self.old and self.old in launch.ptx.text:
            text = launch.ptx.text.replace(self.old, self.new)
            launch = replace(launch, ptx=launch.ptx._replace(text=text))
        return super().repeat(launch)


@dataclass(frozen=True)
class Fails(Here):
    """A chip on which every launch ends with an exception."""

    error: Exception

    def repeat(self, launch: ProgramLaunch) -> Contents:
        raise self.error


class Program:
    """A program's side of the conversation, in this process; its launches are held against a chip."""

    def __init__(self, chip: Here, checks: Any = None, **options: Any) -> None:
        self.report = Report(quiet=True)
        given = {"uninitialised": "report", "races": "report"} if checks is None else checks
        device = Device(memory=DeviceMemory.new_space(), checks=given)
        self.server = Server(device, self.report, 1 << 24)
        self.server.holder = Holder(Both(**options), chip, device, self.report)

    @property
    def held(self):
        return self.report.both

    def ask(self, request: Request, *arguments: int, data: bytes = b"", file: int | None = None) -> Reply:
        return self.server.answer(Message(request, [*arguments, *[0] * (6 - len(arguments))], data, file))

    def kernel(self, ptx: str, name: str) -> int:
        self.module = self.ask(Request.LOAD, data=fatbin(entry((HEAD + ptx).encode()))).values[0]
        return self.ask(Request.FUNCTION, self.module, data=name.encode()).values[0]

    def launch(self, function: int, *arguments: int, format: str = "Q", block: int = 32) -> Reply:
        head = struct.pack("=3Q10I", function, 0, 0, 1, 1, 1, block, 1, 1, 0, 0, 0, 0)
        return self.ask(Request.LAUNCH, data=head + struct.pack(f"={format}", *arguments))

    def array(self, values) -> int:
        data = np.asarray(values)
        address = self.ask(Request.MALLOC, data.nbytes).values[0]
        self.ask(Request.WRITE, address, data.nbytes, data.nbytes, 1, data=data.tobytes())
        return address

    def read(self, address: int, count: int, dtype="float32"):
        size = count * np.dtype(dtype).itemsize
        return np.frombuffer(self.ask(Request.READ, address, size, size, 1).data, dtype)


TENTHS = np.float32([0.7, 0.1, 1.3, 0.2])
ROUNDED = Edited(Device(checks="off"), "mul.rn.f32", "mul.rz.f32")


def plain(**more: Any) -> Edited:
    return Edited(Device(checks="off", **more))


def scaled(chip: Here, times: int = 1, **options: Any) -> Program:
    program = Program(chip, **options)
    x, kernel = program.array(TENTHS), program.kernel(SCALE, "scale")
    for _ in range(times):
        assert program.launch(kernel, x, 4, format="QI").error == SUCCESS
    program.x = x
    return program


# What agrees


def test_equal_launches_are_counted():
    program = scaled(plain(), times=3)
    assert (program.held.equal, program.held.different, program.held.refused) == (3, {}, {})
    assert program.report.clean
    assert "held against simwarp simulator (sm_90): 3 launches equal" in program.report.summary
    total = program.ask(Request.VARIABLE, program.module, data=b"total").values[0]
    assert program.read(total, 1, "uint32") == [43]
    assert program.report.to_json()["both"]["equal"] == 3


def test_the_second_device_takes_variables_as_they_are_before_each_launch():
    chip = plain()
    scaled(chip, times=2)
    assert [one.contents["total"].view(np.uint32)[0] for one in chip.asked] == [40, 41]


def test_a_pointer_in_memory_keeps_its_meaning():
    program = Program(plain())
    value = program.array(np.uint32([5]))
    table = program.array(np.uint64([0, value]))
    assert program.launch(program.kernel(CHAIN, "chain"), table, block=1).error == SUCCESS
    assert program.read(value, 1, "uint32") == [12]
    assert (program.held.equal, program.held.refused) == (1, {})


def test_unwritten_bytes_are_alike():
    program = Program(plain())
    address = program.ask(Request.MALLOC, 64).values[0]
    program.ask(Request.FILL, address, 16, 16, 1, 0, 4)
    assert program.launch(program.kernel(SCALE, "scale"), address, 4, format="QI").error == SUCCESS
    assert program.held.equal == 1
    assert program.read(address, 16, "uint32")[-1] == 0xA5A5A5A5


# What differs


def test_a_difference_names_launch_kernel_element_and_writer():
    program = scaled(ROUNDED, times=2)
    assert program.read(program.x, 4).tolist() == (TENTHS * np.float32(3) * np.float32(3)).tolist()
    held = program.held
    (launch,) = held.different.values()
    wrong = [i for i, x in enumerate(TENTHS) if np.float64(x) * 3 < np.float32(x * np.float32(3))]
    assert (launch.number, launch.kernel) == (1, "scale")
    (difference,) = launch.compared.differences
    assert difference.element == f"x[{wrong[0]}]"
    assert difference.simulator == TENTHS[wrong[0]] * np.float32(3)
    assert launch.compared.writer.lane == wrong[0]
    assert launch.compared.writer.text.startswith("st.global.f32")
    assert (launch.compared.register, launch.compared.exactness) == ("%f3", "exact")
    text = str(launch).splitlines()
    assert text[0] == "launch 1, scale: simwarp simulator (sm_90) and the simulator differ"
    assert text[1].startswith("x: ")
    assert text[-1] == "the simulator calls it exact"
    assert not program.report.clean
    (finding,) = [one for one in program.report.all_findings if one.check == "devices"]
    assert (finding.count, finding.element, finding.fields["launch"]) == (
        held.counts["scale"],
        f"x[{wrong[0]}]",
        1,
    )
    data = program.report.to_json()["both"]
    assert data["different"][0]["launch"] == 1
    assert data["different"][0]["launches"] == held.counts["scale"]
    assert "differ" in program.report.summary


def test_a_variable_that_differs_is_named():
    program = scaled(Edited(Device(checks="off"), "add.u32 %r3, %r3, 1", "add.u32 %r3, %r3, 2"))
    (launch,) = program.held.different.values()
    (difference,) = launch.compared.differences
    assert (difference.element, difference.simulator, difference.other) == ("total[0]", 41, 42)
    assert launch.compared.register == "%r3"


def test_an_element_that_only_the_second_device_writes_has_no_writer():
    program = Program(Edited(Device(checks="off"), "setp.ge.u32 %p, %r2, %r1", "setp.gt.u32 %p, %r2, %r1"))
    x = program.array(TENTHS)
    program.launch(program.kernel(SCALE, "scale"), x, 3, format="QI")
    (launch,) = program.held.different.values()
    assert launch.compared.differences[0].element == "x[3]"
    assert launch.compared.writer is None
    assert "on the simulator, where the launch did not write it, " in str(launch)


def test_an_array_behind_a_pointer_in_memory_has_the_type_that_was_stored():
    program = Program(Edited(Device(checks="off"), "%r1, 7;", "%r1, 8;"))
    value = program.array(np.uint32([5, 6]))
    table = program.array(np.uint64([0, value]))
    program.launch(program.kernel(CHAIN, "chain"), table, block=1)
    (launch,) = program.held.different.values()
    (difference,) = launch.compared.differences
    assert (difference.simulator, difference.other, difference.size) == (12, 13, 2)
    assert difference.first == (0,)


def test_a_tolerance_counts():
    for options in ({"rtol": 1e-6}, {"bound": True}):
        program = scaled(ROUNDED, **options)
        assert (program.held.equal, program.held.counts.total()) == (1, 0)
    assert scaled(ROUNDED, rtol=1e-9).held.counts.total() == 1


def test_one_of_the_legal_answers_is_no_difference():
    thirds = np.float32(np.arange(64) % 7) / 3
    for schedules, legal, different in ((0, 0, 1), (3, 1, 0)):
        program = Program(plain(schedule="random", seed=2), schedules=schedules)
        x, y = program.array(thirds), program.array(np.zeros(1, np.float32))
        program.launch(program.kernel(SUM, "sum"), x, y, format="2Q", block=64)
        assert (len(program.held.legal), program.held.counts.total()) == (legal, different)
        assert program.report.clean is bool(legal)
    assert program.held.legal[0].compared.legal.startswith("random, seed ")
    assert "1 one of the legal answers" in program.report.summary


# What is not compared


def refused(program: Program) -> str:
    assert (program.held.equal, program.held.counts.total()) == (0, 0)
    ((reason, numbers),) = program.held.refused.items()
    assert numbers == [1]
    assert f"launch 1: {reason}" in program.report.summary
    return reason


def test_undefined_behaviour_comes_first():
    program = Program(plain())
    x = program.array(np.zeros(4, np.uint32))
    assert program.launch(program.kernel(RACE, "race"), x).error == SUCCESS
    assert refused(program).startswith("race is not compared: the simulator has a finding: race, ")
    (finding,) = program.report.findings
    assert finding.check == "races"
    program = Program(plain(), anyway=True)
    x = program.array(np.zeros(4, np.uint32))
    program.launch(program.kernel(RACE, "race"), x)
    assert program.held.equal == 1


def test_a_finding_that_was_known_before_keeps_a_later_launch_from_being_compared():
    program = Program(plain())
    x, kernel = program.array(np.zeros(4, np.uint32)), program.kernel(RACE, "race")
    for _ in range(3):
        program.launch(kernel, x)
    assert list(program.held.refused.values()) == [[1, 2, 3]]


def test_a_launch_that_a_fault_ends_is_not_compared():
    program = Program(plain())
    x = program.array(TENTHS)
    assert program.launch(program.kernel(SCALE, "scale"), x, 5, format="QI").error == ILLEGAL_ADDRESS
    assert isinstance(program.report.findings[0], OutOfBounds)
    assert refused(program).startswith("scale is not compared: the simulator has a finding: out of bounds")


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("tex.1d.v4.f32.s32 {%f0, %f1, %f2, %f3}, [%a, {%r}];", "it reads a texture or a surface"),
        (
            "{.param .b64 p; .param .b64 q; st.param.b64 [p], 8; call.uni (q), malloc, (p);}",
            "it allocates memory",
        ),
    ],
)
def test_kernels_with_objects_of_one_device_are_not_compared(body, why):
    ptx = (
        ".extern .func (.param .b64 q) malloc (.param .b64 p);\n.visible .entry k(.param .u64 x) {\n"
        ".reg .b64 %a; .reg .b32 %r; .reg .f32 %f<4>;\n"
        f"ld.param.u64 %a, [x];\n{body}\nret;\n}}\n"
    )
    program = Program(plain(), checks="off")
    program.launch(program.kernel(ptx, "k"), program.array(TENTHS))
    assert f"k is not compared: {why}\n" in refused(program)


def test_the_address_of_a_variable_cannot_be_repeated():
    program = Program(plain())
    kernel = program.kernel(CHAIN + SCALE, "chain")
    total = program.ask(Request.VARIABLE, program.module, data=b"total").values[0]
    table = program.array(np.uint64([0, total]))
    assert program.launch(kernel, table, block=1).error == SUCCESS
    reason = refused(program)
    assert reason.splitlines()[0].endswith("may hold the address of variable total")


def test_registered_memory_of_the_host_cannot_be_repeated():
    program = Program(plain())
    file = os.memfd_create("test")
    os.ftruncate(file, PAGE)
    address = 0x7E00_0000_0000
    os.pwrite(file, struct.pack("=4f", 1, 2, 3, 4), 0)
    program.ask(Request.SHARE, PAGE, Kind.REGISTERED, address, file=file)
    x = program.array(TENTHS)
    kernel = program.kernel(SCALE, "scale")
    assert program.launch(kernel, x, 4, format="QI").error == SUCCESS
    assert program.held.equal == 1  # which it cannot reach
    program.launch(kernel, address, 4, format="QI")
    ((reason, numbers),) = program.held.refused.items()
    assert numbers == [2]
    assert "its parameters may hold the address of memory that the host registered" in reason


def test_a_chip_that_cannot_take_the_launch_is_said():
    program = scaled(Edited(Device(cc=(8, 0), checks="off")))
    assert "the target needs sm_90 or later" in refused(program)
    error = LaunchError("the GPU has no memory at 0x1000: OUT_OF_MEMORY\nwhy\nwhat to do")
    program = scaled(Fails(Device(), error), times=2)
    ((reason, numbers),) = program.held.refused.items()
    assert reason.startswith("scale is not compared: the GPU has no memory at 0x1000")
    assert numbers == [1, 2]  # each is tried


def test_a_chip_that_hangs_is_given_up():
    error = ChipTimeoutError("scale did not end on it within 1 seconds\ngone\nmore")
    program = scaled(Fails(Device(), error), times=3)
    (first, [one]), (second, others) = program.held.refused.items()
    assert (one, others) == (1, [2, 3])
    assert first.startswith("scale did not end on it within 1 seconds")
    assert "is gone\n" in second


def test_a_kernel_that_fails_on_the_chip_alone_is_a_finding():
    error = KernelFault("the kernel failed on it", "illegal address")
    program = scaled(Fails(Device(), error), times=2)
    (finding,) = program.report.findings
    assert finding.what == "the kernel failed on it"
    assert "try more schedules" in finding.advice
    assert finding.place.kernel == "scale"
    assert not program.report.clean
    assert list(program.held.refused.values()) == [[2]]


# A GPU, its process, and the command


class Gpu:
    """A device that is not simulated, with memory at any address; its one kernel adds 1 to each byte."""

    def __init__(self) -> None:
        self.memory: dict[int, Any] = {}
        self.done: list[Any] = []
        self.name = "a GPU"

    def load(self, ptx):
        self.done.append(("load", ptx.text))
        return self

    def place_of(self, variable):
        return {"total": 0x7000, "factor": 0x7100}[variable], 4

    def kernel(self, name):
        return partial(self.launch, name)

    def launch(self, name, *asked, **how):
        self.done.append((name, asked, how))
        for address in self.memory:
            self.memory[address] = self.memory[address] + np.uint8(1)

    def synchronize(self):
        self.done.append("wait")


class Array:
    def __init__(self, device, address, shape, dtype, keep=None):
        self.device, self.address, self.size = device, address, shape[0]
        assert dtype == np.uint8

    def upload(self, host):
        assert host.size == self.size
        self.device.memory[self.address] = host.copy()

    def download(self):
        return self.device.memory[self.address]


def test_a_gpu_has_memory_at_the_programs_addresses_and_variables_at_its_own(monkeypatch):
    kept = []
    monkeypatch.setattr("gpu.cuda.arrays.CudaArray", Array)
    monkeypatch.setattr(
        "gpu.cuda.placed.array_at", lambda device, at, size: Array(device, at, (size,), np.dtype(np.uint8))
    )
    monkeypatch.setattr("gpu.cuda.placed.keep_only", lambda device, ranges: kept.extend(ranges))
    chip, asked = Gpu(), Edited(Device(checks="off"))
    scaled(asked)
    (launch,) = asked.asked
    began = []
    after = repeated(chip, launch, lambda: began.append(len(chip.memory)))
    assert {*chip.memory} == {*launch.contents} - {"total", "factor"} | {0x7000, 0x7100}
    assert began == [len(launch.contents)]  # all is there before the launch
    assert sorted(kept) == [(key, 16) for key in launch.contents if isinstance(key, int)]
    assert {key: (data - 1).tolist() for key, data in after.items()} == {
        key: data.tolist() for key, data in launch.contents.items()
    }
    _, (name, (grid, block, *parameters), how), wait = chip.done
    assert (name, grid, block) == ("scale", (1, 1, 1), (32, 1, 1))
    assert parameters == [*launch.parameters]
    assert how == {"shared": 0, "cooperative": False, "cluster": None}
    assert wait == "wait"


@pytest.mark.slow
def test_a_device_in_a_process_of_its_own_repeats_launches():
    with closing(Apart(partial(Device, checks="off"), 60.0)) as chip:
        chip.start()
        program = scaled(chip, times=2)
        assert (program.held.equal, program.held.refused) == (2, {})


def test_options_of_two_devices_need_both(capsys):
    assert main(["exec", "--rtol", "1e-3", "--schedules", "2", "program.cu"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "--rtol, --schedules with --device sim",
        "these compare two devices",
        "give --device both",
    ]
    assert main(["exec", "--device", "both", "--bits", "--bound", "program.cu"]) == 2
    assert "equal bits allow no tolerance" in capsys.readouterr().err
    with pytest.raises(SchemeError, match=r'execute: device is a Device\n.*\npass device="both"'):
        execute(Path("program.cu"), device=Device())


def test_without_a_gpu_the_error_says_what_to_do(tmp_path, monkeypatch, capsys):
    def nothing(both):
        raise NoGpuError("no CUDA device can be used: none found\npass device=simwarp.Device()")

    monkeypatch.setattr("simwarp.exec.program.second_device", nothing)
    assert main(["exec", "--device", "both", str(tmp_path / "program.cu")]) == 2
    assert "--device both needs a GPU beside the simulator\ngive --device sim" in capsys.readouterr().err
