"""Machine code of a kernel's segments, by LLVM through llvmlite."""

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


class Code:
    """The machine code of a module's function ``drive``, as long as the object lives."""

    def __init__(self, text: str) -> None:
        binding = llvm()
        machine = _target()
        module = binding.parse_assembly(text)
        module.triple = machine.triple
        builder = binding.create_pass_builder(machine, binding.create_pipeline_tuning_options(speed_level=1))
        builder.getModulePassManager().run(module, builder)
        self._engine = binding.create_mcjit_compiler(module, machine)
        self._engine.finalize_object()
        address = self._engine.get_function_address("drive")
        self.drive = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_void_p] * 7)(address)
