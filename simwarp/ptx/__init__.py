"""PTX: text, parser, instruction rows, linker and executor."""
