"""Each recipe of docs/contributing.md is followed in a copy of the sources."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("reference", "simwarp", "gpu", "tests", "docs", "pyproject.toml", "README.md")

pytestmark = pytest.mark.slow


class Tree:
    """A copy of the sources that counts the files a recipe touches."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.touched: set[str] = set()
        ignored = shutil.ignore_patterns("__pycache__", "*.pyc", "golden")
        for part in PARTS:
            source, target = ROOT / part, folder / part
            if source.is_dir():
                shutil.copytree(source, target, ignore=ignored)
            else:
                shutil.copy(source, target)
        (folder / "tests" / "golden").symlink_to(ROOT / "tests" / "golden")

    def write(self, path: str, text: str) -> None:
        """Write a new file."""
        assert not (self.folder / path).exists()
        (self.folder / path).write_text(text)
        self.touched.add(path)

    def append(self, path: str, text: str) -> None:
        """Append text to a file."""
        file = self.folder / path
        file.write_text(file.read_text() + text)
        self.touched.add(path)

    def insert(self, path: str, before: str, text: str) -> None:
        """Insert text before the only occurrence of a marker."""
        file = self.folder / path
        whole = file.read_text()
        assert whole.count(before) == 1, (path, before, whole.count(before))
        file.write_text(whole.replace(before, text + before))
        self.touched.add(path)

    def python(self, *arguments: str) -> str:
        """Run Python in the copy and return its output."""
        environment = {**os.environ, "PYTHONPATH": f"{self.folder}:{self.folder / 'tests'}"}
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def tests(self, path: str, selection: str) -> str:
        """Run some tests in the copy."""
        options = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-k", selection)
        return self.python("-m", "pytest", *options, path)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def test_a_new_instruction_needs_a_row_and_a_twin(tree: Tree) -> None:
    tree.append(
        "simwarp/ptx/instructions/integer.py",
        '\n\n@row("zeros.T", "d:u32 = a:T", T="b32 b64", section="9.7.1.99", summary="how many bits are 0")\n'
        "def zeros(form: Form, a: Any) -> Any:\n"
        "    return lanes.popc(~a)\n",
    )
    tree.append(
        "tests/oracles/scalar_ptx.py",
        "\n\ndef zeros(opcode, a):\n    return int(opcode[-2:]) - a.bit_count()\n\n\n"
        'TWINS["zeros"] = zeros\n',
    )
    passed = tree.tests(
        "tests/meta/test_rows.py", "twin or every_row or evidence or (form and 9.7.1 and not slow)"
    )
    assert " passed" in passed
    passed = tree.tests("tests/unit/ptx/test_ptx_rows.py", "zeros")
    assert " passed" in passed
    counted = tree.python("-m", "simwarp", "coverage", "--json")
    assert "zeros.b32" in counted
    assert len(tree.touched) == 2


