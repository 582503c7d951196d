from collections.abc import Callable
from typing import Any

compile: Callable[..., Any]
