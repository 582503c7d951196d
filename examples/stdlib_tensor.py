"""Find the topics of Python's standard library, by decomposing a tensor that counts successive names.

Element (m, i, j) is log(1 + count) of how often, in module m, the name i is followed by the name j; keywords,
`self` and `cls` are left out. A component is a group of modules, and of names that go together there. A path
keeps the tensor, as a `.tns` file; `--device` decomposes it with the kernels (the simulator takes minutes).
"""

import sysconfig
import tokenize
from argparse import ArgumentParser
from collections import Counter
from itertools import chain, pairwise
from keyword import iskeyword
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import gpu
import reference
import simwarp
from gpu.mttkrp.formats import mm_csf
from reference.sparse import Coo, read_tns, write_tns

LIBRARY = Path(sysconfig.get_path("stdlib"))
PACKAGES = """_pydatetime _pydecimal argparse ast asyncio calendar datetime email html http logging pathlib
pickle posixpath random shutil statistics tarfile threading unittest urllib xml zipfile"""


def names(file: Path) -> list[str]:
    with tokenize.open(file) as text:
        found = [t.string for t in tokenize.generate_tokens(text.readline) if t.type == tokenize.NAME]
    return [name for name in found if not iskeyword(name) and name not in ("self", "cls")]


def count(packages: str) -> tuple[Coo, list[list[str]]]:
    """The tensor of the 2000 most frequent names, and the names of each mode's indices."""
    files = sorted(f for p in packages.split() for g in (f"{p}.py", f"{p}/**/*.py") for f in LIBRARY.glob(g))
    texts = {f.relative_to(LIBRARY): names(f) for f in files if "test" not in f.parts}
    modules = [".".join(f.with_suffix("").parts).removesuffix(".__init__") for f in texts]
    number = {name: n for n, (name, _) in enumerate(Counter(chain(*texts.values())).most_common(2000))}
    follows = Counter((m, *pair) for m, text in enumerate(texts.values()) for pair in pairwise(text))
    places = {(m, number[i], number[j]): c for (m, i, j), c in follows.items() if {i, j} <= number.keys()}
    shape = len(modules), len(number), len(number)
    return Coo(np.transpose([*places]), np.log1p([*places.values()]), shape), [modules, [*number], [*number]]


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("tns", nargs="?", type=Path)
    parser.add_argument("--device", choices=("cpu", "sim", "cuda"), default="cpu")
    options = parser.parse_args()
    tensor, meanings = count(PACKAGES)
    with TemporaryDirectory() as folder:
        write_tns(path := options.tns or Path(folder, "stdlib.tns"), tensor, header=True)
        tensor = read_tns(path)
    if options.device == "cpu":
        model = reference.cpd_als(tensor, rank=16)
    else:
        device = gpu.CudaDevice() if options.device == "cuda" else simwarp.Device()
        model = gpu.cpd_als(mm_csf(tensor), rank=16, device=device)
    print(f"{' x '.join(map(str, tensor.shape))}, {tensor.values.size} nonzeros: fit {model.fits[-1]:.3f}")
    for r in np.argsort(-model.weights):
        for factor, means, before in zip(model.factors, meanings, ("", "    ", "    then "), strict=True):
            size = abs(factor[:, r])  # of the five largest, those that are not far below the first
            print(before + ", ".join(means[i] for i in np.argsort(-size)[:5] if size[i] > size.max() / 8))