@pytest.mark.gate
def test_a_new_kind_of_step_needs_an_object_an_entry_a_row_and_a_twin(tree: Tree) -> None:
    """The new kind loads a word and leaves 0 there, as two accesses: the race detector sees both."""
    tree.append("simwarp/ptx/kinds.py", '\nTAKE = Kind("take", access=True, loads=True, writes=True)\n')
    tree.write(
        "simwarp/engine/memory/taking.py",
        '"""A load that leaves 0."""\n\n'
        "import numpy as np\n"
        "from simwarp.engine.memory.accesses import read_memory, write_memory\n"
        "from simwarp.ptx.rows import DTYPES\n\n\n"
        "def take(chunk, step):\n"
        '    """Load a word per lane, and write 0."""\n'
        "    dtype = DTYPES[step.form.T]\n"
        "    (values,) = read_memory(chunk, step, dtype, 1)\n"
        "    write_memory(chunk, step, np.zeros(chunk.mask.shape, dtype))\n"
        "    step.destinations[0](chunk, values)\n",
    )
    operations = "simwarp/engine/operations.py"
    tree.insert(operations, "from simwarp.engine.schedule ", "from simwarp.engine.memory import taking\n")
    tree.insert(operations, "    kinds.ATOMIC: ", "    kinds.TAKE: taking.take,\n")
    tree.append(
        "simwarp/ptx/instructions/memory.py",
        "\n\nfrom simwarp.ptx.kinds import TAKE\n\n"
        'row("take{.global|.shared}.T", "d:T = [a]", T="b32 b64", kind=TAKE, section="9.7.9.99", '
        'summary="load and leave 0")(nothing)\n',
    )
    tree.append("tests/oracles/scalar_ptx.py", '\n\nTWINS["take"] = lambda opcode, old: (old, 0)\n')
    passed = tree.tests("tests/unit/ptx/test_ptx_rows.py", "take")
    assert " passed" in passed
    passed = tree.tests("tests/meta/test_kinds.py", "executes or control")
    assert " passed" in passed
    code = (
        "import simwarp, numpy as np\n"
        "ptx = '''.version 8.8\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 x) {\n"
        ".reg .b32 %r<2>; .reg .b64 %a<2>; ld.param.u64 %a0, [x];\n"
        "mov.u32 %r0, %tid.x; shr.u32 %r0, %r0, BY;\n"
        "mad.wide.u32 %a0, %r0, 4, %a0; take.global.b32 %r1, [%a0]; ret; }'''\n"
        "for by in '06':\n"
        "    device = simwarp.Device(checks='report')\n"
        "    x = device.upload(np.ones(64, np.int32))\n"
        "    device.load(ptx.replace('BY', by)).kernel('k')((1, 1, 1), (64, 1, 1), x)\n"
        "    print(int(x.download().sum()), sorted({type(fault).__name__ for fault in device.faults}))\n"
    )
    assert tree.python("-c", code) == "0 []\n63 ['Race']\n"
    assert "take.global.b64" in tree.python("-m", "simwarp", "coverage", "--json")
    assert len(tree.touched - {"simwarp/engine/memory/taking.py"}) == 4


def test_a_new_command_needs_a_file_and_one_line(tree: Tree) -> None:
    tree.write(
        "simwarp/cli/warps.py",
        '"""How many warps a number of threads fills."""\n\n'
        "import json\n"
        "from typing import Annotated\n\n"
        "import typer\n\n\n"
        "def warps_command(\n"
        '    threads: int, as_json: Annotated[bool, typer.Option("--json")] = False\n'
        ") -> None:\n"
        '    """How many warps a number of threads fills."""\n'
        "    warps = -(-threads // 32)\n"
        '    typer.echo(json.dumps({"warps": warps}) if as_json else f"{warps} warps")\n',
    )
    line = '        "warps": ("warps.warps_command", "How many warps a number of threads fills."),\n'
    tree.insert("simwarp/cli/commands.py", '        "layout": (', line)
    assert tree.python("-m", "simwarp", "warps", "65", "--json") == '{"warps": 3}\n'
    assert "warps" in tree.python("-m", "simwarp", "--help")
    assert len(tree.touched) == 2


def test_a_new_chip_needs_an_entry_and_one_of_production(tree: Tree) -> None:
    entry = "Chip((10, 3), 64 * KIB, 40 * KIB, warps=32, blocks=16, sums=Sums(25, 32, 13)),"
    tree.insert("simwarp/chips/chips.py", "        Chip((12, 0),", f"        {entry}\n")
    entry = 'CHIPS[10, 3] = Chip(("btc2", "bmm32"), ("btc1", "bconv32"), "has")'
    tree.append("gpu/chips.py", f"\n\n{entry}\n")
    code = (
        "import gpu.bconv, simwarp, numpy as np\n"
        "from gpu.bmm.choice import fastest_scheme\n"
        "from gpu.compile import compile\n"
        "device = simwarp.Device(cc=(10, 3))\n"
        "product = fastest_scheme(device.compute_capability, (9, 9, 9), 'int32', 'real')\n"
        "images, filters = (1, 8, 8, 128), (3, 3, 128, 128)\n"
        "convolution = gpu.bconv.plan(images, filters, compute_capability=(10, 3)).scheme\n"
        "print(product.name, convolution.name)\n"
        "source = 'extern \"C\" __global__ void f(int* x) { extern __shared__ int s[]; *x = 1; }'\n"
        "kernel = device.load(compile(source, 'f.cu').text).kernel('f')\n"
        "x = device.allocate((1,), np.int32)\n"
        "kernel((1, 1, 1), (1, 1, 1), x, shared=40 << 10)\n"
        "try:\n"
        "    kernel((1, 1, 1), (1, 1, 1), x, shared=41 << 10)\n"
        "except Exception as error:\n"
        "    print(type(error).__name__, x.download().tolist())\n"
    )
    assert tree.python("-c", code) == "btc2 btc1\nLimitError [1]\n"
    assert len(tree.touched) == 2


