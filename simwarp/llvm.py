"""Machine code of LLVM's text, by the llvmlite that numba brings, which is imported at its first use."""

from __future__ import annotations

import ctypes
from functools import cache, lru_cache
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


_KEPT = 64
"""Most machine codes that a process keeps for others with the same text."""


@lru_cache(_KEPT)
def code_of(text: str) -> MachineCode:
    """The machine code of a module's text; RuntimeError if LLVM refuses it."""
    return MachineCode(text)


class MachineCode:
    """The machine code of a module's functions, as long as the object lives."""

    def __init__(self, text: str) -> None:
        binding = llvm()
        machine = _target()
        module = binding.parse_assembly(text)
        module.triple = machine.triple
        builder = binding.create_pass_builder(machine, binding.create_pipeline_tuning_options(speed_level=1))
        builder.getModulePassManager().run(module, builder)
        self._engine = binding.create_mcjit_compiler(module, machine)
        self._engine.finalize_object()
        self._functions: dict[str, Any] = {}

    def address(self, name: str) -> int:
        """The address of a function."""
        return self._engine.get_function_address(name)

    def function(self, name: str, *signature: Any) -> Any:
        """A function to call; ``signature`` has the ctypes of its result and its arguments."""
        if name not in self._functions:
            made: Any = ctypes.CFUNCTYPE(*signature)(self.address(name))
            made.code = self  # who has the function keeps the code
            self._functions[name] = made
        return self._functions[name]
