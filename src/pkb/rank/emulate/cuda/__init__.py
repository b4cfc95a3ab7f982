"""CUDA candidates on a CPU: their text compiled by g++, their threads as fibers. docs/cuda-on-cpu.md says what is modelled."""
