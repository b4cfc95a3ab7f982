"""Runs code that cannot be read in the file.

What it finds: `exec`, `eval` and `compile` of Python; `marshal`, `pickle` and `dill` loads; base64 or zlib decoding
next to one of them; `runpy`. `model.eval()`, `re.compile`, `torch.compile` and `pkb.kit.compile` are other functions.

Why: what is generated at run time escapes every other rule and every reader of the candidate. Generated kernels are a
known technique, so it is a warning.

Example:

    exec(base64.b64decode("aW1wb3J0IHBrYi5qdWRnZQ=="))

Use instead: templates of CUDA text given to `pkb.kit.compile`, and `tl.constexpr` arguments in Triton.
"""

from pkb.candidates.names import under
from pkb.candidates.rules import Reporter
from pkb.candidates.source import Source

_RUNS = ("builtins.exec", "builtins.eval", "builtins.compile", "code.InteractiveInterpreter", "runpy")
_LOADS = ("marshal.loads", "marshal.load", "pickle.loads", "pickle.load", "dill.loads", "dill.load", "types.CodeType")
_DECODES = ("base64", "zlib.decompress", "bz2.decompress", "lzma.decompress", "codecs.decode", "binascii.unhexlify")


def check(source: Source, report: Reporter) -> None:
    references = [reference for reference in source.names.references if "." in reference.name]
    runs = False
    for name, _, line in references:
        if under(name, *_RUNS, *_LOADS):
            runs = True
            report.warn(line, f"{name.removeprefix('builtins.')} runs code that the file does not show")
    for name, _, line in references:
        # Decoding alone may be data; together with exec it is a disguise.
        if runs and under(name, *_DECODES):
            report.warn(line, f"{name} decodes text beside code that is run from text")
