"""The static rules: what each must find, and what it must leave alone."""

import re
from pathlib import Path
from textwrap import dedent

import pytest
from candidate_text import source

from pkb.candidates import rules
from pkb.candidates.paths import cuda
from pkb.candidates.rules import inspect_source, rule_modules, run_rules

DOCS = Path(__file__).parents[2] / "docs" / "rules.md"
FOUND: dict[str, list[str]] = {
    "harness_access": [
        "import pkb.judge",
        "from pkb.rank import server as s",
        "from pkb import problems",
        "import importlib as il\nil.import_module('pkb.' + 'rank.server')",
        "__import__('pkb.judge.session')",
        "import sys\nsys.modules['__main__'].secret",
        "from sys import modules as m\nm.get('pkb')",
        "import __main__",
        "from gc import get_objects\nget_objects()",
        "import gc\n[o for o in gc.get_referrers(x)]",
        "import sys as s\ns._getframe(2).f_locals",
        "import sys\ngetattr(sys, '_get' + 'frame')(1)",
        "from inspect import currentframe as cf\ncf()",
        "def f(e): return e.__traceback__.tb_frame.f_back",
        "import sys\nsys.settrace(print)",
        "import pkb.kit\npkb.rank.server",
    ],
    "patched_clock": [
        "import torch\ntorch.cuda.synchronize = lambda *a: None",
        "import torch as t\nt.cuda.Event.elapsed_time = lambda a, b: 0.001",
        "from torch import cuda\ncuda.synchronize = print",
        "from torch.cuda import Event as E\nE.record = print",
        "import time\nsetattr(time, 'perf_counter', lambda: 0)",
        "import time\ntime.monotonic, x = print, 1",
        "import torch.distributed as dist\ndist.all_reduce = print",
        "import torch\nT = torch.Tensor\nT.__eq__ = lambda a, b: True",
        "import torch\nfor name in ('copy_', 'eq'):\n    setattr(torch.Tensor, name, print)",
        "import builtins\nbuiltins.abs = lambda x: 0",
        "__builtins__['abs'] = lambda x: 0",
        "import torch\nvars(torch.cuda)['synchronize'] = print",
        "import torch\ntorch.cuda.__dict__.update(synchronize=print)",
        "from unittest import mock\nmock.patch('torch.cuda.synchronize').start()",
        "from unittest.mock import patch\nimport time\npatch.object(time, 'time', print)",
        "import torch\nmonkeypatch.setattr(torch.cuda, 'Event', print)",
        "import torch\nlib = torch.library.Library('aten', 'IMPL')",
        "import torch\ntorch.allclose = lambda *a, **k: True",
    ],
    "process_tampering": [
        "import os\nopen(f'/proc/{os.getppid()}/mem', 'rb')",
        "import os\nopen('/proc/' + str(os.getppid()) + '/mem')",
        "import ctypes\nctypes.CDLL(None).ptrace(16, 1, 0, 0)",
        "import ctypes\ngetattr(ctypes.CDLL(None), 'process_vm_readv')",
        "code = 'extern \"C\" long f(int p) { return ptrace(16, p, 0, 0); }'",
        "from os import kill as k\nk(1, 9)",
        "import os\nos.killpg(0, 9)",
        "import signal\nsignal.signal(signal.SIGUSR1, print)",
        "from signal import signal, SIGUSR1\nsignal(SIGUSR1, print)",
        "import ctypes\nctypes.pythonapi.PyEval_GetFrame()",
        "import os\nos.environ['LD_PRELOAD'] = '/tmp/x.so'",
        "from os import environ as e\ne.update({'LD_PRELOAD': 'x'})",
    ],
    "result_forgery": [
        "import os\nfor fd in os.listdir('/proc/self/fd'): print(fd)",
        "import os\nos.write(5, b'{}')",
        "from os import write as w\nfor i in range(3, 20): w(i, b'x')",
        "import os\nos.fdopen(4, 'wb')",
        "import socket\nsocket.socket(fileno=3)",
        "from socket import fromfd\nfromfd(3, 1, 1)",
        "open(7, 'wb')",
        "import os\nos.scandir(f'/proc/{os.getpid()}/fd')",
    ],
    "spawns_process": [
        "import subprocess as sp\nsp.run(['nvcc'])",
        "from os import system\nsystem('ls')",
        "import os\nif os.fork() == 0: pass",
        "import multiprocessing as mp\nmp.Process(target=print).start()",
        "import os\nos.execvp('a', ['a'])",
    ],
    "uses_threads": [
        "import threading\nthreading.Thread(target=print).start()",
        "from threading import Timer as T\nT(1, print)",
        "from concurrent.futures import ThreadPoolExecutor\nThreadPoolExecutor()",
    ],
    "hidden_code": [
        "exec('x = 1')",
        "import base64\nf = eval\nf(base64.b64decode(b'MQ=='))",
        "c = compile('1', 'f', 'eval')",
        "import marshal\nmarshal.loads(b'')",
    ],
    "sets_environment": [
        "import os\nos.environ['NCCL_ALGO'] = 'NVLS'",
        "import os as o\no.environ.setdefault('CUDA_LAUNCH_BLOCKING', '1')",
        "from os import environ\nenviron.update(TORCH_NCCL_BLOCKING_WAIT='1')",
    ],
    "installs_package": [
        "import subprocess, sys\nsubprocess.run([sys.executable, '-m', 'pip', 'install', 'cupy'])",
        "import os\nos.system('pip install cupy')",
        "from urllib.request import urlretrieve\nurlretrieve('http://x', 'y')",
    ],
    "writes_file": [
        "open('x', 'w').write('1')",
        "open('x', mode='ab')",
        "from pathlib import Path\nPath('x').write_text('1')",
        "from pathlib import Path\nwith Path('x').open('wb') as f: pass",
        "import torch\ntorch.save(x, 'x.pt')",
    ],
    "registers_atexit": [
        "import atexit\natexit.register(print)",
        "from atexit import register as r\n@r\ndef f(): ...",
    ],
    "tensor_subclass": [
        "import torch\nclass Lazy(torch.Tensor): ...",
        "from torch import Tensor as T\nclass Lazy(T): ...",
        "class Lazy:\n    @classmethod\n    def __torch_function__(cls, *a): ...",
        "from torch.overrides import TorchFunctionMode\nclass M(TorchFunctionMode): ...",
    ],
    "host_tensor": [
        "import torch\ndef solution(x):\n    return torch.zeros(x.shape, dtype=x.dtype) + x",
        "import torch as t\nrows = t.arange(8).unsqueeze(1)",
        "import torch\nsteps = torch.tensor([0, 1, 2])",
        "import torch.distributed._symmetric_memory as symm_mem\nbuffer = symm_mem.empty(8)",
        "import torch\nx = torch.cat([torch.empty(3), y])",
    ],
    "silent_fallback": [
        "import torch.distributed as dist\ndef solution(x):\n    try:\n        return fast(x)\n    except Exception:\n"
        "        dist.all_reduce(x)\n        return x",
        "def solution(a, b):\n    try:\n        return fast(a, b)\n    except:\n        return a @ b",
        "from pkb import kit\ntry:\n    module = kit.compile(SRC)\nexcept kit.CompileError:\n    module = None",
        "def f(x):\n    try:\n        return fast(x)\n    except (ValueError, RuntimeError):\n        return slow(x)",
    ],
}

