"""What the pages of published kernels say before their figures: how they are made, and what can be compared."""

from pkb.report.frontier import ON_CPU

FETCH = """The kernels behind the published table are in the history of the benchmark that this one descends from. They are not
ours: what is kept here are ids, hashes, verdicts, times and figures. Anybody can fetch and judge them:

```
git clone https://github.com/togethercomputer/ParallelKernelBench upstream && git -C upstream checkout dab0830
python benchmarks/frontier.py upstream/solutions_* {options}
python benchmarks/frontier_page.py
```
"""
HEAD = f"""# The published table, judged here

Made by `benchmarks/frontier_page.py` from `docs/records/frontier-*.jsonl`; do not edit.

{FETCH.format(options="--out docs/records --lanes 5     (resumable; --budget SECONDS)")}
**Right as published**: by the plan `published` (even inputs, one call, all-close with 1e-2, the result read at once, 5 x 20
timed calls after 500, point estimates). **Right**: by the plan `standard` (uneven and odd inputs, tolerances of the dtype,
races, another number of ranks, intervals). The first is no copy of the original harness: references are ours where they differ
([differences.md](differences.md)), values are of the same kind and not the same, one call is checked where the original makes
five, and there are 4 ranks that share one GPU. [sweeps.md](sweeps.md) has the whole list. So a difference of single candidates
may be one of problems, and times say nothing about NVLink. [frontier-cpu.md](frontier-cpu.md) has the same files judged without
a GPU.
"""
CPU_OPTIONS = (
    f"--platform cpu --nvls --size tiny --workers 1 \\\n    --out docs/records/{ON_CPU} --have docs/records/{ON_CPU}"
)
CPU_HEAD = f"""# The published kernels, judged without a GPU

Made by `benchmarks/frontier_page.py` from `docs/records/{ON_CPU}/frontier-*.jsonl`; do not edit.

{FETCH.format(options=CPU_OPTIONS)}
Platform `cpu`: CUDA runs on an emulated GPU ([cuda-on-cpu.md](cuda-on-cpu.md)) and Triton in its interpreter, an emulated
switch does multicast, and nothing is timed. **Right as published**: by the plan `published` (even inputs, one call, all-close
with 1e-2, the result read at once). **Right**: by the plan `standard` (uneven and odd inputs, tolerances of the dtype, races
provoked and proven from recorded calls, another number of ranks). The size is `tiny`, while the published figures are of larger
shapes: a kernel that insists on those, on a multiple of 128 say, fails here and may be right there, and one that faults only at
large sizes the other way round. References are ours where they differ ([differences.md](differences.md));
[sweeps.md](sweeps.md) says what else differs. So totals are compared, and single candidates are not.
"""
