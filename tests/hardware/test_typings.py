"""The stubs of PyCUDA and of the CUDA bindings agree with the installed modules."""

import ast
import importlib
import inspect

import pytest

from support.offenders import check_each
from support.sources import ROOT, parsed

pytestmark = pytest.mark.gpu

STUBS = ROOT / "typings"
FILES = {
    ".".join(path.relative_to(STUBS).with_suffix("").parts): path
    for path in sorted(STUBS.rglob("*.pyi"))
    if path.name != "__init__.pyi"
}


def declared(module):
    """(dotted name, syntax) of each name that a stub declares, except its own aliases."""
    return list(_of_body("", parsed(FILES[module].read_text()).body))


def _of_body(prefix, body):
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield prefix + node.name, node
            if isinstance(node, ast.ClassDef):
                yield from _of_body(f"{prefix}{node.name}.", node.body)
        elif prefix and isinstance(node, ast.AnnAssign):
            yield prefix + node.target.id, node
        elif prefix and isinstance(node, ast.Assign):
            for target in node.targets:
                yield prefix + target.id, node


def found(module, name):
    """The attribute of the real module at a dotted name."""
    value = importlib.import_module(module)
    for part in name.split("."):
        value = getattr(value, part)
    return value


@pytest.mark.parametrize("module", [module for module in FILES if declared(module)])
def test_every_stubbed_name_exists_with_its_value(module):
    if module.startswith("pycuda"):
        pytest.importorskip("pycuda", reason="the CUDA bindings stand in for PyCUDA")
    check_each(lambda case: check_stub(module, *case), declared(module), name=lambda case: case[0])


def check_stub(module, name, node):
    if name.endswith("__init__") or _is_set_in_init(module, name, node):
        return
    value = found(module, name)
    if isinstance(node, ast.ClassDef):
        assert inspect.isclass(value)
    elif isinstance(node, ast.FunctionDef):
        assert callable(value)
        _check_parameters(value, node)
    elif (
        isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and node.value.value is not ...
    ):
        assert int(value) == node.value.value


def _is_set_in_init(module, name, node):
    """Whether a Python class sets this attribute in ``__init__``, so that the class itself lacks it."""
    if not isinstance(node, ast.AnnAssign):
        return False
    owner = found(module, name.rpartition(".")[0])
    try:
        return f"self.{node.target.id} =" in inspect.getsource(owner)
    except (OSError, TypeError):
        return False


def _check_parameters(value, node):
    """Compare the parameter names of a stub with those of the real function, where it exposes a signature."""
    try:
        real = inspect.signature(value).parameters
    except (TypeError, ValueError):  # Boost.Python and some Cython functions have only a docstring
        return
    kinds = [parameter.kind for parameter in real.values()]
    named = [a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    if inspect.Parameter.VAR_KEYWORD in kinds or kinds == [inspect.Parameter.VAR_POSITIONAL]:
        return
    missing = [name for name in named if name not in ("self", "cls", *real)]
    assert not missing, f"{node.name}{inspect.signature(value)} has no {', '.join(missing)}"


def test_every_stub_file_is_checked():
    assert {"pycuda.driver", "cuda.bindings.nvrtc", "cuda.bindings.driver", "cuda.core.utils"} <= set(FILES)
    assert sum(len(declared(module)) for module in FILES) > 80
