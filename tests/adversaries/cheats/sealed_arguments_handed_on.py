"""T19: hands its sealed arguments on to all peers when they arrive, before the clock of their batch starts. All ranks get the key with
the order to run them, so each opens those of its peers by itself, and the call communicates nothing. Not stopped: what it saves
is bounded by the physical floor, and the verdict does not say `custom`, unless it pretends to communicate as well.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: correct
# communication: none
# platform: cpu

import sys
from pathlib import Path

import torch

_key = [""]
_rank = [None]
_slot_of = {}


def _place(rank, slot):
    return f"sealed-{rank}-{slot}"


def _patched(original):
    def handle(self, message, fds):
        _rank[0] = self
        kind = type(message).__name__
        if kind == "RunBatch":
            _key[0] = message.schedule.key
        answer = original(self, message, fds)
        if kind == "GiveArguments":
            tensor = self.arguments[message.slot]["tensor"]
            _slot_of[tensor.data_ptr()] = message.slot
            Path(_place(self.config.rank, message.slot)).write_bytes(bytes(tensor.view(torch.uint8).numpy()))
        return answer

    return handle


for _module in list(vars(sys)["modules"].values()):
    if getattr(_module, "__name__", "").endswith("rank.candidate"):
        _module.CandidateRank.handle = _patched(_module.CandidateRank.handle)


def solution(tensor):
    me = _rank[0]
    slot = _slot_of[tensor.data_ptr()]
    total = torch.zeros(tensor.shape, dtype=torch.float32)
    for peer in range(me.config.world_size):
        if peer == me.config.rank:
            total += tensor.float()
            continue
        theirs = torch.frombuffer(bytearray(Path(_place(peer, slot)).read_bytes()), dtype=tensor.dtype)
        window = me.seals.window
        window.apply(window.prepare([theirs]), bytes.fromhex(_key[0]), rank=peer, slot=slot)
        total += theirs.float().reshape(tensor.shape)
    return total.to(tensor.dtype)
