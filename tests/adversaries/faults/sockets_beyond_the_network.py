"""R11: sockets of families that no network namespace bounds. A vsock led from a rank to the host of the virtual machine, and its ports
are the same in every sandbox, so that candidates could tell each other what they know. Nothing is bound or connected
here: that a socket can be made is enough. Stopped by letting ranks have sockets of four families (unix, internet, netlink) and no others.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: correct
# platform: cpu

import socket

import torch.distributed as dist

for _family in set(range(46)) - {socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK}:
    for _kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET):
        try:
            socket.socket(_family, _kind).close()
        except OSError:
            continue
        raise RuntimeError(f"a socket of family {_family}")

for _family in (socket.AF_INET, socket.AF_INET6):  # its own loopback is a rank's to use
    socket.socket(_family, socket.SOCK_DGRAM).close()


def solution(tensor):
    out = tensor.clone()
    dist.all_reduce(out)
    return out
