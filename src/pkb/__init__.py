"""ParallelKernelBench: judge multi-GPU kernels. Importing this package does nothing else."""

__version__ = "0.1.0"
