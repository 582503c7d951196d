"""Machine code of LLVM's text, by the llvmlite that numba brings, which is imported at its first use."""

from __future__ import annotations

import ctypes
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any


@cache
def llvm() -> Any:
    """The binding of llvmlite, with this processor's target; None if it is not installed."""
    if find_spec("llvmlite") is None:
        return None
    binding = import_module("llvmlite.binding")
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    return binding


def _target() -> Any:
    """The target of LLVM: the processor at hand, with all that it has."""
    binding = llvm()
    target = binding.Target.from_default_triple()
    features = binding.get_host_cpu_features().flatten()
    return target.create_target_machine(cpu=binding.get_host_cpu_name(), features=features, opt=1)


class MachineCode:
    """The machine code of a module's function, as long as the object lives.

    ``signature`` has the ctypes of the result and of the arguments. RuntimeError if LLVM refuses the text.
    """

    def __init__(self, text: str, name: str, *signature: Any) -> None:
        binding = llvm()
        machine = _target()
        module = binding.parse_assembly(text)
        module.triple = machine.triple
        builder = binding.create_pass_builder(machine, binding.create_pipeline_tuning_options(speed_level=1))
        builder.getModulePassManager().run(module, builder)
        self._engine = binding.create_mcjit_compiler(module, machine)
        self._engine.finalize_object()
        self.call = ctypes.CFUNCTYPE(*signature)(self._engine.get_function_address(name))
