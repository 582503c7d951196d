"""Old and new names of modules that moved; see `reference.moved`."""

MOVED = {
    "gpu.bconv.tensor": "gpu.bconv.btc",
    "gpu.bmm.operands": "gpu.host",
    "gpu.bmm.rule": "gpu.bmm.threshold",
    "gpu.cache": "gpu.compiler.cache",
    "gpu.cuda_headers": "gpu.compiler.cuda_headers",
    "gpu.directives": "gpu.compiler.directives",
    "gpu.includes": "gpu.compiler.includes",
    "gpu.mttkrp.build": "gpu.mttkrp.formats",
    "gpu.mttkrp.structure": "gpu.mttkrp.checks",
    "gpu.options": "gpu.compiler.options",
}
