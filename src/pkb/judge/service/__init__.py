"""The judge in a process of its own, for whoever has many candidates judged: generate, agent, sweeps, a cluster."""