@pytest.mark.gate
def test_a_new_check_needs_an_exception_a_kind_and_a_place(tree: Tree) -> None:
    tree.append(
        "simwarp/faults.py",
        "\n\nclass PartialWarp(KernelFault):\n"
        '    """A block whose last warp is not full."""\n\n    check = "partial"\n',
    )
    tree.insert("simwarp/checks.py", '    "unreachable",\n    "exits",\n)', '    "partial",\n')
    place = "        executed = 0\n"
    found = 'self.found(PartialWarp("the last warp is not full", f"{self.threads} threads"))'
    engine = "simwarp/engine/launch.py"
    tree.insert(engine, place, f"        if self.threads % WARP_SIZE:\n            {found}\n")
    tree.insert(engine, "from simwarp.faults import ", "from simwarp.faults import PartialWarp\n")
    code = (
        "import simwarp, numpy as np\n"
        "from gpu.compile import compile\n"
        "ptx = compile('extern \"C\" __global__ void f(int* x) { x[threadIdx.x] = 1; }', 'f.cu').text\n"
        "def faults(threads, **options):\n"
        "    device = simwarp.Device(**options)\n"
        "    kernel = device.load(ptx).kernel('f')\n"
        "    try:\n"
        "        kernel((1, 1, 1), (threads, 1, 1), device.allocate((64,), np.int32))\n"
        "    except simwarp.faults.PartialWarp as fault:\n"
        "        return fault.check\n"
        "    return [fault.check for fault in device.faults]\n"
        "off, report = {'checks': {'partial': 'off'}}, {'checks': {'partial': 'report'}}\n"
        "print(faults(33), faults(32), faults(33, **off), faults(33, **report))\n"
    )
    assert tree.python("-c", code) == "partial [] [] ['partial']\n"
    tree.insert("simwarp/run/planters.py", '"dependents": "it takes', '"partial": "the launch has it", ')
    rule = '    "partial": Rule("A block whose last warp is not full", "use a multiple of 32"),\n'
    tree.insert("simwarp/findings/rules.py", '    "bounds": Rule(', rule)
    tree.insert("tests/support/ways_table.py", '"division", "members"', '"partial", ')
    tested = (
        "tests/unit/run/test_self_check.py::test_each_kind_has_a_planter_or_a_reason",
        "tests/unit/races/test_findings.py::test_each_check_has_a_rule",
        "tests/unit/races/test_ways.py::test_every_kind_of_check_has_a_column_or_judges_something_else",
    )
    tree.python("-m", "pytest", "-q", "-p", "no:cacheprovider", *tested)
    assert len(tree.touched) == 6


def test_a_new_fault_of_a_machine_needs_a_class_and_its_name(tree: Tree) -> None:
    """The new fault fails every second copy, and slows the others down."""
    tree.append(
        "simwarp/machine/injections.py",
        "\n\n@dataclass(frozen=True)\n"
        "class LosesCopies(Injection):\n"
        '    """Every second copy of a device fails, and the others take twice as long."""\n\n'
        "    device: int\n\n"
        "    def fails_copy(self, route, number):\n"
        "        return number % 2 == 1\n\n"
        "    def slows(self, route):\n"
        "        return 2.0 if route else 1.0\n",
    )
    tree.append(
        "simwarp/machine/__init__.py",
        '\nfrom simwarp.machine.injections import LosesCopies\n\n__all__ += ["LosesCopies"]\n',
    )
    code = (
        "import simwarp\n"
        "from simwarp.machine import CopyError, LosesCopies\n"
        "from support.machines import column, pinned, small, spans, tile\n"
        "machine = simwarp.Machine(small(2), injections=[LosesCopies(1)])\n"
        "a = pinned(machine, column())\n"
        "for device in (0, 0, 1, 1):\n"
        "    machine.copy_in(machine.stream(device), a, tile(machine, device))\n"
        "try:\n"
        "    machine.run([])\n"
        "except CopyError as error:\n"
        "    print(error.device, error.seconds, sorted(spans(machine)))\n"
    )
    spans = [("in", 0.0, 5.0), ("in", 0.0, 10.0), ("in", 5.0, 10.0)]
    assert tree.python("-c", code) == f"1 20.0 {spans}\n"
    assert len(tree.touched) == 2


