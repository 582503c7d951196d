"""Machine code of a kernel's segments, by LLVM through llvmlite."""

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
"""Most machine codes that a process keeps for other programs with the same text."""


@lru_cache(_KEPT)
def code_of(text: str) -> Code:
    """The machine code of a text; RuntimeError if LLVM refuses it."""
    return Code(text)


class Code:
    """The machine code of a module, as long as the object lives."""

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

    def call(self, name: str, result: Any, *addresses: int) -> Any:
        """Call a function of addresses; ``result`` is the type of its result by ctypes."""
        if name not in self._functions:
            kind = ctypes.CFUNCTYPE(result, *[ctypes.c_void_p] * len(addresses))
            self._functions[name] = kind(self.address(name))
        return self._functions[name](*addresses)
