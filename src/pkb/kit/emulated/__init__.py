"""CUDA built for a CPU: the text rewritten for g++, and the runtime that runs its threads. docs/cuda-on-cpu.md says what is
modelled. `pkb.rank.emulate.cuda` launches what is built here."""
