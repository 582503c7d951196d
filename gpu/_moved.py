"""Old and new names of modules that moved; see `reference.moved`."""

MOVED = {
    "gpu.bconv.tensor": "gpu.bconv.btc",
    "gpu.bmm.operands": "gpu.host",
    "gpu.bmm.rule": "gpu.bmm.threshold",
    "gpu.cache": "gpu.compiler.cache",
    "gpu.cuda_capture": "gpu.cuda.capture",
    "gpu.cuda_copies": "gpu.cuda.copies",
    "gpu.cuda_driver": "gpu.cuda.driver",
    "gpu.cuda_graphs": "gpu.cuda.graphs",
    "gpu.cuda_headers": "gpu.compiler.cuda_headers",
    "gpu.cuda_kernels": "gpu.cuda.kernels",
    "gpu.cuda_launch": "gpu.cuda.launch",
    "gpu.cuda_streams": "gpu.cuda.streams",
    "gpu.cuda_views": "gpu.cuda.views",
    "gpu.directives": "gpu.compiler.directives",
    "gpu.includes": "gpu.compiler.includes",
    "gpu.mttkrp.build": "gpu.mttkrp.formats",
    "gpu.mttkrp.structure": "gpu.mttkrp.checks",
    "gpu.options": "gpu.compiler.options",
    "gpu.tensor_map": "gpu.cuda.tensor_map",
    "gpu.textures": "gpu.cuda.textures",
}
