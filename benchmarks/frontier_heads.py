"""The text of the pages on published kernels before their figures: how they are made, and what can be compared."""

from pkb.report.frontier import ON_CPU

FETCH = """The kernels behind the published table are in the history of the benchmark that this one descends from. They are not
ours, so only ids, hashes, verdicts, times and figures are kept here. Anybody can fetch and judge them:

```
git clone https://github.com/togethercomputer/ParallelKernelBench upstream && git -C upstream checkout dab0830
python benchmarks/frontier.py upstream/solutions_* {options}
python benchmarks/frontier_page.py
```
"""
HEAD = f"""# The published table, judged here

Made by `benchmarks/frontier_page.py` from `docs/records/frontier-*.jsonl`; do not edit.

{FETCH.format(options="--out docs/records --lanes 5     (resumable; --budget SECONDS)")}
A candidate is **right as published** if it passes the plan `published`: even inputs, one call, all-close with 1e-2, the result
read at once, 5 x 20 timed calls after 500, point estimates. It is **right** if it passes the plan `standard`: uneven and odd
inputs, tolerances of the dtype, races, another number of ranks, intervals. The plan `published` is not a copy of the original
harness: references are ours where they differ ([differences.md](differences.md)), values are of the same kind but not the same,
one call is checked where the original makes five, and 4 ranks share one GPU. [sweeps.md](sweeps.md) has the whole list. So if a
single candidate fares differently here, the problem itself may differ, and times say nothing about NVLink.
[frontier-cpu.md](frontier-cpu.md) has the same files judged without a GPU.
"""
CPU_OPTIONS = (
    f"--platform cpu --nvls --size tiny --workers 1 \\\n    --out docs/records/{ON_CPU} --have docs/records/{ON_CPU}"
)
CPU_HEAD = f"""# The published kernels, judged without a GPU

Made by `benchmarks/frontier_page.py` from `docs/records/{ON_CPU}/frontier-*.jsonl`; do not edit.

{FETCH.format(options=CPU_OPTIONS)}
On platform `cpu`, CUDA runs on an emulated GPU ([cuda-on-cpu.md](cuda-on-cpu.md)) and Triton in its interpreter, an emulated
switch does multicast, and nothing is timed. A candidate is **right as published** if it passes the plan `published`: even
inputs, one call, all-close with 1e-2, the result read at once. It is **right** if it passes the plan `standard`: uneven and odd
inputs, tolerances of the dtype, races provoked and proven from recorded calls, another number of ranks. The size is `tiny`,
while the published figures are for larger shapes. A kernel that requires those, for example a multiple of 128, fails here and
may be right there; a kernel that only fails at large sizes is right here and wrong there. References are ours where they differ
([differences.md](differences.md)); [sweeps.md](sweeps.md) says what else differs. So only totals can be compared, not single
candidates.
"""