LEFT_ALONE: dict[str, list[str]] = {
    "harness_access": [
        "import pkb.kit\npkb.kit.compile('')",
        "from pkb import kit\nfrom pkb.kit import build_cpp",
        "import importlib\nimportlib.import_module('pkb.kit')",
        "if __name__ == '__main__':\n    print(1)",
        "import sys\nsys.modules[__name__].cache = 1",
        "import sys\nname = 'my_extension'\nsys.modules[name] = object()",
        "import gc\ngc.collect()",
        "'''import pkb.judge and sys._getframe are forbidden'''",
        "from utils.cuda_helpers import compile_cuda_extension",
    ],
    "patched_clock": [
        "import torch\ntorch.backends.cuda.matmul.allow_tf32 = False",
        "import torch\ntorch._dynamo.config.suppress_errors = True",
        "class Group:\n    def synchronize(self): ...\ng = Group()\ng.synchronize = print",
        "import time\nstart = time.perf_counter()\nprint(time.perf_counter() - start)",
        "from torch.cuda import synchronize\nsynchronize()",
        "import torch.distributed as dist\ndist.group.WORLD._buffers = {}",
        "from torch._C._distributed_c10d import _SymmetricMemory as S\nS.signal_pad_size = 4096",
        "def solution(x):\n    solution.cache = x\n    setattr(solution, 'count', 1)",
        "import torch\nlib = torch.library.Library('mine', 'DEF')\ntorch.library.impl('mine::f', 'CUDA')",
        "import torch\nx = torch.empty(3)\nx.data = torch.ones(3)\nx[0] = 1",
    ],
    "process_tampering": [
        "import os\nopen('/proc/meminfo')\nopen('/proc/self/status')",
        "raise RuntimeError('no ptrace (needed by the debugger)')",
        "code = '// ptrace(16, p, 0, 0);\\nint x;'",
        "import os\nprint(os.environ['LD_PRELOAD'])",
        "import signal\nsignal.signal(signal.SIGINT, signal.SIG_DFL)",
        "import ctypes\nctypes.pythonapi.PyCapsule_GetPointer\nctypes.c_void_p(x.data_ptr())",
        "class Job:\n    def kill(self): ...\nJob().kill()",
    ],
    "result_forgery": [
        "import os\nos.write(1, b'hello')\nos.write(2, b'warning')",
        "open('kernel.cu')",
        "import socket\nsocket.socket(socket.AF_UNIX, socket.SOCK_STREAM)",
        "file.write(b'x')",
    ],
    "spawns_process": [
        "from multiprocessing import shared_memory\nshared_memory.SharedMemory('x')",
        "class Graph:\n    def fork(self): ...\nGraph().fork()",
    ],
    "uses_threads": ["import threading\nlock = threading.Lock()", "BLOCK_THREADS = 512\nthread = 3"],
    "hidden_code": [
        "model.eval()",
        "import re, torch\nre.compile('a')\ntorch.compile(f)",
        "from pkb.kit import compile\ncompile('__global__ void f() {}')",
        "import base64\nTABLE = base64.b64decode('AAAA')",
    ],
    "sets_environment": [
        "import os\nos.environ['TORCH_CUDA_ARCH_LIST'] = '9.0'",
        "import os\nprint(os.environ['NCCL_ALGO'])\nos.environ['MAX_JOBS'] = '4'",
    ],
    "installs_package": [
        "raise ImportError('triton is missing: pip install triton')",
        "registry.install(handler)\nrun(['install', 'me'])",
    ],
    "writes_file": [
        "open('kernel.cu').read()",
        "open('x', 'rb')",
        "window.open('wide')",
    ],
    "registers_atexit": ["registry.register(print)", "def atexit(): ...\natexit()"],
    "tensor_subclass": [
        "import torch\nclass Net(torch.nn.Module): ...",
        "import torch\nclass F(torch.autograd.Function): ...",
    ],
    "host_tensor": [
        "import torch\ntorch.zeros_like(x) + torch.empty(3, device=x.device)",
        "import torch\nrows = torch.arange(8).unsqueeze(1).to(x.device)",
        "import torch\nsteps = torch.tensor([0, 1]).tolist()",
        "import torch\nflag = torch.zeros(1)\nflag = flag.cuda()",
        "import torch\ntorch.set_default_device('cuda')\nx = torch.empty(3)",
        "import torch\nwith torch.device('cuda'):\n    x = torch.empty(3)",
        "import torch\nhalf = torch.tensor(0.5)",
        "import torch\nx = torch.empty(3, **options)",
        "import torch\nfrom pkb import kit\nlib = kit.build_cpp('', name='x')\nout = torch.empty(3)",
        "def empty(n): return n\nx = empty(3)",
    ],
    "silent_fallback": [
        "try:\n    import triton\nexcept ImportError:\n    triton = None",
        "import torch\ntry:\n    rank = torch.distributed.get_rank()\nexcept RuntimeError:\n    rank = 0",
        "from pkb import kit\ntry:\n    m = kit.compile(S)\nexcept kit.CompileError as e:\n    raise ValueError from e",
        "def solution(x):\n    return fast(x) if x.is_cuda else slow(x)",
    ],
}