def test_a_new_statement_of_the_fuzzer_needs_a_class_its_name_and_a_purpose(tree: Tree) -> None:
    """The new statement has a row that programs lacked."""
    tree.append(
        "simwarp/lab/fuzz/statements/warp.py",
        "\n\nclass Transpose(Instruction):\n"
        '    """Each warp transposes a matrix."""\n\n'
        '    weight, purpose, group = 20, "transpose", "block"\n\n'
        "    @classmethod\n"
        "    def draw(cls, maker, scope):\n"
        '        return cls(maker.opcode("transpose"), maker.vector("b32", 1), maker.vector("b32", 1))\n',
    )
    tree.append(
        "simwarp/lab/fuzz/statements/__init__.py",
        "from simwarp.lab.fuzz.statements.warp import Transpose\n\nKINDS += (Transpose,)\n",
    )
    purpose = '    if row.base == "movmatrix":\n        return "transpose"\n'
    tree.insert(
        "simwarp/lab/fuzz/vocabulary.py", "    if row.kind is kinds.FENCE and len(row.sources)", purpose
    )
    code = (
        "import simwarp\n"
        "from pathlib import Path\n"
        "from simwarp.lab import fuzz\n"
        "from simwarp.lab.fuzz.program import walk\n"
        "def kinds(program):\n"
        "    return [type(statement).__name__ for statement, _ in walk(program.body)]\n"
        "programs = (fuzz.generate(0, k) for k in range(20))\n"
        "some = [program for program in programs if 'Transpose' in kinds(program)][:2]\n"
        "digests = fuzz.outputs(simwarp.Device(), some)\n"
        "mutants = [fuzz.mutate(program) for program in some]\n"
        "print(fuzz.outputs(simwarp.Device(chunk_lanes=32), mutants) == digests != [b'', b''])\n"
        "small = fuzz.shrink(some[0], lambda program: 'Transpose' in kinds(program))\n"
        "print(fuzz.coverage(some)['movmatrix'] > 0, kinds(small), small.body[0].sources)\n"
        "from simwarp.lab.subjects.programs import load\n"
        "recorded = load(Path('tests/golden/sm_90/fuzz.npz'))\n"
        "print(all('Transpose' not in kinds(recorded.program(k)) for k in range(50)))\n"
    )
    assert tree.python("-c", code) == "True\nTrue ['Transpose'] ('%r0',)\nTrue\n"
    assert len(tree.touched) == 3


@pytest.mark.gate
@pytest.mark.skipif(os.name != "posix" or not shutil.which("cc"), reason="the runtime needs a C compiler")
def test_a_new_function_of_the_cuda_runtime_needs_itself_and_what_it_asks(tree: Tree) -> None:
    """The new function asks how many findings there are, which no request did."""
    tree.append(
        "simwarp/exec/runtime/errors.c",
        "\ncudaError_t cudaLogsCurrent(cudaLogIterator *found, unsigned flags)\n"
        "{\n"
        "    struct call call = {.request = ASK_FINDINGS};\n"
        "    cudaError_t error = flags ? cudaErrorInvalidValue : ask(&call);\n"
        "    *found = (cudaLogIterator)call.values[0];\n"
        "    FINISH(error);\n"
        "}\n",
    )
    request = '    FINDINGS = 41\n    """→ the number of findings."""\n'
    tree.insert("simwarp/exec/protocol.py", "\n\nclass Kind(IntEnum):", request)
    tree.append(
        "simwarp/exec/server.py",
        "\n    def _findings(self, message: Message) -> Reply:\n"
        "        return Reply(values=[len(self.report.findings)])\n",
    )
    script = (
        "import ctypes\n"
        "runtime, count = ctypes.CDLL('libcudart.so.13'), ctypes.c_uint()\n"
        "for flags in (0, 0, 1):\n"
        "    error = runtime.cudaLogsCurrent(ctypes.byref(count), flags)\n"
        "    print(error, count.value, flush=True)\n"
        "    runtime.cudaFree(ctypes.c_void_p(256))\n"
        "print(runtime.cudaLogsUnregisterCallback(None), flush=True)\n"
    )
    (tree.folder / "script.py").write_text(script)
    code = (
        "from pathlib import Path\n"
        "from simwarp.exec import execute\n"
        "report = execute(Path('script.py'), quiet=True)\n"
        "print(dict(report.missing), report.failed['cudaLogsCurrent', 'cudaErrorInvalidValue'])\n"
    )
    assert tree.python("-c", code).splitlines() == [
        *("0 0", "0 1", "1 0", "801"),
        "{'cudaLogsUnregisterCallback': 1} 1",
    ]
    assert len(tree.touched) == 3


