"""Honest: the whole call, barriers included, captured once into a CUDA graph for each shape and replayed."""
# problem: 1
# ranks: 2
# plan: quick
# expect: correct
# communication: custom
# platform: gpu

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

_graphs = {}


def capture(tensor):
    source = torch.empty_like(tensor, memory_format=torch.contiguous_format)
    buffer = symm_mem.empty(tensor.numel(), dtype=tensor.dtype, device=tensor.device)
    handle = symm_mem.rendezvous(buffer, dist.group.WORLD)
    peers = [handle.get_buffer(peer, (tensor.numel(),), tensor.dtype) for peer in range(handle.world_size)]

    def call():
        buffer.copy_(source.reshape(-1))
        handle.barrier(channel=0)
        total = torch.zeros(tensor.numel(), dtype=torch.float32, device=tensor.device)
        for peer in peers:
            total += peer.float()
        handle.barrier(channel=1)
        return total.to(tensor.dtype).reshape(tensor.shape)

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):  # kernels are loaded and memory is found before anything is captured
            call()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = call()
    return graph, source, result, handle


def solution(tensor):
    key = tuple(tensor.shape)
    if key not in _graphs:
        _graphs[key] = capture(tensor)
    graph, source, result, _ = _graphs[key]
    source.copy_(tensor)
    graph.replay()
    return result.clone()