REJECTING = {"harness_access", "patched_clock", "process_tampering", "result_forgery"}


def pairs(table: dict[str, list[str]]) -> list[tuple[str, str]]:
    return [(rule, text) for rule, texts in table.items() for text in texts]


def test_every_rule_of_the_folder_has_snippets_of_both_kinds_and_a_teaching_docstring() -> None:
    files = {path.stem for path in Path(rules.__path__[0]).glob("*.py")} - {"__init__"}
    assert set(rule_modules()) == files == set(FOUND) == set(LEFT_ALONE)
    for name, module in rule_modules().items():
        assert len(FOUND[name]) >= 2, name
        assert len(LEFT_ALONE[name]) >= 2, name
        doc = module.__doc__ or ""
        positions = [doc.find(f"\n\n{part}") for part in ("What it finds:", "Why:", "Example:", "Use instead:")]
        assert -1 not in positions, name
        assert positions == sorted(positions), name


@pytest.mark.parametrize(("rule", "text"), pairs(FOUND))
def test_the_rule_finds(rule: str, text: str) -> None:
    found = run_rules(source(text), [rule])
    assert found, text
    assert {finding.rule for finding in found} == {rule}
    assert (found[0].severity == "reject") == (rule in REJECTING)
    lines = dedent(text).split("\n")
    assert all(finding.text == lines[finding.line - 1].strip() for finding in found)