@pytest.mark.gate
def test_a_new_scheme_needs_an_entry_and_a_listing(tree: Tree) -> None:
    """The new kernel is `bmm.cu` with fewer rows per warp."""
    entry = 'Scheme("bmmq32", 32, 8, "four warps for each tile of 32 x 32"),'
    tree.insert("gpu/bmm/schemes.py", '        Scheme("bmm64", 64,', f"        {entry}\n")
    tree.append("simwarp/listings/__init__.py", '\nbmmq32 = bmms32\n__all__ += ["bmmq32"]\n')
    tree.insert("simwarp/verify/cases/bmm.py", '    "bmm64": listings', '    "bmmq32": listings.bmmq32,\n')
    code = (
        "import numpy as np, gpu, simwarp, reference\n"
        "a, b = np.random.default_rng(1).normal(size=(2, 70, 70))\n"
        "c = gpu.bmm(a[:, :33], b[:33], scheme='bmmq32', device=simwarp.Device())\n"
        "print((c == reference.bmm(a[:, :33], b[:33])).all())\n"
    )
    assert tree.python("-c", code) == "True\n"
    report = tree.python("-m", "simwarp", "verify", "--case", "bmm", "--inputs", "10", "--json")
    assert '"mismatches": 0' in report
    assert len(tree.touched) == 3


def test_a_new_sparse_format_needs_a_type_a_module_and_an_entry_per_tier(tree: Tree) -> None:
    """The new format stores coordinates with the last mode first and uses the kernel of `Coo`."""
    tree.append(
        "reference/types/sparse.py",
        '\n\nclass Backwards(Coo):\n    """Coordinates, the last one first."""\n',
    )
    builder = (
        "def backwards(coo):\n"
        '    """The last nonzero first."""\n'
        "    return Backwards(coo.coords[:, ::-1].copy(), coo.values[::-1].copy(), coo.shape)\n\n\n"
    )
    for folder, registry, of_host, more in (
        ("reference/sparse/formats", "__init__", "coordinates", "paper_bytes=lambda t: 4 * t.coords.size"),
        ("gpu/mttkrp/formats", "registry", "columns", 'work=COO.work, source="coo.cu", summary="as Coo"'),
    ):
        package = folder.replace("/", ".")
        tree.write(
            f"{folder}/backwards.py",
            '"""Coordinates, the last one first."""\n\n'
            f"from {package}.entry import Format\n"
            f"from {package}.coo import FORMAT as COO\n"
            "from reference.types.sparse import Backwards\n\n\n"
            f"{builder}"
            f"FORMAT = Format(\n    Backwards, {of_host}=COO.{of_host},"
            f' builders={{"backwards": backwards}}, {more}\n)\n',
        )
        module = f"{folder}/{registry}.py"
        tree.insert(module, f"from {package}.coo", f"from {package}.backwards import FORMAT as BACKWARDS\n")
        tree.insert(module, "COO, CSF, FIBERS", "BACKWARDS, ")
    code = (
        "import numpy as np, gpu, reference, simwarp\n"
        "from reference.sparse import to_coo\n"
        "from reference.types import Coo\n"
        "coo = Coo([[0, 1, 3], [2, 0, 1]], [5.0, 7.0, 2.0], (4, 3))\n"
        "factors = [np.arange(8.0).reshape(4, 2), np.arange(6.0).reshape(3, 2)]\n"
        "wanted = reference.mttkrp(coo, factors, 0)\n"
        "ready = gpu.prepare(coo, scheme='backwards', device=simwarp.Device())\n"
        "print(ready, (gpu.mttkrp(ready, factors, 0) == wanted).all())\n"
        "made = reference.sparse.FORMATS['backwards'](coo)\n"
        "print((reference.mttkrp(made, factors, 0) == wanted).all(), to_coo(made).values.tolist())\n"
    )
    answer = tree.python("-c", code)
    assert answer == "PreparedSparse(Backwards of shape (4, 3)) True\nTrue [5.0, 7.0, 2.0]\n"
    assert len(tree.touched) == 5


