"""Arguments by name: parameter names of the source, and their binding to arguments."""

import numpy as np
import pytest

from simwarp.cli import main
from simwarp.faults import LaunchError
from simwarp.ptx.mangled_names import choose, listed, parameter_types, plain, readable
from simwarp.ptx.syntax import Function, Instruction, SourceLine, Variable
from simwarp.run import Given, Out, load, run
from simwarp.run.binding import bind
from simwarp.run.parameters import definitions, parameter_names

SUB = """\
extern "C" __global__ void sub(const float* a, const float* b, float* c, int n) {
    int i = threadIdx.x; if (i < n) c[i] = a[i] - b[i]; }
"""
HEAD = ".version 9.0 .target sm_90 .address_size 64"


@pytest.fixture
def write(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write_text(name, text):
        (tmp_path / name).write_text(text)
        return tmp_path / name

    return write_text


# Parameter names in the source


@pytest.mark.parametrize(
    ("head", "name", "names"),
    [
        ("void f(int n, float* x)", "f", ("n", "x")),
        ("void f()", "f", ()),
        ("void f(void)", "f", ()),
        ("void __launch_bounds__(256, 2) f(float *__restrict__ x)", "f", ("x",)),
        ("__launch_bounds__(MOST(1)) static void f(const int n) __launch_bounds__(32)", "f", ("n",)),
        ("void f(const unsigned long long n, unsigned m)", "f", ("n", "m")),
        ("void f(int, float* const, Foo, const ns::Foo, unsigned)", "f", ("", "", "", "", "")),
        ("void f(Pair<int, Pair<int, int>> p, ns::T q = ns::T{1, 2}, int r = g(1, 2))", "f", ("p", "q", "r")),
        ("void f(int (*g)(int, int), float (&x)[3], const int y[4][4])", "f", ("g", "x", "y")),
        ("void f(/* int a, */ int b, // int c\n int d)", "f", ("b", "d")),
        ("void f(int a,\n#ifdef A\n int b\n#else\n int c\n#endif\n)", "f", None),
        ("void f(int a)\n#ifdef A\n;\n#endif\n", "f", None),
        ("void f(const __grid_constant__ struct S s, [[maybe_unused]] int n)", "f", ("s", "n")),
        ("void f(T... args)", "f", None),
        ("void f(POINTER(x), int n)", "f", None),
        ("void f<float>(float* x)", "f", ("x",)),
        ("void ns::g(int \\\n n)", "ns::g", ("n",)),
    ],
)
def test_kernel_heads_are_parsed(head, name, names):
    assert [(d.name, d.parameters) for d in definitions(f"__global__ {head} {{}}")] == [(name, names)]


@pytest.mark.parametrize(
    "text",
    [
        "#if A\n__global__ void f(int a, int b)\n#else\n__global__ void f(int b, int a)\n#endif\n{ }",
        "#define K(name) __global__ void name(int* x) { *x = 1; }\nK(f)",
        "#define K(n) n\n__global__ void K(f)(int* x) {}",
        "#define HEAD(x) void f(x)\n__global__ HEAD(int n) {}",
        "// __global__ void f(int n) {}",
        '/* __global__ void f(int n) {} */ const char* s = "__global__ void f(int n) {}";',
        'const char* s = R"(__global__ void f(int n) {})";',
        "#define N m\n__global__ void f(int N) {}",
        "__global__ void f(int",
        "__global__ void f(int n",
        "__global__",
    ],
)
def test_unreadable_kernel_heads_are_refused(text):
    assert not [found for found in definitions(text) if found.parameters]


def test_kernel_definitions_have_scope_and_lines():
    text = """\
namespace a::b { inline namespace c {
struct S { int x; };
__global__ void f(int n);
} namespace { __global__ void g(int m) { if (m) { }
} } }
namespace short_for = a::b;
extern "C" { __global__ void h(int k) { } }
"""
    found = {d.name: (d.parameters, d.first, d.last, d.has_body) for d in definitions(text)}
    assert found == {
        "a::b::c::f": (("n",), 3, 3, False),
        "a::b::g": (("m",), 4, 5, True),
        "h": (("k",), 7, 7, True),
    }


def entry(name, count, *lines):
    steps = [Instruction("ret", (), None, 1, "ret;", SourceLine("k.cu", line)) for line in lines]
    return Function(
        name, [Variable(f"{name}_param_{i}", "param", "u32") for i in range(count)], 1, instructions=steps
    )


TWO = "__global__ void f(int a) {}\n__global__ void f(float b) {}\n__global__ void f(int c, int d) {}\n"


@pytest.mark.parametrize(
    ("text", "kernel", "names"),
    [
        (TWO, entry("_Z1fi", 1, 1), ("a",)),
        (TWO, entry("_Z1ff", 1, 2), ("b",)),
        (TWO, entry("_Z1fii", 2, 3), ("c", "d")),
        (TWO, entry("_Z1fii", 1, 3), ()),  # the source says two
        (TWO.replace("\n", " "), entry("_Z1fi", 1, 1), ()),  # two in one line
        (TWO, entry("_Z1gi", 1, 1), ()),
        (TWO, entry("_Z1fi", 1, 9), ()),  # made by a macro elsewhere
        ("__global__ void f(int a);\n__global__ void f(int b) {}", entry("_Z1fi", 1, 2), ("b",)),
        ("namespace n { __global__ void f(int a) {} }", entry("_Z1fi", 1, 1), ()),
        ("namespace n { __global__ void f(int a) {} }", entry("_ZN1n1fEi", 1, 1), ("a",)),
        ('extern "C" { namespace n { __global__ void f(int a) {} } }', entry("f", 1, 1), ("a",)),
        ("template <class T> __global__ void f(T a) {}", entry("_Z1fIiEvT_", 1, 1), ("a",)),
        (
            "template <class T>\n__global__ void f(T a) {}\n__global__ void f(int b) {}",
            entry("_Z1fi", 1, 3),
            ("b",),
        ),
        (
            "#if A\n__global__ void f(int a, int b)\n{}\n#else\n__global__ void f(int b, int a)\n{}\n#endif",
            entry("_Z1fii", 2, 6),
            ("b", "a"),
        ),
        ("__global__ void f(int a) {}", entry("f", 1), ("a",)),  # compiled without lines
        ("__global__ void f(int a) {}\n__global__ void f(long b) {}", entry("f", 1), ()),
    ],
)
def test_a_compiled_kernel_is_matched_with_its_definition(text, kernel, names):
    assert parameter_names(kernel, {"k.cu": text}) == names


def test_parameter_names_of_compiled_kernels_are_found(write):
    write(
        "in.cuh",
        "#pragma once\nnamespace in { __global__ void h(int* x, int h) {\n *x = h; } }\n",
    )
    source = load(
        write(
            "k.cu",
            '#include "in.cuh"\n'
            "#define MAKE(f) __global__ void f(int* x) { *x = 1; }\nMAKE(made)\n"
            "namespace { __global__ void empty(int n) {} }\n"
            "template <class T, int N> __global__ void\nk(T* out,\n  const T (&value)[N])\n"
            "{ *out = value[0]; }\n"
            "template __global__ void k<float, 2>(float*, const float (&)[2]);\n"
            "__global__ void k(int* other) { *other = 2; }\n",
        )
    )
    found = {kernel: source.parameters(source.kernel(kernel)) for kernel in source.kernels}
    assert found == {
        "in::h": ("x", "h"),
        "made": (),
        "(anonymous namespace)::empty": ("n",),
        "k<float, 2>": ("out", "value"),
        "k": ("other",),
    }


# Binding of arguments to parameters


KERNEL = Function("f", [Variable(name, "param", "u32") for name in "abcd"], 1)


@pytest.mark.parametrize(
    ("args", "values"),
    [
        ((1, 2, 3, 4), [1, 2, 3, 4]),
        ({"d": 1, "c": 2, "b": 3, "a": 4}, [4, 3, 2, 1]),
        ({3: 1, "c": 2, 1: 3, "a": 4}, [4, 3, 2, 1]),
        ((Given(1, "c"), 2, 3, Given(4, 0)), [4, 2, 1, 3]),
    ],
)
def test_named_arguments_are_bound_to_parameters(args, values):
    assert [given.value for given in bind(KERNEL, tuple("abcd"), args)] == values


@pytest.mark.parametrize(
    ("names", "args", "part"),
    [
        ("abcd", {"a": 1, "b": 2, "c": 3, "e": 4}, "has no parameter 'e'\nits parameters are a, b, c, d"),
        (
            "abcd",
            {"a": 1, 0: 2},
            "parameter 0 of kernel f(u32, u32, u32, u32) is given twice\nits parameters",
        ),
        ("abcd", {"a": 1, "c": 2}, "takes 4 arguments, 2 given; none for b, d\ngive one for each"),
        ("abcd", {4: 1}, "has no parameter 4\nits parameters are a, b, c, d"),
        ("abcd", {True: 1}, "has no parameter True"),
        ("abcd", (1, 2, 3), "takes 4 arguments, 3 given; none for d\n"),
        (
            "abcd",
            (1, 2, 3, 4, 5),
            "takes 4 arguments, 5 given\ngive one for each parameter, in their order: a,",
        ),
        ("abcd", (Given(1, "a"), Given(1, "a"), 2, 3), "parameter 'a' of kernel"),
        (("a", "", "", "d"), {"": 1}, "its parameters are a, 1 (no name), 2 (no name), d"),
        (
            "",
            {"a": 1, "b": 2, "c": 3, "d": 4},
            "names of its parameters are not known\ngive the arguments in order, or by position, 0 to 3",
        ),
        ("", {-1: 1}, "has no parameter -1\ngive the arguments in order"),
    ],
)
def test_wrong_argument_names_are_refused(names, args, part):
    with pytest.raises(LaunchError) as caught:
        bind(KERNEL, tuple(names), args)
    assert part in str(caught.value)


def test_named_arguments_may_have_any_order(write):
    path = write("sub.cu", SUB)
    a, b = np.full(4, 5, np.float32), np.full(4, 3, np.float32)
    for args in (
        {"b": b, "n": 4, "a": a, "c": Out("float32", 4)},
        {1: b, "c": Out("float32", 4), 0: a, 3: 4},
        [Given(b, "b"), a, Out("float32", 4), Given(4, "n")],
    ):
        result = run(path, grid=1, block=32, args=args)
        assert result.outputs[2].tolist() == [2] * 4
        assert result.changed == (next(iter(result.changed)),)


def test_compiled_ptx_has_no_parameter_names_and_handwritten_ptx_has(write):
    made = load(write("sub.cu", SUB)).ptx
    a, b, c = np.full(4, 5, np.float32), np.full(4, 3, np.float32), Out("float32", 4)
    with pytest.raises(
        LaunchError, match=r"'b' of kernel sub.*not known\ngive the arguments in order, or by pos"
    ):
        run(write("made.ptx", made), grid=1, block=32, args={"b": b, "a": a, "c": c, "n": 4})
    by_position = {1: b, 3: 4, 2: c, 0: a}
    assert run(write("made.ptx", made), grid=1, block=32, args=by_position).outputs[2][0] == 2
    hand = (
        f"{HEAD} .entry f(.param .u32 n, .param .u64 x) {{ .reg .b32 %r; .reg .b64 %d; ld.param.u64 %d, [x];"
    )
    path = write("hand.ptx", f"{hand} ld.param.u32 %r, [n]; st.global.u32 [%d], %r; ret; }}")
    assert run(path, grid=1, block=1, args={"x": Out("u4", 1), "n": 7}).outputs["x"].tolist() == [7]


def test_the_command_line_accepts_named_arguments(write, capsys):
    write("sub.cu", SUB)
    np.save("three.npy", np.full(4, 3, np.float32))
    np.save("five.npy", np.full(4, 5, np.float32))
    launch = ["run", "sub.cu", "--grid", "1", "--block", "32"]

    def ended(*args):
        return main([*launch, *(word for arg in args for word in ("--arg", arg))])

    for args in (
        ["b=three.npy", "a=five.npy", "c=out:float32:4", "n=4"],
        ["c=out:float32:4", "3=4", "five.npy", "three.npy"],
    ):
        assert ended(*args) == 0
        assert np.load("c.npy").tolist() == [2] * 4
    capsys.readouterr()
    for args, part in (
        (
            ["b=three.npy", "a=five.npy", "z=out:float32:4", "n=4"],
            "no parameter 'z'\nits parameters are a, b, c, n",
        ),
        (["b=three.npy", "b=five.npy", "c=out:float32:4", "n=4"], "parameter 'b' of kernel sub"),
        (["n=4", "five.npy", "three.npy", "out:float32:4", "n=4"], "parameter 'n' of kernel sub"),
    ):
        assert ended(*args) == 2
        assert part in capsys.readouterr().err


def test_mangled_names_are_read():
    assert readable("_ZN4bits4packILi32EfEEvPT0_") == "bits::pack<32, float>"
    assert readable("_ZN6cudapy8__main__4raceB2v2B5cw51cE5ArrayIfLi1EE") == "cudapy::__main__::race"
    assert parameter_types("_Z5saxpyifPKfPf") == ["int", "float", "float const*", "float*"]
    assert parameter_types("_Z4fillIdEvPT_S0_") == ["double*", "double"]
    assert plain("bits::pack<32, ns::pair<int, float>>") == "pack"
    assert listed(["_Z1fi", "_Z1gf", "_Z1fPf"]) == "f(int), g, f(float*)"
    names = ["_Z4sortILj512EEvPi", "_ZN2my4sortEPf", "_ZN2my4sortEPi"]
    found = [choose(name, names) for name in ("sort<512>", "sort(int*)", "my::sort")]
    assert found == [["_Z4sortILj512EEvPi"], ["_ZN2my4sortEPi"], ["_ZN2my4sortEPf", "_ZN2my4sortEPi"]]
