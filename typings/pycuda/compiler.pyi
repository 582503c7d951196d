from collections.abc import Callable
from typing import Any

compile_plain: Callable[..., Any]