@pytest.mark.gate
def test_a_new_packing_format_needs_one_entry(tree: Tree) -> None:
    """Words of 256 bits, and images whose columns come first."""
    types = "reference/types/packed.py"
    tree.insert(types, "]\nFirst: TypeAlias", ", 256")
    tree.insert(types, "]\nFilterLayout: TypeAlias", ', "WHNC"')
    tree.insert(types, '    "HWOI": Arrangement', '    "WHNC": Arrangement(_IMAGES, (2, 1, 0, 3), 3),\n')
    code = (
        "import numpy as np, gpu, reference, simwarp\n"
        "from hypothesis import find\n"
        "from simwarp import draw\n"
        "from simwarp.testing.strategies import bit_matrices, layouts\n"
        "x = np.random.default_rng(1).choice([-1, 1], (30, 520)).astype('int8')\n"
        "form, device = {'layout': 'column', 'word': 256, 'first': 'msb'}, simwarp.Device()\n"
        "packed = reference.pack(x, **form)\n"
        "assert packed.words.shape == (3, 30, 4) and packed.words[2, 4, 3] >> 63 == (x[4, 512] > 0)\n"
        "assert (reference.unpack(packed) == (x > 0)).all()\n"
        "assert (gpu.bmm(packed, x.T, device=device) == x.astype(int) @ x.T).all()\n"
        "assert 'column-major-256' in draw.layout(rows=3, columns=9, **form)\n"
        "assert find(layouts(), lambda form: form['word'] == 256)['layout'] == 'row'\n"
        "assert find(bit_matrices(2, 2, word=256), lambda x: True).words.shape == (1, 2, 4)\n"
        "x = x.reshape(2, 3, 5, -1)\n"
        "images = reference.pack_tensor(x, layout='WHNC', word=256)\n"
        "assert images.words.shape == (5, 3, 2, 3, 4)\n"
        "assert images.words[4, 2, 1, 0, 0] & 1 == (x[1, 2, 4, 0] > 0)\n"
        "assert (reference.unpack_tensor(images) == (x > 0)).all()\n"
        "for call in (lambda: reference.pack(x, word=16), lambda: reference.pack_tensor(x, layout='NCHW'),\n"
        "             lambda: gpu.bconv2d(images, np.ones((1, 1, 520, 1)), device=device)):\n"
        "    try:\n"
        "        call()\n"
        "    except reference.errors.FormatError as error:\n"
        "        print(str(error).splitlines()[0])\n"
        "    except reference.errors.SchemeError as error:\n"
        "        print(str(error).splitlines()[2])\n"
    )
    assert tree.python("-c", code).splitlines() == [
        "choose 32 or 64 or 128 or 256",
        "choose 'NHWC' or 'HWNC' or 'HWNC-FSB' or 'WHNC' or 'HWOI' or 'HWIO' or 'HWOI-FSB'",
        "x of (N, H, W, C) = (2, 3, 5, 520) is packed with layout='WHNC', first='lsb'",
    ]
    report = tree.python("-m", "simwarp", "verify", "--case", "pack-256", "--inputs", "4", "--json")
    assert '"mismatches": 0' in report
    assert tree.touched == {types}


