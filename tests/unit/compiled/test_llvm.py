"""Machine code of LLVM's text lives as long as somebody has it."""

import gc
from ctypes import c_int64

import pytest

from simwarp import llvm

TEXT = "define i64 @add(i64 %x) {{\n  %y = add i64 %x, {}\n  ret i64 %y\n}}\n"


def test_a_function_keeps_its_code():
    code = llvm.MachineCode(TEXT.format(7))
    function = code.function("add", c_int64, c_int64)
    assert function.code is code
    assert code.function("add", c_int64, c_int64) is function
    del code
    gc.collect()
    assert function(5) == 12


def test_a_text_is_compiled_once():
    assert llvm.code_of(TEXT.format(8)) is llvm.code_of(TEXT.format(8))


def test_a_text_that_llvm_does_not_take_is_refused():
    with pytest.raises(RuntimeError, match="expected"):
        llvm.code_of("define broken")