@pytest.mark.parametrize(("rule", "text"), pairs(LEFT_ALONE))
def test_the_rule_leaves_alone(rule: str, text: str) -> None:
    assert run_rules(source(text), [rule]) == []
    assert inspect_source(source(text)).rejections == ()  # nor does any other rule reject it


def test_descriptors_of_its_own_are_a_warning_only() -> None:
    text = "import os, tempfile\nfd, path = tempfile.mkstemp()\nos.write(fd, b'x')\nos.fdopen(fd)\n"
    found = run_rules(source(text), ["result_forgery"])
    assert [(finding.line, finding.severity) for finding in found] == [(3, "warn"), (4, "warn")]


def test_a_finding_names_the_line_inside_an_embedded_source() -> None:
    text = 'CODE = """\nint a;\nlong f(int p) {\n  return ptrace(16, p, 0, 0);\n}\n"""\n'
    (found,) = run_rules(source(text), ["process_tampering"])
    assert (found.line, found.text) == (4, "return ptrace(16, p, 0, 0);")


@pytest.mark.parametrize(
    "text",
    [
        "import torch\nname = ''.join(['sync', 'hronize'])\ngetattr(torch, part)(name)",
        "exec('import pkb.judge')",
        "import sys\n(lambda s: s._getframe())(sys)",
    ],
)
def test_what_is_put_together_at_run_time_is_missed(text: str) -> None:
    """Not a wish but the limit that docs/rules.md admits: if one of these is found one day, move it to FOUND."""
    assert inspect_source(source(text)).rejections == ()


def test_an_honest_upstream_candidate_is_clean() -> None:
    text = '''
        import os, time, functools, ctypes
        import torch
        import torch.distributed as dist
        import torch.distributed._symmetric_memory as symm_mem
        from utils.cuda_helpers import compile_cuda_extension

        os.environ["TORCH_CUDA_ARCH_LIST"] = "9.0a"
        torch.backends.cuda.matmul.allow_tf32 = False
        CUDA_SRC = r"""
        #include <torch/extension.h>
        __global__ void reduce(const long long* ptrs, float* out, int n) { out[n] = 0; /* multimem.st is for later */ }
        PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {}
        """
        _cache = {}

        @functools.lru_cache
        def _extension():
            return compile_cuda_extension("reduce", CUDA_SRC)

        def _resources(n, device):
            if n not in _cache:
                buffer = symm_mem.empty(n, device=device)
                _cache[n] = (buffer, symm_mem.rendezvous(buffer, dist.group.WORLD))
            return _cache[n]

        def solution(x):
            assert x.is_cuda
            start = time.time()
            buffer, handle = _resources(x.numel(), x.device)
            buffer.copy_(x.view(-1))
            handle.barrier(channel=0)
            out = torch.empty_like(x)
            _extension().reduce(handle.buffer_ptrs_dev, ctypes.c_void_p(out.data_ptr()), x.numel())
            torch.cuda.current_stream().synchronize()
            print(time.time() - start)
            return out
    '''
    seen = inspect_source(source(text))
    assert seen.findings == ()
    assert (seen.backend, seen.needs) == ("cuda", frozenset({"cuda"}))
    # Python waits for its peers in `handle.barrier`; without a parser nobody knows what the kernel does.
    expected = {"sm_load_store"} if cuda.available() else {"sm_load_store", "unknown"}
    assert {use.path for use in seen.paths} == expected


def test_the_page_lists_every_rule_with_its_severity() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (reject|warn) \|", DOCS.read_text(), re.MULTILINE))
    assert rows == {name: "reject" if name in REJECTING else "warn" for name in rule_modules()}