def test_a_new_blas_routine_needs_a_row_its_names_and_a_definition(tree: Tree) -> None:
    """The new routine is GEMM whose sums run from the end of K; so it has steps of its own, too."""
    row = (
        '    Row("gemmr", "trans_a trans_b m n k alpha a lda b ldb beta c ldc",\n'
        '        "trans_a trans_b", "general", "alpha op(A) op(B) + beta C", _PAIR, "[4.0, 8.0]"),\n'
    )
    tree.insert("gpu/blas3/table.py", '    Row("symm"', row)
    names = [f"{prefix}gemmr" for prefix in "sdcz"]
    tree.append("gpu/blas3/doors.py", f"\n__all__ += {names}\n")
    tree.append("gpu/blas3/doors.py", "".join(f'{name} = door("{name}")\n' for name in names))
    steps = (
        '    if problem.routine == "gemmr":\n'
        "        for k in along[::-1]:\n"
        '            yield Step(kernel, (stored("a", row, k, a), stored("b", k, column, b)))\n'
        "        return\n"
    )
    tree.insert("gpu/blas3/products.py", "    for k in along:\n        yield Step(kernel, (st", steps)
    definition = (
        "@Bounded(products=1)\n"
        'def gemmr(alpha, a, b, beta=0.0, c=None, *, trans_a="N", trans_b="N"):\n'
        '    """GEMM from the end of K."""\n'
        "    return gemm(alpha, a, b, beta, c, trans_a=trans_a, trans_b=trans_b)\n\n\n"
    )
    reference = "reference/blas3/products.py"
    tree.insert(reference, "@Bounded()\ndef symm(", definition)
    tree.insert(reference, '"hemm", "her2k"', '"gemmr", ')
    code = (
        "import doctest, inspect, numpy as np, gpu.blas3, reference.blas3, simwarp\n"
        "from simwarp.verify.cases.blas3 import CASES, VARIANTS\n"
        "from simwarp.verify.compare import check, simulator\n"
        "from gpu.blas3 import sgemmr, zgemmr\n"
        "print(str(inspect.signature(zgemmr)).partition(', *')[0])\n"
        "example = doctest.DocTestFinder().find(sgemmr, 'sgemmr', globs={})[0]\n"
        "print(doctest.DocTestRunner().run(example).failed, 'dgemmr' in dir(gpu.blas3))\n"
        "step = next(iter(gpu.blas3.explain('dgemmr', 64, tile=32).tasks[0].outputs[0].steps))\n"
        "print(step.reads[0].columns)\n"
        "new = [k for k, (name, _) in enumerate(VARIANTS) if name.endswith('gemmr')]\n"
        "wrong = [check(CASES[0], 0, k, {'simulator': simulator}).mismatches for k in new[::5]]\n"
        "print(len(new), wrong == [[]] * len(wrong))\n"
        "try:\n"
        "    gpu.blas3.dgemmr(1.0, np.ones((2, 3)), np.ones((4, 5)))\n"
        "except simwarp.errors.ShapeError as error:\n"
        "    print(str(error).splitlines()[0])\n"
        "a, b = np.full((2, 3), 0.1), np.full((3, 2), 0.3)\n"
        "errors = [reference.blas3.error_of('gemmr', a @ b * x, 1.0, a, b) for x in (1, 1 + 1e-14)]\n"
        "print(errors[0] <= 1 < errors[1])\n"
    )
    assert tree.python("-c", code).splitlines() == [
        "(alpha, a, b, beta=0.0, c=None, trans_a=0, trans_b=0, overwrite_c=0",
        "0 True",
        "(32, 64)",
        "36 True",
        "dgemmr, argument 9 (b): shape (4, 5)",
        "True",
    ]
    assert len(tree.touched) == 4


@pytest.mark.gate
def test_a_new_network_layer_needs_a_class_an_answer_what_computes_it_and_a_draw(tree: Tree) -> None:
    """The new layer turns the sign of integers."""
    layers = "reference/types/layers.py"
    tree.insert(
        layers,
        "@dataclass(frozen=True, eq=False)\nclass PadChannels(",
        "@dataclass(frozen=True, eq=False)\n"
        "class Negate(Layer):\n"
        '    """Integers with the other sign, times a number of each channel.\n\n'
        "    Attributes\n    ----------\n    scale : array of int32, (C,)\n"
        '    """\n\n'
        "    scale: Any = field(metadata=OF_INT32)\n\n"
        "    def gives(self, value: Value) -> Value:\n"
        '        check_value(value, "integers")\n'
        '        scale = check_vectors(self, value.shape[-1])["scale"]\n'
        "        ends = np.stack([-scale * value.low, -scale * value.high])\n"
        '        return Value("integers", value.shape, int(ends.min()), int(ends.max()))\n\n\n',
    )
    tree.insert(layers, "    PadChannels,\n    Residual,\n)", "    Negate,\n")
    tree.insert(layers, '    "PadChannels",\n', '    "Negate",\n')
    answers = "reference/bnn/inference.py"
    tree.insert(
        answers, "    PadChannels: _pad_channels,\n", "    Negate: lambda layer, x: -layer.scale * x,\n"
    )
    tree.insert(answers, "    PadChannels,\n", "    Negate,\n")
    stages = "gpu/bnn/stages.py"
    entry = "    Negate: lambda layer, channels: Affine(-layer.scale, np.zeros(channels, np.int32)),\n"
    tree.insert(stages, "}\n" + '"""Layers without code', entry)
    tree.insert(stages, "PadChannels, Pool, Residual", "Negate, ")
    cases = "simwarp/verify/cases/bnn.py"
    tree.insert(
        cases,
        "    _line_of_pools,\n",
        "    lambda draw, value: Negate(_numbers(draw, value.shape[-1], 5)),\n",
    )
    tree.insert(cases, "    Network,\n", "    Negate,\n")
    code = (
        "import numpy as np, gpu.bnn, reference.bnn as bnn, simwarp\n"
        "from reference import pack\n"
        "ones, none = np.ones(2, np.int32), np.zeros(2, np.int32)\n"
        "dense = bnn.Dense(pack([[1.0, -1.0], [-1.0, 1.0]], layout='row'))\n"
        "layers = bnn.Negate(3 * ones), bnn.Clip(-9), dense\n"
        "logits = np.ones(2, np.float32), np.zeros(2, np.float32)\n"
        "net = bnn.Network('negated', bnn.Pixels((2,), ones, none), layers, *logits)\n"
        "bnn.save(net, 'net.safetensors')\n"
        "net, x = bnn.load('net.safetensors'), np.array([[1, 200]], np.uint8)\n"
        "found = [bnn.run(net, x)]\n"
        "for way in ('layers', 'whole'):\n"
        "    found.append(gpu.bnn.run(net, x, way=way, device=simwarp.Device()))\n"
        "print([each.sums.tolist() for each in found])\n"
    )
    assert tree.python("-c", code) == "[[[6, -6]], [[6, -6]], [[6, -6]]]\n"
    assert "Negate" in tree.python("-m", "simwarp", "net", "info", "net.safetensors")
    report = tree.python("-m", "simwarp", "verify", "--case", "bnn-layers", "--inputs", "4", "--json")
    assert '"mismatches": 0' in report
    assert len(tree.touched) == 4


def test_a_new_figure_of_a_paper_needs_an_entry(tree: Tree) -> None:
    """The new figure counts the words of packed rows; one printed number is compared, with its reason."""
    entries = "simwarp/lab/papers/bstc.py"
    tree.append(
        entries,
        "\n\ndef _words(making):\n"
        "    from simwarp.lab.papers.entries import Made\n\n"
        "    making.progress(0, 1)\n"
        "    return Made([{'word': word, 'words': -(-70 // word)} for word in (32, 64)], '70 bits')\n\n\n"
        "_WORDS = Item('figure', ('99',), 'words', {'sim': _words}, ('word',), {(64,): {'words': 3.0}},"
        " {'words': 'print counts the next one'})\n"
        "PAPER = Paper(PAPER.name, PAPER.title, (*PAPER.items, _WORDS))\n",
    )
    command = ("-m", "simwarp", "paper", "bstc")
    shown = tree.python(*command, "--figure", "99").splitlines()
    assert shown[1] == "what the simulator makes of it: 70 bits"
    assert shown[4].split() == ["64", "3", "2", "0.67"]
    assert shown[5] == "words: more than 20 % from print; print counts the next one"
    assert any(line.startswith("figure 99 ") for line in tree.python(*command).splitlines())
    assert tree.touched == {entries}
